package node

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// ensureCiliumNode runs the step of a reconcile that creates or restores the CiliumNode.
func (b *bed) ensureCiliumNode() {
	b.T.Helper()
	o := b.observe()
	if next, err := b.r.ensureCiliumNode(b.T.Context(), o, &result{}); err != nil || next != nil {
		b.T.Fatalf("%v, and nothing written: %t", err, next != nil)
	}
}

// summary describes the blocks of all nodes and what node n's CiliumNode lists, publishes and
// negotiates, without empty parts. A block without a phase is in service.
func (b *bed) summary() string {
	b.T.Helper()
	var parts []string
	part := func(name string, list []string) {
		if len(list) > 0 {
			parts = append(parts, name+" "+strings.Join(list, " "))
		}
	}
	var blocks []string
	for _, line := range b.phases() {
		blocks = append(blocks, strings.Replace(line, " InService", "", 1))
	}
	part("blocks", blocks)
	v := b.CiliumNode()
	if v == nil {
		return strings.Join(append(parts, "no CiliumNode"), "; ")
	}
	for _, pool := range []string{"", "blue"} {
		var listed []string
		if pool != "" && !b.Mode.ManyPools() {
			continue
		}
		for _, cidr := range v.Of(pool).PodCIDRs {
			listed = append(listed, cidr.String())
		}
		part(strings.TrimSpace("lists "+pool), listed)
	}
	if v.BlockAssignment == nil {
		part("pool", b.published())
	}
	var entries []string
	for addr, status := range v.Release {
		entries = append(entries, fmt.Sprintf("%s=%s", addr, status))
	}
	slices.Sort(entries)
	part("release", entries)
	return strings.Join(parts, "; ")
}

func (b *bed) is(want string) {
	b.T.Helper()
	if got := b.summary(); got != want {
		b.T.Errorf("it is\n  GOT %s\nwant\n  %s", got, want)
	}
}

// scenario is Node n beside objects, and a summary of it after a reconcile.
type scenario struct {
	mode    ciliumnode.Mode
	objects []client.Object // without a Node or a pool p, n and one of 10.0.0.0/28 are added
	given   func(*bed)      // happens before the reconcile, or sets a hook
	do      func(*bed)      // in place of the reconcile
	settles bool            // reconciles until nothing is written
	want    string
	calls   string // must be among the calls; "": any
}

// runScenarios runs each scenario alone and beside twin, which must not matter.
func runScenarios(t *testing.T, tests map[string]scenario) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { test.run(t) })
		t.Run(name+", beside another node", func(t *testing.T) { test.run(t, twin()...) })
	}
}

// twin returns another node with addresses of both families, and its pool, which does not select n.
func twin() []client.Object {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "twin", UID: "twin-uid", Labels: map[string]string{"twin": "true"}}}
	node.Spec.PodCIDRs = []string{"10.99.0.0/30", "fd99::/126"}
	cn := publishing(fixtures.CiliumNode("twin", "", node.Spec.PodCIDRs...), "10.99.0.1", "10.99.0.2", "fd99::1", "fd99::2")
	cn.UID = "twin-uid"
	cn.Status.IPAM.Used = fixtures.AllocationMap("10.99.0.1", "fd99::1")
	pool := fixtures.DualStack()
	pool.Name, pool.UID = "twin", "twin-uid"
	pool.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: node.Labels}
	pool.Spec.IPv4.CIDRs[0].CIDR, pool.Spec.IPv6.CIDRs[0].CIDR = "10.99.0.0/28", "fd99::/120"
	return []client.Object{node, cn, pool}
}

func (test scenario) run(t *testing.T, beside ...client.Object) {
	objects := slices.Concat(beside, test.objects)
	isNode := func(o client.Object) bool { _, ok := o.(*corev1.Node); return ok && o.GetName() == "n" }
	if !slices.ContainsFunc(objects, isNode) {
		objects = append(objects, fixtures.Node())
	}
	isPool := func(o client.Object) bool { _, ok := o.(*v1alpha1.PodIPPool); return ok && o.GetName() == "p" }
	if !slices.ContainsFunc(objects, isPool) {
		objects = append(objects, fixtures.PodIPPool("p", 1, "10.0.0.0/28"))
	}
	if test.mode == "" {
		test.mode = ciliumnode.CRD
	}
	b := newBedIn(t, test.mode, objects...)
	if test.given != nil {
		test.given(b)
	}
	if test.do == nil {
		test.do = func(b *bed) { b.step() }
	}
	test.do(b)
	if test.calls != "" && !slices.Contains(b.Calls, test.calls) {
		t.Errorf("calls %v, want %s", b.Calls, test.calls)
	}
	if test.settles {
		b.settle()
	}
	b.is(test.want)
}

// using is a CiliumNode with addresses in use.
func using(cn *ciliumv2.CiliumNode, addrs ...string) *ciliumv2.CiliumNode {
	cn.Status.IPAM.Used = fixtures.AllocationMap(addrs...)
	return cn
}

// servesFrom fails the test unless the blocks in service are of these pools.
func (b *bed) servesFrom(want ...string) {
	b.T.Helper()
	var got []string
	for _, k := range b.Blocks() {
		if k.Phase == ipalloc.InService && !slices.Contains(got, k.Pool) {
			got = append(got, k.Pool)
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		b.T.Errorf("pools that serve (-want +got):\n%s", diff)
	}
}
