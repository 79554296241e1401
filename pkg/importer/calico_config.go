package importer

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"
	"k8s.io/utils/ptr"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
)

// maxReserved is the maximum in a PodIPPool.
const maxReserved = 64

// maxBlocksPerNode is the maximum in a PodIPPool.
const maxBlocksPerNode = 1024

// ipamConfig is the spec of an IPAMConfig (crd.projectcalico.org/v1) and of an
// IPAMConfiguration (projectcalico.org/v3) of Calico v3.34.
type ipamConfig struct {
	StrictAffinity               bool   `json:"strictAffinity"`
	AutoAllocateBlocks           *bool  `json:"autoAllocateBlocks"`
	MaxBlocksPerHost             int    `json:"maxBlocksPerHost"`
	IPCooldownSeconds            int    `json:"ipCooldownSeconds"`
	KubeVirtVMAddressPersistence string `json:"kubeVirtVMAddressPersistence"`
}

// calicoConfig is the configuration of all IPPools.
type calicoConfig struct {
	reserved  []reservation
	maxBlocks int
}

// reservation is an entry of an IPReservation.
type reservation struct {
	source Object
	cidr   netip.Prefix
}

func readCalicoConfig(r *Result, objects []Object) calicoConfig {
	var c calicoConfig
	found := false
	for _, o := range objects {
		if !isCalico(o) {
			continue
		}
		if o.Kind == "IPReservation" {
			c.reserved = append(c.reserved, reservations(r, o)...)
		} else if (o.Kind == "IPAMConfig" || o.Kind == "IPAMConfiguration") && !found {
			c.maxBlocks = ipamConfiguration(r, o)
			found = true
		}
	}
	return c
}

func reservations(r *Result, o Object) []reservation {
	var spec struct {
		ReservedCIDRs []string `json:"reservedCIDRs"`
	}
	if _, ok := r.read(o, "spec", fields(o.content, "spec"), &spec); !ok {
		return nil
	}
	var out []reservation
	for _, s := range spec.ReservedCIDRs {
		cidr, err := netip.ParsePrefix(s)
		if addr, bad := netip.ParseAddr(s); bad == nil {
			cidr, err = addr.Prefix(addr.BitLen())
		}
		if err != nil {
			r.lost(o, "spec.reservedCIDRs: "+s, "is neither an address nor a CIDR", "Add what was meant to spec.reserved of the pool")
			continue
		}
		out = append(out, reservation{o, cidr.Masked()})
	}
	return out
}

// ipamConfiguration remarks on the configuration, and returns the limit of blocks per node; 0: not
// set.
func ipamConfiguration(r *Result, o Object) int {
	var spec ipamConfig
	unknown, ok := r.read(o, "spec", fields(o.content, "spec"), &spec)
	if !ok {
		return 0
	}
	remarks := &draft{result: r, source: o} // for no pool of its own
	remarks.unknown("spec.", unknown)
	if !spec.StrictAffinity {
		remarks.note("spec.strictAffinity: false", "a block belongs to one node here, as with true: nodes borrow no single addresses of each other's blocks", "See that there are more blocks than nodes, or make blocks smaller")
	}
	if spec.AutoAllocateBlocks != nil && !*spec.AutoAllocateBlocks {
		remarks.lost("spec.autoAllocateBlocks: false", "nodes get blocks by themselves here", "Set paused in a pool to stop all change on its nodes")
	}
	if spec.IPCooldownSeconds > 0 {
		remarks.lost(fmt.Sprintf("spec.ipCooldownSeconds: %d", spec.IPCooldownSeconds), "an address that a pod gave back can be used again at once on its node; only whole blocks cool down", "spec.cooldown of a pool says how long a block cools down before another node gets it")
	}
	if spec.KubeVirtVMAddressPersistence == "Enabled" {
		remarks.lost("spec.kubeVirtVMAddressPersistence: Enabled", "addresses do not move with virtual machines here", "Leave these nodes with Calico if you need it")
	}
	return spec.MaxBlocksPerHost
}

// apply applies the configuration to a pool of one CIDR, with blocks of length bits.
func (c calicoConfig) apply(d *draft, cidr netip.Prefix, bits int) {
	if c.maxBlocks > maxBlocksPerNode {
		d.note("spec.expand.maxBlocksPerNode", fmt.Sprintf("maxBlocksPerHost is %d, and a PodIPPool takes %d at most", c.maxBlocks, maxBlocksPerNode), "")
	}
	if c.maxBlocks > 0 {
		d.pool.Spec.Expand.MaxBlocksPerNode = ptr.To(int32(min(c.maxBlocks, maxBlocksPerNode)))
	}
	var set netipx.IPSetBuilder
	for _, r := range c.reserved {
		if r.cidr.Overlaps(cidr) {
			set.AddPrefix(slices.MaxFunc([]netip.Prefix{r.cidr, cidr}, func(a, b netip.Prefix) int { return cmp.Compare(a.Bits(), b.Bits()) }))
			if source := r.source.String(); !slices.Contains(d.also, source) {
				d.also = append(d.also, source)
			}
		}
	}
	reserved, err := set.IPSet()
	if err != nil {
		d.lost("spec.reserved", err.Error(), "Reserve by hand what IPReservations reserve")
		return
	}
	partly := false
	for _, p := range reserved.Prefixes() {
		d.pool.Spec.Reserved = append(d.pool.Spec.Reserved, v1alpha1.ReservedCIDR{CIDR: p.String(), Description: c.descriptionOf(p)})
		partly = partly || p.Bits() > bits
	}
	if partly {
		d.note("spec.reserved", "a block that overlaps a reserved range is not assigned, as a block is routed as a whole",
			"To assign such blocks without the reserved addresses, as Calico does, set reservedBlockPolicy: PublishRemainder")
	}
}

// descriptionOf names the first IPReservation of a range.
func (c calicoConfig) descriptionOf(cidr netip.Prefix) string {
	for _, r := range c.reserved {
		if r.cidr.Overlaps(cidr) {
			return r.source.String()
		}
	}
	return ""
}

// remarkOutside remarks on reservations outside all pools.
func (c calicoConfig) remarkOutside(r *Result, pools []namedPool) {
	for _, res := range c.reserved {
		inside := slices.ContainsFunc(pools, func(p namedPool) bool {
			cidr, err := netip.ParsePrefix(strings.TrimSpace(p.spec.CIDR))
			return err == nil && cidr.Overlaps(res.cidr)
		})
		if !inside {
			r.note(res.source, "spec.reservedCIDRs: "+res.cidr.String(), "lies in none of the pools, so there is nothing to reserve it from", "")
		}
	}
}
