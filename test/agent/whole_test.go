package agent

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/test/agent/multipool"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/whole"
)

// assign lists CIDRs in the CiliumNode, as the operator would.
func (b *bed) assign(cidrs string) {
	b.t.Helper()
	b.patch(false, `{"spec":{"ipam":{"pools":{"allocated":[{"pool":"default","cidrs":[%s]}]}}}}`, cidrs)
}

func (b *bed) assigned() []netip.Prefix { return whole.AssignedTo(b.get()) }

func (b *bed) requests() int {
	requested := b.get().Spec.IPAM.Pools.Requested
	if len(requested) == 0 {
		return 0
	}
	return requested[0].Needed.IPv4Addrs
}

func TestMultiPoolAgent(t *testing.T) {
	b := newBed(t, Options{IPAM: MultiPool, Health: true})
	b.eventually("it requests its reserve", func() bool { return b.requests() == 8 })
	b.assign(`"10.0.0.0/28"`)
	b.waitReady()
	b.eventually("it requests more than its own two addresses", func() bool { return b.requests() == 16 })

	var last netip.Addr
	for i := range 12 {
		last = b.add(fmt.Sprintf("p%d", i))
	}
	if _, _, err := b.agent.Add(b.ctx, podNamed("more")); !errors.Is(err, multipool.ErrExhausted) {
		t.Errorf("ADD to a full block: %v", err)
	}
	b.eventually("it also requests one for the pod that waits", func() bool { return b.requests() == 24 })
	b.assign(`"10.0.0.0/28","10.0.0.16/28"`)
	b.eventually("the pod that waits gets an address", func() bool {
		_, _, err := b.agent.Add(b.ctx, podNamed("more"))
		return err == nil
	})

	harness.Must(t, b.agent.Restart(b.ctx))
	if owner := b.agent.Addresses()[last]; owner != "default/p11"+restoredOwner {
		t.Errorf("after the restart %s is of %q", last, owner)
	}
	for _, pod := range []string{"more", "p10", "p11"} {
		harness.Must(t, b.agent.Del(b.ctx, "default", pod))
	}
	b.eventually("it still requests the reserve", func() bool { return b.requests() == 24 && len(b.assigned()) == 2 })
	for i := range 10 {
		harness.Must(t, b.agent.Del(b.ctx, "default", fmt.Sprintf("p%d", i)))
	}
	// 16 addresses are more than one block has.
	b.eventually("it requests as many as at first", func() bool { return b.requests() == 16 })
	b.assign(`"10.0.0.0/28","10.0.0.16/28","10.0.0.32/28"`)
	if err := b.agent.Restart(b.ctx); err != nil { // it sees all three before it writes
		t.Fatal(err)
	}
	b.eventually("it returns the last block", func() bool {
		return slices.Equal(b.assigned(), []netip.Prefix{netip.MustParsePrefix("10.0.0.0/28"), netip.MustParsePrefix("10.0.0.16/28")})
	})
}

// A pod has its addresses of the pools that its annotations name, also after a restart.
func TestPoolsOfPods(t *testing.T) {
	b := newBed(t, Options{IPAM: MultiPool, Families: []Family{IPv6, IPv4}, PreAllocate: map[string]int{"default": 1, "blue": 1}})
	requests := func(pool string, v4, v6 int) ipamtypes.IPAMPoolRequest {
		return ipamtypes.IPAMPoolRequest{Pool: pool, Needed: ipamtypes.IPAMPoolDemand{IPv4Addrs: v4, IPv6Addrs: v6}}
	}
	wants := func(what string, want ...ipamtypes.IPAMPoolRequest) {
		t.Helper()
		b.eventually(what, func() bool { return slices.Equal(b.get().Spec.IPAM.Pools.Requested, want) })
	}
	wants("it requests its reserve", requests("blue", 1, 1), requests("default", 1, 1))
	b.patch(false, `{"spec":{"ipam":{"pools":{"allocated":[{"pool":"blue","cidrs":["10.0.1.0/28","fd00:1::/124"]},`+
		`{"pool":"default","cidrs":["10.0.0.0/28","fd00::/124"]}]}}}}`)
	b.waitReady()
	pod := podNamed("p")
	pod.Annotations = map[string]string{"ipam.cilium.io/ip-pool": "blue", "ipam.cilium.io/ipv6-pool": "default"}
	v4, v6, err := b.agent.Add(b.ctx, pod)
	harness.Must(t, err)
	if got, want := []string{v4.String(), v6.String()}, []string{"10.0.1.1", "fd00::2"}; !slices.Equal(got, want) {
		t.Errorf("the pod has %v, want %v", got, want)
	}
	harness.Must(t, b.agent.Restart(b.ctx))
	for _, addr := range []netip.Addr{v4, v6} {
		if owner := b.agent.Addresses()[addr]; owner != "default/p"+restoredOwner {
			t.Errorf("after the restart %s is of %q", addr, owner)
		}
	}
	wants("it requests for itself and the pod", requests("blue", 2, 1), requests("default", 2, 3))
}

func TestPodThatStopsRetryingIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newWholeStore(&multipool.Pools{Reserve: map[string]int{"default": 8}}, time.Millisecond, func(string) {})
		if _, _, err := s.AllocateNext("a", ciliumPools{}); err == nil {
			t.Fatal("there was an address")
		}
		if got := s.update()[0].Requested[0]; got != 16 {
			t.Errorf("%d addresses requested while a pod waits", got)
		}
		time.Sleep(2 * time.Millisecond)
		if got := s.update()[0].Requested[0]; got != 8 {
			t.Errorf("%d addresses requested while no pod waits", got)
		}
	})
}

func TestKubernetesAgent(t *testing.T) {
	b := newBed(t, Options{IPAM: Kubernetes, Health: true})
	if sleep(b.ctx, 50*time.Millisecond); b.get().UID != "" {
		t.Error("it started without a podCIDR")
	}
	node := &corev1.Node{}
	harness.Must(t, b.c.Get(b.ctx, types.NamespacedName{Name: b.agent.Name()}, node))
	node.Annotations["network.cilium.io/ipv4-pod-cidr"] = "10.0.0.0/28"
	harness.Must(t, b.c.Update(b.ctx, node))
	b.waitReady()
	cidr := netip.MustParsePrefix("10.0.0.0/28")
	if got := b.get().Spec.IPAM.PodCIDRs; len(got) != 1 || got[0].Prefix != cidr {
		t.Errorf("its CiliumNode has podCIDRs %v", got)
	}
	addr := b.add("p")
	if !cidr.Contains(addr) {
		t.Errorf("the pod's address %s is not in the podCIDR", addr)
	}
	harness.Must(t, b.agent.Restart(b.ctx))
	if owner := b.agent.Addresses()[addr]; owner != "default/p"+restoredOwner {
		t.Errorf("after the restart %s is of %q", addr, owner)
	}
}
