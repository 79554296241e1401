package integration

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
)

// keepFew keeps the pods numbered 0, 20, 40, …, with scattered addresses.
func keepFew(name string) bool { return strings.HasSuffix(name, "0") && !strings.HasSuffix(name, "10") }

func TestReclaimCompactsScatteredUse(t *testing.T) {
	e := newServed(t)
	e.node("n1", nil)
	e.load("n1", "load", 100)
	e.hasBlocks("n1", 5)
	few := func(name string) bool { return strings.HasSuffix(name, "-7") || strings.HasSuffix(name, "-42") }
	e.DeletePods("load", few)
	// One block in service remains, and the addresses of the two pods and the router.
	e.eventuallyOn("the node is down to what is in use", "n1", func(cn *ciliumv2.CiliumNode) error {
		if n := len(cn.Spec.IPAM.Pool); n > 33 || len(cn.Status.IPAM.ReleaseIPs) > 0 {
			return fmt.Errorf("%d addresses, release-ips %v", n, cn.Status.IPAM.ReleaseIPs)
		}
		return nil
	})
	e.usedArePublished("n1")
	e.DeletePods("load", nil)
	e.hasBlocks("n1", 1)
	e.usedArePublished("n1")
	for _, reason := range []string{event.ReasonBlockClaimed, event.ReasonBlockDraining, event.ReasonBlockCoolingDown} {
		awaitEvent(e, "n1", reason)
	}
}

// awaitEvent waits for an event on a Node about one of its blocks, as kubectl describe node finds it.
func awaitEvent(e *env, name, reason string) {
	e.TB.Helper()
	node := &corev1.Node{}
	e.Must(e.Client.Get(e.Ctx, client.ObjectKey{Name: name}, node))
	e.Eventually("event "+reason+" on Node "+name, func() error {
		list := &corev1.EventList{}
		if err := e.Client.List(e.Ctx, list, client.MatchingFields{
			"involvedObject.kind": "Node", "involvedObject.name": name, "involvedObject.uid": string(node.UID), "reason": reason,
		}); err != nil {
			return err
		}
		for _, ev := range list.Items {
			cidr, named := strings.CutPrefix(ev.Message, "block ")
			cidr, _, _ = strings.Cut(cidr, " ")
			if block, err := netip.ParsePrefix(cidr); named && err == nil && strings.Contains(ev.Message, " of pool all on node "+name+": ") &&
				ev.Related != nil && ev.Related.Kind == "PodIPBlock" && ev.Related.Name == crd.BlockName(block) {
				return nil
			}
		}
		return fmt.Errorf("there is none among %v", list.Items)
	})
}

// usedArePublished checks that every address the agent has allocated is in the pool.
func (e *env) usedArePublished(node string) {
	e.TB.Helper()
	cn := e.readCiliumNode(node)
	for addr, owner := range e.held(node) {
		if _, ok := cn.Spec.IPAM.Pool[addr.String()]; !ok {
			e.TB.Errorf("%s, used by %s on %s, is not in the pool", addr, owner, node)
		}
	}
}

func TestReturnedBlockCoolsDown(t *testing.T) {
	e := newEnv(t)
	s := quick()
	s.Defaults.Cooldown = 5 * time.Second
	e.start(s)
	e.pool("all", nil, "10.1.0.0/26") // two blocks
	e.node("n1", nil)
	e.load("n1", "load", 30)
	e.DeletePods("load", nil)
	var since time.Time
	e.Eventually("a block cools down", func() error {
		for _, b := range e.Blocks("n1") {
			if c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.BlockCoolingDown); c != nil {
				since = c.LastTransitionTime.Time
				return nil
			}
		}
		return fmt.Errorf("no block does")
	})
	e.node("n2", nil)
	e.hasBlocks("n2", 1)
	got := e.Blocks("n2")[0]
	if cooldown := got.CreationTimestamp.Sub(since); cooldown < 5*time.Second {
		t.Errorf("n2 got the block after a cooldown of %v, want 5s", cooldown)
	}
}

func TestLastBlockAndRouterBlockStay(t *testing.T) {
	e := newServed(t)
	a := e.node("n1", nil)
	e.ready(a)
	b := e.Blocks("n1")[0]
	e.Delete(&b)
	e.eventuallyOn("the free addresses of the deleted block are gone, the router's stays", "n1", func(cn *ciliumv2.CiliumNode) error {
		left := 0
		for key := range cn.Spec.IPAM.Pool {
			if netip.MustParsePrefix(b.Spec.CIDR).Contains(netip.MustParseAddr(key)) {
				left++
			}
		}
		if left != 1 {
			return fmt.Errorf("%d are left", left)
		}
		return nil
	})
	e.usedArePublished("n1")
	if n := len(e.Blocks("n1")); n != 2 {
		t.Errorf("the node has %d blocks, want the draining one and its replacement", n)
	}
}
