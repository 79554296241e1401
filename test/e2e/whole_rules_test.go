//go:build linux

package main

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	iputil "github.com/cilium/cilium/pkg/ip"
	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
)

// told is a CiliumNode whose list somebody has written.
func told(node, by, router string, cidrs ...string) *ciliumv2.CiliumNode {
	cn := &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: node}}
	entry := ipamtypes.IPAMPoolAllocation{Pool: "default"}
	for _, c := range cidrs {
		entry.CIDRs = append(entry.CIDRs, iputil.PrefixFrom(netip.MustParsePrefix(c)))
	}
	cn.Spec.IPAM.Pools.Allocated = []ipamtypes.IPAMPoolAllocation{entry}
	if router != "" {
		cn.Spec.Addresses = []ciliumv2.NodeAddress{{Type: "CiliumInternalIP", IP: router}}
	}
	for manager, fields := range map[string]string{
		by:        `{"f:spec":{"f:ipam":{"f:pools":{"f:allocated":{}}}}}`,
		"another": `{"f:spec":{"f:ipam":{"f:pools":{".":{},"f:requested":{}}}}}`,
	} {
		cn.ManagedFields = append(cn.ManagedFields, metav1.ManagedFieldsEntry{Manager: manager, FieldsV1: metav1.NewFieldsV1(fields)})
	}
	return cn
}

func podIPBlock(cidr, node string, conditions ...metav1.Condition) *v1alpha1.PodIPBlock {
	b := &v1alpha1.PodIPBlock{ObjectMeta: metav1.ObjectMeta{Name: strings.ReplaceAll(cidr, "/", "-")}}
	b.Spec.CIDR, b.Spec.Node, b.Status.Conditions = cidr, node, conditions
	return b
}

func podAt(node, address string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	p.Spec.NodeName, p.Status.PodIPs = node, []corev1.PodIP{{IP: address}}
	return p
}

func TestWholeRules(t *testing.T) {
	const a, b = "10.0.0.0/27", "10.0.0.32/27"
	cooling := metav1.Condition{Type: v1alpha1.BlockCoolingDown, Status: metav1.ConditionTrue}
	going := podAt("n1", "10.0.0.33")
	now := metav1.Now()
	going.DeletionTimestamp = &now
	for name, test := range map[string]struct {
		versions []client.Object
		gone     client.Object
		want     []string
	}{
		"told what it has": {versions: []client.Object{podIPBlock(a, "n1"), told("n1", operatorWriter, ""), told("n1", operatorWriter, "", a)}},
		"told what nobody has": {
			versions: []client.Object{told("n1", operatorWriter, ""), told("n1", operatorWriter, "", a)},
			want:     []string{"rule 1: n1 told 10.0.0.0/27 by cilium-pool-operator, and it has no such block"},
		},
		"told what rests": {
			versions: []client.Object{podIPBlock(a, "n1", cooling), told("n1", operatorWriter, ""), told("n1", operatorWriter, "", a)},
			want:     []string{"rule 1: n1 told 10.0.0.0/27"},
		},
		"two are told the same": {
			versions: []client.Object{
				podIPBlock(a, "n1"), told("n1", operatorWriter, ""), told("n1", operatorWriter, "", a),
				podIPBlock(a, "n2"), told("n2", operatorWriter, ""), told("n2", operatorWriter, "", a),
			},
			want: []string{"rule 1: n2 told 10.0.0.0/27 by cilium-pool-operator, of which n1"},
		},
		"the agent gives back": {versions: []client.Object{
			podIPBlock(a, "n1"), podIPBlock(b, "n1"), told("n1", operatorWriter, ""), told("n1", operatorWriter, "10.0.0.1", a, b), going, told("n1", agentWriter, "10.0.0.1", a),
		}},
		"somebody else takes off": {
			versions: []client.Object{podIPBlock(a, "n1"), podIPBlock(b, "n1"), told("n1", operatorWriter, ""), told("n1", operatorWriter, "", a, b), told("n1", ciliumWriter, "", a)},
			want:     []string{"rule 2: 10.0.0.32/27 of n1 taken off by cilium-operator"},
		},
		"given back with a pod in it": {
			versions: []client.Object{podIPBlock(a, "n1"), podIPBlock(b, "n1"), told("n1", operatorWriter, ""), told("n1", operatorWriter, "", a, b), podAt("n1", "10.0.0.33"), told("n1", agentWriter, "", a)},
			want:     []string{"rule 2: 10.0.0.32/27 of n1 taken off by cilium-agent while pod p has 10.0.0.33"},
		},
		"given back with the router in it": {
			versions: []client.Object{podIPBlock(a, "n1"), podIPBlock(b, "n1"), told("n1", operatorWriter, ""), told("n1", operatorWriter, "10.0.0.40", a, b), told("n1", agentWriter, "10.0.0.40", a)},
			want:     []string{"rule 2: 10.0.0.32/27 of n1 taken off by cilium-agent while the agent itself has 10.0.0.40"},
		},
		"a block goes while it is told": {
			versions: []client.Object{podIPBlock(a, "n1"), told("n1", operatorWriter, ""), told("n1", operatorWriter, "", a)},
			gone:     podIPBlock(a, "n1"),
			want:     []string{"rule 1: block 10.0.0.0/27 of n1 deleted while n1 is told it"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWholeRules(inPools())
			seen := map[string]client.Object{}
			for i, o := range test.versions {
				key := string(kindOfObject(o)) + o.GetName()
				w.see(invariant.Change{Kind: kindOfObject(o), Name: o.GetName(), Version: uint64(i), Old: seen[key], New: o})
				seen[key] = o
			}
			if test.gone != nil {
				w.see(invariant.Change{Kind: kindOfObject(test.gone), Name: test.gone.GetName(), Old: test.gone})
			}
			if len(w.broken) != len(test.want) {
				t.Fatalf("broken %q, want %q", w.broken, test.want)
			}
			for i, want := range test.want {
				if !strings.HasPrefix(w.broken[i], want) {
					t.Errorf("broken %q, want %q", w.broken[i], want)
				}
			}
		})
	}
}

func kindOfObject(o client.Object) invariant.Kind {
	switch o.(type) {
	case *v1alpha1.PodIPBlock:
		return invariant.KindBlock
	case *corev1.Pod:
		return invariant.KindPod
	}
	return invariant.KindCiliumNode
}

func TestWholeRulesCountWriters(t *testing.T) {
	w := newWholeRules(inPools())
	var old client.Object
	for _, cn := range []*ciliumv2.CiliumNode{
		told("n1", operatorWriter, ""), told("n1", operatorWriter, "", "10.0.0.0/27"), told("n1", agentWriter, "10.0.0.1", "10.0.0.0/27"),
		told("n1", ciliumWriter, "", "10.0.0.0/27", "10.0.0.32/27"), told("n1", agentWriter, "", "10.0.0.0/27"),
	} {
		w.see(invariant.Change{Kind: invariant.KindCiliumNode, Name: "n1", Old: old, New: cn})
		old = cn
	}
	if diff := cmp.Diff(map[string]int{operatorWriter: 1, agentWriter: 1, ciliumWriter: 1}, w.writes); diff != "" {
		t.Error(diff)
	}
}

func TestNodeCIDRs(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{ipv4PodCIDR: "10.0.0.0/27", ipv6PodCIDR: "fd00::/122"}}}
	if got := nodeCIDRs(node); len(got) != 2 {
		t.Errorf("annotations say %v", got)
	}
	node.Spec.PodCIDRs = []string{"10.1.0.0/24"}
	if got := nodeCIDRs(node); len(got) != 1 || got[0].String() != "10.1.0.0/24" {
		t.Errorf("the spec says %v", got)
	}
}

func TestReasonsOfFailedAdds(t *testing.T) {
	for reason, test := range map[string]struct{ unseen, other bool }{
		"No more IPs available: all CIDR ranges are exhausted":                                        {},
		`unable to allocate from pool "default" (family ipv4): pool not (yet) available`:              {},
		"no IPs currently available on the node":                                                      {},
		`unable to determine IPAM pool for owner "default/p": resource "Pod" "default" "p" not found`: {unseen: true, other: true},
		"429 putEndpointIdTooManyRequests":                                                            {other: true},
	} {
		err := errors.New(reason)
		if notSeen(err) != test.unseen || len(otherReasons([]error{err})) == 1 != test.other {
			t.Errorf("%s: not seen %t, another reason %t", reason, notSeen(err), len(otherReasons([]error{err})) == 1)
		}
	}
}
