package whole

import (
	stdcmp "cmp"
	"context"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	iputil "github.com/cilium/cilium/pkg/ip"
	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
)

// withList returns a CiliumNode with a list that a manager wrote.
func withList(node, by, router string, cidrs ...string) *ciliumv2.CiliumNode {
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

// asking lets a manager request addresses of the pool default for an agent.
func asking(cn *ciliumv2.CiliumNode, by string, addresses int) *ciliumv2.CiliumNode {
	cn.Spec.IPAM.Pools.Requested = []ipamtypes.IPAMPoolRequest{{Pool: "default", Needed: ipamtypes.IPAMPoolDemand{IPv4Addrs: addresses}}}
	for i := range cn.ManagedFields {
		if cn.ManagedFields[i].Manager == "another" {
			cn.ManagedFields[i].Manager = by
		}
	}
	return cn
}

// parked returns a CiliumNode with a list that the operator wrote, and with some CIDRs parked.
func parked(node, some string, cidrs ...string) *ciliumv2.CiliumNode {
	cn, list := withList(node, OperatorWriter, "", strings.Fields(some)...), withList(node, OperatorWriter, "", cidrs...)
	cn.Spec.IPAM.Pools.Allocated[0].Pool += parkedSuffix
	if len(cidrs) > 0 {
		cn.Spec.IPAM.Pools.Allocated = append(list.Spec.IPAM.Pools.Allocated, cn.Spec.IPAM.Pools.Allocated...)
	}
	return cn
}

func podIPBlock(cidr, node string, conditions ...metav1.Condition) *v1alpha1.PodIPBlock {
	b := &v1alpha1.PodIPBlock{ObjectMeta: metav1.ObjectMeta{Name: strings.ReplaceAll(cidr, "/", "-")}}
	b.Spec.CIDR, b.Spec.NodeName, b.Status.Conditions = cidr, node, conditions
	return b
}

func podAt(node, address string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	p.Spec.NodeName, p.Status.PodIPs = node, []corev1.PodIP{{IP: address}}
	return p
}

func TestRulesOfPools(t *testing.T) {
	const a, b = "10.0.0.0/27", "10.0.0.32/27"
	cooling := metav1.Condition{Type: v1alpha1.BlockCoolingDown, Status: metav1.ConditionTrue}
	draining := metav1.Condition{Type: v1alpha1.BlockDraining, Status: metav1.ConditionTrue}
	going := podAt("n1", "10.0.0.33")
	now := metav1.Now()
	going.DeletionTimestamp = &now
	for name, test := range map[string]struct {
		versions []client.Object
		gone     client.Object
		want     []string
	}{
		"assigned its own block": {versions: []client.Object{podIPBlock(a, "n1"), withList("n1", OperatorWriter, ""), withList("n1", OperatorWriter, "", a)}},
		"assigned no existing block": {
			versions: []client.Object{withList("n1", OperatorWriter, ""), withList("n1", OperatorWriter, "", a)},
			want:     []string{"rule 1, CiliumNode n1: assigned 10.0.0.0/27 by cilium-pool-operator, and it has no such block"},
		},
		"assigned a cooling block": {
			versions: []client.Object{podIPBlock(a, "n1", cooling), withList("n1", OperatorWriter, ""), withList("n1", OperatorWriter, "", a)},
			want:     []string{"rule 1, CiliumNode n1: assigned 10.0.0.0/27"},
		},
		"assigned by a late write a block that cools down since": {versions: []client.Object{
			withList("n1", OperatorWriter, ""), podIPBlock(a, "n1"), podIPBlock(a, "n1", cooling), withList("n1", OperatorWriter, "", a),
		}},
		"created over what is assigned to another": {
			versions: []client.Object{withList("n1", AgentWriter, "", a), podIPBlock("10.0.0.0/26", "n2")},
			want:     []string{"rule 1, PodIPBlock 10.0.0.0-26: 10.0.0.0/26 created for n2 while n1 is assigned a part of it"},
		},
		"created over a block of another, and assigned": {
			versions: []client.Object{podIPBlock(a, "n1"), withList("n2", OperatorWriter, ""), withList("n1", AgentWriter, "", a), podIPBlock("10.0.0.0/26", "n2"), withList("n2", OperatorWriter, "", "10.0.0.0/26")},
			want:     []string{"rule 1, CiliumNode n2: assigned 10.0.0.0/26 by cilium-pool-operator, which overlaps a CIDR of n1"},
		},
		"two nodes are assigned the same": {
			versions: []client.Object{
				podIPBlock(a, "n1"), withList("n1", OperatorWriter, ""), withList("n1", OperatorWriter, "", a),
				podIPBlock(a, "n2"), withList("n2", OperatorWriter, ""), withList("n2", OperatorWriter, "", a),
			},
			want: []string{"rule 1, CiliumNode n2: assigned 10.0.0.0/27 by cilium-pool-operator, which overlaps a CIDR of n1"},
		},
		"the agent returns a block": {versions: []client.Object{
			podIPBlock(a, "n1"), podIPBlock(b, "n1"), withList("n1", OperatorWriter, ""), withList("n1", OperatorWriter, "10.0.0.1", a, b), going, withList("n1", AgentWriter, "10.0.0.1", a),
		}},
		"another writer removes one": {
			versions: []client.Object{podIPBlock(a, "n1"), podIPBlock(b, "n1"), withList("n1", OperatorWriter, ""), withList("n1", OperatorWriter, "", a, b), withList("n1", CiliumWriter, "", a)},
			want:     []string{"rule 2, CiliumNode n1: 10.0.0.32/27 removed by cilium-operator"},
		},
		"returned with a pod in it": {
			versions: []client.Object{podIPBlock(a, "n1"), podIPBlock(b, "n1"), withList("n1", OperatorWriter, ""), withList("n1", OperatorWriter, "", a, b), podAt("n1", "10.0.0.33"), withList("n1", AgentWriter, "", a)},
			want:     []string{"rule 2, CiliumNode n1: 10.0.0.32/27 removed by cilium-agent while pod p has 10.0.0.33"},
		},
		"returned with the router in it": {
			versions: []client.Object{podIPBlock(a, "n1"), podIPBlock(b, "n1"), withList("n1", OperatorWriter, ""), withList("n1", OperatorWriter, "10.0.0.40", a, b), withList("n1", AgentWriter, "10.0.0.40", a)},
			want:     []string{"rule 2, CiliumNode n1: 10.0.0.32/27 removed by cilium-agent while the agent itself has 10.0.0.40"},
		},
		"returned with the router in it, of a family that the agent no longer runs": {versions: []client.Object{
			podIPBlock("fd00::/123", "n1"), withList("n1", OperatorWriter, ""), withList("n1", OperatorWriter, "fd00::7", "fd00::/123"),
			asking(withList("n1", AgentWriter, "fd00::7"), AgentWriter, 1),
		}},
		"returned with the router in it, of a family that the agent runs": {
			versions: []client.Object{
				podIPBlock(a, "n1"), withList("n1", OperatorWriter, ""), withList("n1", OperatorWriter, "10.0.0.7", a), asking(withList("n1", AgentWriter, "10.0.0.7"), AgentWriter, 1),
			},
			want: []string{"rule 2, CiliumNode n1: 10.0.0.0/27 removed by cilium-agent while the agent itself has 10.0.0.7"},
		},
		"a part of its own is assigned beside it": {
			versions: []client.Object{podIPBlock(a, "n1"), podIPBlock("10.0.0.0/28", "n1"), withList("n1", OperatorWriter, "", a), withList("n1", OperatorWriter, "", a, "10.0.0.0/28")},
			want:     []string{"rule 1, CiliumNode n1: assigned 10.0.0.0/28 by cilium-pool-operator beside a CIDR that it overlaps"},
		},
		"written in another order": {
			versions: []client.Object{podIPBlock(a, "n1"), podIPBlock(b, "n1"), withList("n1", AgentWriter, "", a), withList("n1", OperatorWriter, "", b, a)},
			want:     []string{"rule 3, CiliumNode n1: the list was in order"},
		},
		"requests are changed": {
			versions: []client.Object{withList("n1", AgentWriter, ""), asking(withList("n1", AgentWriter, ""), AgentWriter, 1), asking(withList("n1", OperatorWriter, ""), OperatorWriter, 2)},
			want:     []string{"rule 7, CiliumNode n1: requests of the agent were changed by cilium-pool-operator"},
		},
		"parked as it drains": {versions: []client.Object{
			podIPBlock(a, "n1", draining), podIPBlock(b, "n1"), withList("n1", AgentWriter, "", a, b), parked("n1", a, b),
		}},
		"parked in service": {
			versions: []client.Object{podIPBlock(a, "n1"), podIPBlock(b, "n1"), withList("n1", AgentWriter, "", a, b), parked("n1", a, b)},
			want:     []string{"rule 2, CiliumNode n1: 10.0.0.0/27 of pool default was parked, and does not drain"},
		},
		"all are parked": {
			versions: []client.Object{podIPBlock(a, "n1", draining), podIPBlock(b, "n1", draining), withList("n1", AgentWriter, "", a, b), parked("n1", a), parked("n1", a+" "+b)},
			want: []string{
				"rule 2, CiliumNode n1: 10.0.0.32/27 removed by", "rule 2, CiliumNode n1: 10.0.0.0/27 of pool default was parked, and no entry",
				"rule 2, CiliumNode n1: [10.0.0.0/27 of pool default 10.0.0.32/27 of pool default] are parked at once", "rule 2, CiliumNode n1: 10.0.0.32/27 of pool default was parked, and no entry",
			},
		},
		"a block is deleted while it is assigned": {
			versions: []client.Object{podIPBlock(a, "n1"), withList("n1", OperatorWriter, ""), withList("n1", OperatorWriter, "", a)},
			gone:     podIPBlock(a, "n1"),
			want:     []string{"rule 1, PodIPBlock 10.0.0.0-27: 10.0.0.0/27 of n1 deleted while assigned to n1"},
		},
	} {
		t.Run(name, func(t *testing.T) { judge(t, New(InPools()), test.versions, test.gone, test.want) })
	}
}

// A node agent removes only closed CIDRs, and none with a pod. Any number may be closed.
func TestRulesOfNodeAgents(t *testing.T) {
	const a, b = "10.0.0.0/27", "10.0.0.32/27"
	draining := metav1.Condition{Type: v1alpha1.BlockDraining, Status: metav1.ConditionTrue}
	ended := podAt("n1", "10.0.0.33")
	ended.Status.Phase = corev1.PodSucceeded
	blocks := []client.Object{podIPBlock(a, "n1", draining), podIPBlock(b, "n1", draining), withList("n1", OperatorWriter, "", a, b)}
	returned := withList("n1", NodeAgentWriter, "")
	for name, test := range map[string]struct {
		versions []client.Object
		want     []string
	}{
		"returns closed blocks":       {versions: []client.Object{parked("n1", a+" "+b), ended, returned}},
		"returns an open block":       {[]client.Object{withList("n1", NodeAgentWriter, "", a)}, []string{"rule 2, CiliumNode n1: 10.0.0.32/27 removed by cilium-pool-node-agent while pods may"}},
		"returns a block with a pod":  {[]client.Object{parked("n1", b, a), podAt("n1", "10.0.0.33"), withList("n1", NodeAgentWriter, "", a)}, []string{"rule 2, CiliumNode n1: 10.0.0.32/27 removed by cilium-pool-node-agent while pod p"}},
		"the operator takes one away": {[]client.Object{parked("n1", b, a), withList("n1", OperatorWriter, "", a)}, []string{"rule 2, CiliumNode n1: 10.0.0.32/27 removed by cilium-pool-operator"}},
	} {
		t.Run(name, func(t *testing.T) {
			judge(t, New(ByNodeAgent()), append(slices.Clone(blocks), test.versions...), nil, test.want)
		})
	}
}

// judge passes versions, and then the deletion of an object, to rules that must find exactly the
// wanted violations. Versions are numbered from 1.
func judge(t *testing.T, w *Rules, versions []client.Object, gone client.Object, want []string) {
	t.Helper()
	seen := map[string]client.Object{}
	for i, o := range versions {
		o.SetResourceVersion(strconv.Itoa(i + 1))
		key := string(kindOfObject(o)) + o.GetName()
		w.See(invariant.Change{Kind: kindOfObject(o), Name: o.GetName(), Version: uint64(i + 1), Old: seen[key], New: o})
		seen[key] = o
	}
	if gone != nil {
		w.See(invariant.Change{Kind: kindOfObject(gone), Name: gone.GetName(), Old: gone})
	}
	finds(t, w, want)
}

// finds checks the violations that rules have found, by how their texts begin.
func finds(t *testing.T, w *Rules, want []string) {
	t.Helper()
	found := w.Violations()
	if len(found) != len(want) {
		t.Fatalf("found %v, want %q", found, want)
	}
	for i := range want {
		if !strings.HasPrefix(found[i].String(), want[i]) {
			t.Errorf("found %q, want %q", found[i], want[i])
		}
	}
}

// TestDeletedAndMadeAgain: a list that goes with its object takes no address in use, and the
// operator makes an object with its former content, or a block.
func TestDeletedAndMadeAgain(t *testing.T) {
	const a, b = "10.0.0.0/27", "10.0.0.32/27"
	cooling := metav1.Condition{Type: v1alpha1.BlockCoolingDown, Status: metav1.ConditionTrue}
	pool := &v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	pool.Spec.IPv4 = &v1alpha1.IPv4Ranges{BlockSize: 27, CIDRs: []v1alpha1.PoolCIDR{{CIDR: "10.0.0.0/24"}}}
	older := withList("n1", AgentWriter, "", a)
	older.OwnerReferences = []metav1.OwnerReference{{Kind: "Node", Name: "n1", UID: "older"}}
	for name, test := range map[string]struct {
		was   *ciliumv2.CiliumNode
		pod   string // its address
		then  []client.Object
		again *ciliumv2.CiliumNode
		want  []string
	}{
		"put back":                          {was: withList("n1", AgentWriter, "", a), again: withList("n1", OperatorWriter, "", a)},
		"put back, with its blocks":         {was: withList("n1", AgentWriter, ""), again: withList("n1", OperatorWriter, "", a)},
		"put back, with an entry of a user": {was: withList("n1", AgentWriter, "", a, b), again: withList("n1", OperatorWriter, "", a, b)},
		"put back, with more": {
			was: withList("n1", AgentWriter, "", a), again: withList("n1", OperatorWriter, "", a, b),
			want: []string{"rule 1, CiliumNode n1: assigned 10.0.0.32/27 by cilium-pool-operator, and it has no such block"},
		},
		"put back before its block": {
			was: withList("n1", AgentWriter, "", a, b), then: []client.Object{pool}, again: withList("n1", OperatorWriter, "", a, b),
			want: []string{"rule 1, CiliumNode n1: assigned 10.0.0.32/27 by cilium-pool-operator, and it has no such block"},
		},
		"put back for another's block": {
			was: withList("n1", AgentWriter, "", a, b), then: []client.Object{podIPBlock(b, "n2")}, again: withList("n1", OperatorWriter, "", a, b),
			want: []string{"rule 1, CiliumNode n1: assigned 10.0.0.32/27 by cilium-pool-operator, and it has no such block"},
		},
		"put back as its block cools down": {
			was: withList("n1", AgentWriter, "", a), then: []client.Object{podIPBlock(a, "n1", cooling)}, again: withList("n1", OperatorWriter, "", a),
			want: []string{"rule 1, CiliumNode n1: assigned 10.0.0.0/27 by cilium-pool-operator, and it has no such block"},
		},
		"put back under another Node": {
			was: withList("n1", AgentWriter, "", b), then: []client.Object{nil, node("n1")}, again: withList("n1", OperatorWriter, "", b),
			want: []string{"rule 1, CiliumNode n1: assigned 10.0.0.32/27 by cilium-pool-operator, and it has no such block"},
		},
		"made by hand": {was: withList("n1", AgentWriter, "", a), again: withList("n1", "kubectl", "", b)},
		"deleted under a pod": {
			was: withList("n1", AgentWriter, "", a), pod: "10.0.0.1",
			want: []string{"rule 2, CiliumNode n1: 10.0.0.0/27 deleted with its object, under its Node, while pod p has 10.0.0.1"},
		},
		"deleted under its agent": {
			was:  withList("n1", AgentWriter, "10.0.0.1", a),
			want: []string{"rule 2, CiliumNode n1: 10.0.0.0/27 deleted with its object, under its Node, while the agent itself has 10.0.0.1"},
		},
		"deleted, of an older Node": {was: older, pod: "10.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			w := New(InPools())
			see := func(kind invariant.Kind, old, now client.Object) {
				name := stdcmp.Or(now, old).GetName()
				w.See(invariant.Change{Kind: kind, Name: name, Old: old, New: now})
			}
			see(invariant.KindNode, nil, node("n1"))
			see(invariant.KindBlock, nil, podIPBlock(a, "n1"))
			see(invariant.KindCiliumNode, nil, test.was)
			if test.pod != "" {
				see(invariant.KindPod, nil, podAt("n1", test.pod))
			}
			see(invariant.KindCiliumNode, test.was, nil)
			for _, o := range test.then {
				if o == nil {
					see(invariant.KindNode, node("n1"), nil)
				} else {
					see(kindOfObject(o), nil, o)
				}
			}
			if test.again != nil {
				see(invariant.KindCiliumNode, nil, test.again)
			}
			finds(t, w, test.want)
		})
	}
}

// TestJudges: of a Checker's findings only violations about blocks count, wherever agents are
// assigned whole ones, and none that Rules judge by themselves.
func TestJudges(t *testing.T) {
	for v, want := range map[invariant.Violation]bool{
		{Rule: 1, Subject: "PodIPBlock 10.0.0.0-27", Text: "deleted without having cooled down"}:                true,
		{Rule: 1, Subject: "PodIPBlock 10.0.0.0-27", Text: "deleted after a cooldown of 1s, which must be 10s"}: true,
		{Rule: 8, Subject: "PodIPBlock 10.0.0.0-27", Text: "written at rest"}:                                   true,
		{Rule: 1, Subject: "PodIPBlock 10.0.0.0-27", Text: "deleted while x of it stand in the pool of node n"}: false,
		{Rule: 3, Subject: "CiliumNode n1", Text: "podCIDRs lists 10.0.0.0/27 twice"}:                           false,
	} {
		if got := Judges(v); got != want {
			t.Errorf("%s: counts %t, want %t", v, got, want)
		}
	}
}

func kindOfObject(o client.Object) invariant.Kind {
	switch o.(type) {
	case *v1alpha1.PodIPBlock:
		return invariant.KindBlock
	case *v1alpha1.PodIPPool:
		return invariant.KindPool
	case *corev1.Pod:
		return invariant.KindPod
	case *corev1.Node:
		return invariant.KindNode
	}
	return invariant.KindCiliumNode
}

func TestWritersAreCounted(t *testing.T) {
	w := New(InPools())
	var old client.Object
	for _, cn := range []*ciliumv2.CiliumNode{
		withList("n1", OperatorWriter, ""), withList("n1", OperatorWriter, "", "10.0.0.0/27"), withList("n1", AgentWriter, "10.0.0.1", "10.0.0.0/27"),
		withList("n1", CiliumWriter, "", "10.0.0.0/27", "10.0.0.32/27"), withList("n1", AgentWriter, "", "10.0.0.0/27"),
	} {
		w.See(invariant.Change{Kind: invariant.KindCiliumNode, Name: "n1", Old: old, New: cn})
		old = cn
	}
	if diff := cmp.Diff(map[string]int{OperatorWriter: 1, AgentWriter: 1, CiliumWriter: 1}, w.Writes()); diff != "" {
		t.Error(diff)
	}
}

// node returns a Node that assigns CIDRs to its agent.
func node(name string, cidrs ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Spec.PodCIDRs = append(n.Spec.PodCIDRs, cidrs...)
	return n
}

func TestRulesOfNodes(t *testing.T) {
	const a, b = "10.0.0.0/27", "10.0.0.32/27"
	for name, test := range map[string]struct {
		versions []client.Object
		gone     client.Object
		want     []string
	}{
		"assigned its own block, and deleted": {versions: []client.Object{node("n1"), podIPBlock(a, "n1"), node("n1", a), podAt("n1", "10.0.0.1")}, gone: node("n1", a)},
		"assigned no existing block": {
			versions: []client.Object{node("n1"), node("n1", a)},
			want:     []string{"rule 1, Node n1: assigned 10.0.0.0/27 by an unknown writer, and it has no such block"},
		},
		"two nodes are assigned the same": {
			versions: []client.Object{node("n1"), node("n2"), podIPBlock(a, "n1"), node("n1", a), node("n2", a)},
			want: []string{
				"rule 1, Node n2: assigned 10.0.0.0/27 by an unknown writer, which overlaps a CIDR of n1",
				"rule 1, Node n2: assigned 10.0.0.0/27 by an unknown writer, and it has no such block",
			},
		},
		"assigned another": {
			versions: []client.Object{node("n1"), podIPBlock(a, "n1"), podIPBlock(b, "n1"), node("n1", a), podAt("n1", "10.0.0.1"), node("n1", b)},
			want: []string{
				"rule 2, Node n1: 10.0.0.0/27 removed by an unknown writer",
				"rule 2, Node n1: 10.0.0.0/27 removed by an unknown writer while pod p has 10.0.0.1",
			},
		},
	} {
		t.Run(name, func(t *testing.T) { judge(t, New(OnNode()), test.versions, test.gone, test.want) })
	}
}

func TestAgentsHoldWhatTheyAreAssigned(t *testing.T) {
	w := New(InPools())
	w.See(invariant.Change{Kind: invariant.KindCiliumNode, Name: "n1", New: withList("n1", AgentWriter, "", "10.0.0.0/27")})
	inside, outside := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.33")
	ask := func(answers ...map[string][]netip.Addr) {
		err := w.AskAgents(t.Context(), func() map[string][]netip.Addr {
			answer := answers[0]
			answers = answers[1:]
			return answer
		}, func(context.Context) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
	}
	ask(map[string][]netip.Addr{"n1": {inside}, "unknown": {outside}})
	ask(map[string][]netip.Addr{"n1": {outside}}, map[string][]netip.Addr{"n1": {inside}})
	if found := w.Violations(); len(found) > 0 {
		t.Fatalf("found %v", found)
	}
	ask(map[string][]netip.Addr{"n1": {inside, outside}}, map[string][]netip.Addr{"n1": {inside, outside}})
	if found := w.Violations(); len(found) != 1 || found[0].Rule != 2 || w.Asked() != 3 {
		t.Fatalf("found %v after %d questions", found, w.Asked())
	}
}
