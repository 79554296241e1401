//go:build linux

package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	iputil "github.com/cilium/cilium/pkg/ip"
	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/whole"
)

// allocated lists CIDRs under the pool default, and the parked ones under a separate pool.
func allocated(parked []netip.Prefix, cidrs ...netip.Prefix) []ipamtypes.IPAMPoolAllocation {
	list := []ipamtypes.IPAMPoolAllocation{{Pool: defaultPool, CIDRs: prefixed(cidrs)}}
	if len(parked) > 0 {
		list = append(list, ipamtypes.IPAMPoolAllocation{Pool: parkingPool, CIDRs: prefixed(parked)})
	}
	return list
}

func prefixed(cidrs []netip.Prefix) []iputil.Prefix {
	var out []iputil.Prefix
	for _, c := range cidrs {
		out = append(out, iputil.PrefixFrom(c))
	}
	return out
}

// list replaces the node's list.
func (d *listDrain) list(ctx context.Context, parked []netip.Prefix, cidrs ...netip.Prefix) error {
	return d.edit(ctx, func(spec *ciliumv2.NodeSpec) { spec.IPAM.Pools.Allocated = allocated(parked, cidrs...) })
}

// edit changes the CiliumNode in one conditional patch.
func (d *listDrain) edit(ctx context.Context, edit func(*ciliumv2.NodeSpec)) error {
	return d.Eventually(ctx, "the CiliumNode is written", func(ctx context.Context) error {
		cn, err := d.CiliumNode(ctx, d.node.Name)
		if err != nil {
			return err
		}
		before := cn.DeepCopy()
		edit(&cn.Spec)
		return d.Client.Patch(ctx, cn, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	})
}

// lists reports whether the agent's pool default lists a CIDR.
func (d *listDrain) lists(ctx context.Context, cidr netip.Prefix) (bool, error) {
	cn, err := d.CiliumNode(ctx, d.node.Name)
	return err == nil && slices.Contains(whole.AssignedTo(cn), cidr), err
}

// until waits until the agent lists a CIDR, or no longer lists it, and returns how long that
// took.
func (d *listDrain) until(ctx context.Context, cidr netip.Prefix, listed bool) (time.Duration, error) {
	began := time.Now()
	err := d.Eventually(ctx, fmt.Sprintf("%s is listed: %t", cidr, listed), func(ctx context.Context) error {
		is, err := d.lists(ctx, cidr)
		if err == nil && is != listed {
			err = fmt.Errorf("listed: %t", is)
		}
		return err
	})
	return time.Since(began), err
}

// listTraffic consists of pings in both directions between the probe and pods, and from the
// probe's node to them.
type listTraffic struct{ pods, host []*bed.Pings }

func (d *listDrain) traffic(pods ...*bed.Pod) (t listTraffic, err error) {
	if t.pods, err = flowsBetween(d.probe, pods, pingEvery); err != nil {
		return t, err
	}
	for _, p := range pods {
		f, err := d.probe.Node().Ping(p.Address, pingEvery)
		if err != nil {
			return t, err
		}
		t.host = append(t.host, f)
	}
	return t, nil
}

// drainTraffic starts traffic with the pods that are drained, and with one that is not.
func (d *listDrain) drainTraffic() (listTraffic, error) {
	return d.traffic(append(slices.Clone(d.drained), d.kept[0])...)
}

// judge checks that no ping was lost.
func (d *listDrain) judge(t listTraffic, what string) {
	d.judgePings(slices.Concat(t.pods, t.host), what+": pings lost")
}
