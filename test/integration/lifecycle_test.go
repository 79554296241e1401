package integration

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	iputil "github.com/cilium/cilium/pkg/ip"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
)

func TestCiliumNodeDeletedUnderARunningAgent(t *testing.T) {
	e := newServed(t)
	e.node("n1", nil)
	e.load("n1", "load", 40)
	e.hasBlocks("n1", 2)
	end := e.breaks(3, "CiliumNode n1", "came to list 172.16.0.0/24")
	foreign := client.RawPatch(types.JSONPatchType, []byte(`[{"op":"add","path":"/spec/ipam/podCIDRs/-","value":"172.16.0.0/24"},
		{"op":"add","path":"/spec/ipam/pools","value":{"allocated":[{"pool":"blue","cidrs":["172.17.0.0/24"]}]}}]`))
	e.Must(e.Client.Patch(e.Ctx, e.readCiliumNode("n1"), foreign))
	end()
	before := e.readCiliumNode("n1")
	e.deleteCiliumNode(before)
	e.event("n1", event.ReasonCiliumNodeRestored)
	e.eventuallyOn("it is back, the same", "n1", func(after *ciliumv2.CiliumNode) error {
		if after.UID == before.UID {
			return fmt.Errorf("it is the old one")
		}
		if !maps.Equal(after.Spec.IPAM.Pool, before.Spec.IPAM.Pool) {
			return fmt.Errorf("%d addresses, had %d", len(after.Spec.IPAM.Pool), len(before.Spec.IPAM.Pool))
		}
		for _, cn := range []*ciliumv2.CiliumNode{before, after} { // foreign ones come first now
			slices.SortFunc(cn.Spec.IPAM.PodCIDRs, func(a, b iputil.Prefix) int { return a.Compare(b.Prefix) })
		}
		if diff := cmp.Diff([]any{before.Spec.IPAM.PodCIDRs, before.Spec.IPAM.Pools}, []any{after.Spec.IPAM.PodCIDRs, after.Spec.IPAM.Pools}, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
			return fmt.Errorf("podCIDRs and pools (-before +after): %s", diff)
		}
		if !slices.Equal(after.Spec.Addresses, before.Spec.Addresses) {
			return fmt.Errorf("addresses %v, had %v", after.Spec.Addresses, before.Spec.Addresses)
		}
		if len(after.Status.IPAM.Used) != 41 || len(after.Status.IPAM.ReleaseIPs) != 0 {
			return fmt.Errorf("the agent reports %d used; release-ips %v", len(after.Status.IPAM.Used), after.Status.IPAM.ReleaseIPs)
		}
		return nil
	})
	e.usedArePublished("n1")
}

func TestCiliumNodeDeletedWithoutAnOperator(t *testing.T) {
	e := newEnv(t)
	op := e.start(quick())
	e.pool("all", nil, "10.1.0.0/24")
	e.node("n1", nil)
	e.load("n1", "load", 10)
	e.hasBlocks("n1", 1)
	op.stop()
	cn := e.readCiliumNode("n1")
	e.deleteCiliumNode(cn)
	e.start(quick())
	e.event("n1", event.ReasonCiliumNodeRemade)
	e.hasBlocks("n1", 1)
	e.usedArePublished("n1")
}

func TestNodeGoneAndBack(t *testing.T) {
	e := newEnv(t)
	s := quick()
	s.Defaults.NodeGoneCooldown = 20 * time.Second
	e.start(s)
	e.pool("all", nil, "10.1.0.0/24")
	e.bareNode("n1", nil)
	e.hasBlocks("n1", 1)
	block := e.Blocks("n1")[0]
	e.Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	e.Eventually("its CiliumNode goes and its block cools down", func() error {
		if _, err := e.ciliumNode("n1"); !apierrors.IsNotFound(err) {
			return fmt.Errorf("CiliumNode: %v", err)
		}
		for _, b := range e.Blocks("n1") {
			c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.BlockCoolingDown)
			if c == nil || c.Reason != "NodeGone" {
				return fmt.Errorf("%s: %v", b.Name, b.Status.Conditions)
			}
		}
		return nil
	})
	e.bareNode("n2", nil)
	e.hasBlocks("n2", 1)
	if got := e.Blocks("n2")[0].Spec.CIDR; got == block.Spec.CIDR {
		t.Errorf("n2 has %s, which has not cooled down", got)
	}
	e.bareNode("n1", nil)
	e.hasBlocks("n1", 1)
	if got := e.Blocks("n1")[0]; got.UID != block.UID {
		t.Errorf("n1 came back and has %s, want its old block %s", got.Name, block.Name)
	}
}

func TestAgentRestartsMidHandshake(t *testing.T) {
	e := newEnv(t)
	s := quick()
	s.Defaults.Policy.AckHold = 2 * time.Second
	e.start(s)
	e.pool("all", nil, "10.1.0.0/24")
	a := e.node("n1", nil)
	e.load("n1", "load", 60)
	e.hasBlocks("n1", 3)
	e.DeletePods("load", keepFew)
	const kept = 5
	e.onNode("addresses are marked, and all other pods gone", "n1", func(cn *ciliumv2.CiliumNode) bool {
		return len(cn.Status.IPAM.ReleaseIPs) != 0 && len(a.Endpoints()) == kept
	})
	for range 3 {
		e.restart(a)
	}
	if after := len(a.Endpoints()); after != kept {
		t.Errorf("%d endpoints after the restarts, %d before", after, kept)
	}
	e.usedArePublished("n1")
}

func TestEmptyReportIsNotTrusted(t *testing.T) {
	e := newServed(t)
	e.bareNode("n1", nil)
	e.hasBlocks("n1", 1)
	e.Create(&v1alpha1.PodIPBlock{ObjectMeta: metav1.ObjectMeta{Name: "10.1.0.64-27"},
		Spec: v1alpha1.PodIPBlockSpec{CIDR: "10.1.0.64/27", PoolName: "all", NodeName: "n1"}})
	e.hasBlocks("n1", 2)
	// The operator makes a settled agent report that has reported no address, by a mark on an
	// address that the agent does not have. No address of its pool may be marked.
	e.AgentPod("n1") // which runs, and never reports
	e.never("an address is marked without a report", func() bool {
		cn, err := e.ciliumNode("n1")
		if err != nil {
			return false
		}
		for addr := range cn.Status.IPAM.ReleaseIPs {
			if _, published := cn.Spec.IPAM.Pool[addr]; published {
				return true
			}
		}
		return false
	})
	e.hasBlocks("n1", 2)
}

// never fails the test if the event happens within two seconds, several times the delays of
// quick.
func (e *env) never(what string, happens func() bool) {
	e.TB.Helper()
	deadline := time.Now().Add(2 * time.Second)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for time.Now().Before(deadline) {
		if happens() {
			e.TB.Fatalf("%s", what)
		}
		<-tick.C
	}
}

func TestForciblyRemovedBlockIsRecreated(t *testing.T) {
	e := newServed(t)
	e.node("n1", nil)
	e.load("n1", "load", 10)
	e.hasBlocks("n1", 1)
	b := e.Blocks("n1")[0]
	end := e.breaks(1, "PodIPBlock "+b.Name, "deleted")
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
	e.Delete(&b)
	e.Must(e.Client.Patch(e.Ctx, &b, patch))
	end()
	e.event(b.Name, event.ReasonBlockRemade)
	e.hasBlocks("n1", 1)
	e.usedArePublished("n1")
}

func TestForeignContentStays(t *testing.T) {
	e := newEnv(t)
	e.start(quick())
	e.bareNode("n1", nil)
	end := e.breaks(3, "CiliumNode n1", "came to list 172.16.0.0/24")
	e.Create(ciliumNodeWith("n1", []string{"172.16.0.5", "172.16.0.6", "10.1.0.40"}, []string{"172.16.0.0/24"}))
	end()
	e.pool("all", nil, "10.1.0.0/24")
	e.onNode("n1 has its block beside what was there", "n1", func(cn *ciliumv2.CiliumNode) bool {
		return len(cn.Spec.IPAM.Pool) == 33 && len(cn.Spec.IPAM.PodCIDRs) == 2 && cn.Spec.IPAM.PodCIDRs[0].String() == "172.16.0.0/24"
	})
	e.node("n2", nil)
	e.node("n3", nil)
	e.awaitBlocks("n2 has a block", "n2", 1, 1, nil)
	e.awaitBlocks("n3 has a block", "n3", 1, 1, nil)
	for _, b := range append(e.Blocks("n2"), e.Blocks("n3")...) {
		if b.Spec.CIDR == "10.1.0.32/27" {
			t.Errorf("%s was claimed, though 10.1.0.40 in it stands in n1's pool", b.Spec.CIDR)
		}
	}
}
