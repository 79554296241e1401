package plugin

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"time"

	iputil "github.com/cilium/cilium/pkg/ip"
	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/rogpeppe/go-internal/testscript"
	"k8s.io/apimachinery/pkg/types"
)

// assign NODE CIDR... [POOL CIDR...] assigns CIDRs to a node, as an operator in
// multi-pool mode would: for the pool default, then for the named pools.
func (w *world) cmdAssign(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 2, "assign NODE CIDR... [POOL CIDR...]")
	w.editCiliumNode(ts, args[0], func(cn *ciliumv2.CiliumNode) { cn.Spec.IPAM.Pools.Allocated = allocated(args[1:]) })
}

// allocated parses "10.0.0.0/30 blue 10.9.0.0/30".
func allocated(words []string) []ipamtypes.IPAMPoolAllocation {
	entries := []ipamtypes.IPAMPoolAllocation{{Pool: "default"}}
	for _, word := range words {
		cidr, err := netip.ParsePrefix(word)
		if err != nil {
			entries = append(entries, ipamtypes.IPAMPoolAllocation{Pool: word})
			continue
		}
		last := &entries[len(entries)-1]
		last.CIDRs = append(last.CIDRs, iputil.PrefixFrom(cidr))
	}
	slices.SortFunc(entries, func(a, b ipamtypes.IPAMPoolAllocation) int { return cmp.Compare(a.Pool, b.Pool) })
	return entries
}

// lists NODE CIDR... [POOL CIDR...] checks the lists in its CiliumNode, in the format of assign.
func (w *world) cmdLists(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 2, "lists NODE CIDR... [POOL CIDR...]")
	cn := &ciliumv2.CiliumNode{}
	ts.Check(w.client.Get(w.ctx, types.NamespacedName{Name: args[0]}, cn))
	want, got := allocated(args[1:]), cn.Spec.IPAM.Pools.Allocated
	if !slices.EqualFunc(want, got, func(a, b ipamtypes.IPAMPoolAllocation) bool { return a.DeepEqual(&b) }) {
		ts.Fatalf("%s lists %v, not %v", args[0], got, want)
	}
}

// request NODE N writes as an agent that has started in multi-pool mode: it requests N addresses,
// and removes the report of crd mode.
func (w *world) cmdRequest(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 2, "request NODE N")
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	w.editCiliumNode(ts, args[0], func(cn *ciliumv2.CiliumNode) {
		cn.Spec.IPAM.Pools.Requested = []ipamtypes.IPAMPoolRequest{{Pool: "default", Needed: ipamtypes.IPAMPoolDemand{IPv4Addrs: n}}}
	})
	cn := &ciliumv2.CiliumNode{}
	ts.Check(w.client.Get(w.ctx, types.NamespacedName{Name: args[0]}, cn))
	cn.Status.IPAM.Used = nil
	w.updateStatus(ts, cn)
}

// repeats NODE N makes the agent of a node in multi-pool mode write its requests again, in the
// background, whenever they are gone.
func (w *world) cmdRepeats(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 2, "repeats NODE N")
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	inBackground(ts, func(sleep func(time.Duration) bool) error {
		for more := true; more; more = sleep(50 * time.Millisecond) {
			cn := &ciliumv2.CiliumNode{}
			if w.client.Get(w.ctx, types.NamespacedName{Name: args[0]}, cn) == nil && len(cn.Spec.IPAM.Pools.Requested) == 0 {
				cn.Spec.IPAM.Pools.Requested = []ipamtypes.IPAMPoolRequest{{Pool: "default", Needed: ipamtypes.IPAMPoolDemand{IPv4Addrs: n}}}
				_ = w.client.Update(w.ctx, cn) // a conflict is tried again
			}
		}
		return nil
	})
}

// names NODE ADDRESSES PODCIDRS ALLOCATED checks the number of each in a CiliumNode.
func (w *world) cmdNames(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 4, "names NODE ADDRESSES PODCIDRS ALLOCATED")
	cn := &ciliumv2.CiliumNode{}
	ts.Check(w.client.Get(w.ctx, types.NamespacedName{Name: args[0]}, cn))
	allocated := 0
	for _, entry := range cn.Spec.IPAM.Pools.Allocated {
		allocated += len(entry.CIDRs)
	}
	got := []string{strconv.Itoa(len(cn.Spec.IPAM.Pool)), strconv.Itoa(len(cn.Spec.IPAM.PodCIDRs)), strconv.Itoa(allocated)}
	if !slices.Equal(got, args[1:]) {
		ts.Fatalf("%s names %v, not %v", args[0], got, args[1:])
	}
}

func (w *world) editCiliumNode(ts *testscript.TestScript, name string, edit func(*ciliumv2.CiliumNode)) {
	cn := &ciliumv2.CiliumNode{}
	ts.Check(w.client.Get(w.ctx, types.NamespacedName{Name: name}, cn))
	edit(cn)
	ts.Check(w.client.Update(w.ctx, cn))
}
