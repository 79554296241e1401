package clusterread

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/importer"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
)

// ReasonObserved is that of the condition Ready of a pool of another allocator.
const ReasonObserved = "Observed"

// ReplaceByForeign replaces the pools and blocks of s, which was read in the mode that ModeOf returned, by
// pools and blocks of what another IPAM assigns. sources are CiliumPodIPPools, the ConfigMap cilium-config and kubeadm's, as far as they
// exist. A cluster with PodIPBlocks on all nodes stays as it is. It fails if pods show that another mode
// is in use.
func ReplaceByForeign(s *Objects, sources []importer.Object) error {
	if assignedHere(s) {
		return nil
	}
	s.Foreign = true
	s.Pins = nil
	s.Pools = s.Pools[:0:0]
	result := importer.Cilium(sources, true)
	if s.Mode == ciliumnode.Kubernetes {
		result = importer.Kubernetes(sources, true)
	}
	for _, p := range result.Pools {
		if s.Mode == ciliumnode.MultiPool {
			p.Object.Spec.CiliumPoolName = ciliumPoolName(p.Object.Name)
		}
		s.Pools = append(s.Pools, p.Object)
	}
	d := foreignIPAM{Objects: s, outside: map[string][]netip.Prefix{}}
	d.addBlocks()
	d.addOutside()
	for i := range s.Pools { // as its operator would report it
		p := &s.Pools[i]
		p.Finalizers = []string{v1alpha1.Finalizer}
		p.Generation = 1
		p.Status.ObservedGeneration = 1
		meta.SetStatusCondition(&p.Status.Conditions, metav1.Condition{Type: v1alpha1.PoolReady, Status: metav1.ConditionTrue, Reason: ReasonObserved})
	}
	return d.contradiction()
}

// assignedHere reports whether every node with CIDRs holds PodIPBlocks: this operator assigns them.
func assignedHere(s *Objects) bool {
	holders := map[string]bool{}
	for i := range s.Blocks {
		holders[s.Blocks[i].Spec.NodeName] = true
	}
	isOther := func(cn CiliumNode) bool {
		return len(cn.ListedInAnyPool())+len(cn.Published()) > 0 && !holders[cn.Name]
	}
	return len(s.Blocks) > 0 && s.Mode != ciliumnode.ClusterPool && !slices.ContainsFunc(s.CiliumNodes, isOther)
}

// foreignIPAM turns what another IPAM assigns into pools and blocks.
type foreignIPAM struct {
	*Objects
	// outside are held CIDRs that no known range contains, by the Cilium pool that they are of.
	outside map[string][]netip.Prefix
}

// addBlocks makes a block of each CIDR that a node has.
func (d *foreignIPAM) addBlocks() {
	d.Blocks = nil
	for i := range d.CiliumNodes {
		v := d.CiliumNodes[i].View
		if d.Mode != ciliumnode.MultiPool {
			for _, cidr := range d.cidrsOf(v) {
				d.addBlock(v, cidr, "")
			}
			continue
		}
		for _, a := range v.Allocated {
			d.addBlock(v, a.CIDR, a.CiliumPool)
		}
	}
}

// cidrsOf returns the CIDRs of a node. In crd mode the addresses that podCIDRs does not name are
// ranges as large as they allow, and from now on in podCIDRs.
func (d *foreignIPAM) cidrsOf(v *ciliumnode.View) []netip.Prefix {
	if d.Mode != ciliumnode.CRD {
		return v.PodCIDRs
	}
	out := slices.DeleteFunc(slices.Clone(v.PodCIDRs), func(p netip.Prefix) bool { return len(v.PublishedIn(p)) == 0 })
	var rest netipx.IPSetBuilder
	for a := range v.Addresses.Pool {
		rest.Add(a)
	}
	for _, p := range out {
		rest.RemovePrefix(p)
	}
	set, _ := rest.IPSet() // it holds valid addresses alone
	v.PodCIDRs = append(slices.Clip(v.PodCIDRs), set.Prefixes()...)
	return append(out, set.Prefixes()...)
}

// addBlock adds a block of the pool that has its range: in multi-pool mode, the one of that name.
func (d *foreignIPAM) addBlock(v *ciliumnode.View, cidr netip.Prefix, ciliumPool string) {
	i := slices.IndexFunc(d.Pools, func(p v1alpha1.PodIPPool) bool {
		return (ciliumPool == "" || p.Name == ciliumPool) && ipalloc.Covered(cidr, crd.CIDRsIn(&p.Spec))
	})
	b := v1alpha1.PodIPBlock{ObjectMeta: metav1.ObjectMeta{
		Name: crd.BlockName(cidr), CreationTimestamp: metav1.NewTime(v.Created), Finalizers: []string{v1alpha1.Finalizer},
	}}
	b.Spec = v1alpha1.PodIPBlockSpec{NodeName: v.Name, CIDR: cidr.String(), CiliumPoolName: ciliumPoolName(ciliumPool)}
	if i >= 0 {
		b.Spec.PoolName = d.Pools[i].Name
	} else {
		b.Spec.PoolName = d.outsideOf(ciliumPool)
		d.outside[ciliumPool] = append(d.outside[ciliumPool], cidr)
	}
	d.Blocks = append(d.Blocks, b)
}

// ciliumPoolName returns the name of a Cilium pool in spec.ciliumPoolName.
func ciliumPoolName(pool string) string {
	if pool == crd.DefaultCiliumPool {
		return ""
	}
	return pool
}

// outsideOf returns the name of the pool of the CIDRs outside the known ranges: pools have one block
// size each.
func (d *foreignIPAM) outsideOf(ciliumPool string) string {
	name := cmp.Or(ciliumPool, d.Mode.String())
	if slices.ContainsFunc(d.Pools, func(p v1alpha1.PodIPPool) bool { return p.Name == name }) {
		return name + "-other"
	}
	return name
}

// addOutside adds pools of the CIDRs that nodes have and no known range contains. The rest of these
// ranges is not known, so they are cordoned.
func (d *foreignIPAM) addOutside() {
	var added []v1alpha1.PodIPPool
	for ciliumPool, cidrs := range d.outside {
		p := v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: d.outsideOf(ciliumPool)}}
		p.Spec.CiliumPoolName = ciliumPoolName(ciliumPool)
		for _, f := range ipalloc.Families() {
			d.addRanges(&p.Spec, f, slices.DeleteFunc(slices.Clone(cidrs), func(p netip.Prefix) bool { return ipalloc.FamilyOf(p.Addr()) != f }))
		}
		added = append(added, p)
	}
	d.Pools = append(d.Pools, added...)
	slices.SortFunc(d.Pools, func(a, b v1alpha1.PodIPPool) int { return strings.Compare(a.Name, b.Name) })
}

// addRanges adds the CIDRs of a family to a pool, as few as there can be, and none that is smaller than
// a block may be.
func (d *foreignIPAM) addRanges(spec *v1alpha1.PodIPPoolSpec, f ipalloc.Family, cidrs []netip.Prefix) {
	if len(cidrs) == 0 {
		return
	}
	var merged netipx.IPSetBuilder
	bits, longest := crd.BlockSizes(f, d.Mode.WholeBlocks())
	for _, cidr := range cidrs {
		wide := min(cidr.Bits(), longest)
		merged.AddPrefix(netip.PrefixFrom(cidr.Addr(), wide).Masked())
		bits = max(bits, wide)
	}
	set, _ := merged.IPSet() // it holds valid CIDRs alone
	var added []v1alpha1.PoolCIDR
	for _, cidr := range set.Prefixes() {
		added = append(added, v1alpha1.PoolCIDR{CIDR: cidr.String(), AllocationPolicy: v1alpha1.AllocationCordon})
	}
	if f == ipalloc.IPv4 {
		spec.IPv4 = &v1alpha1.IPv4Ranges{BlockSize: int32(bits), CIDRs: added}
		return
	}
	spec.IPv6 = &v1alpha1.IPv6Ranges{BlockSize: int32(bits), CIDRs: added}
}

// contradiction returns an error if pods of a node have addresses, and none of these is of its blocks.
func (d *foreignIPAM) contradiction() error {
	blocks := map[string][]netip.Prefix{}
	for i := range d.Blocks {
		if cidr, err := netip.ParsePrefix(d.Blocks[i].Spec.CIDR); err == nil {
			blocks[d.Blocks[i].Spec.NodeName] = append(blocks[d.Blocks[i].Spec.NodeName], cidr)
		}
	}
	inside := map[string]bool{}
	strange := map[string]string{}
	for i := range d.Pods {
		pod := state.ReadPod(&d.Pods[i])
		if !pod.NeedsAddress {
			continue
		}
		for _, a := range pod.IPs {
			if ipalloc.Covered(netip.PrefixFrom(a, a.BitLen()), blocks[pod.Node]) {
				inside[pod.Node] = true
			} else {
				strange[pod.Node] = fmt.Sprintf("%s (%s of pod %s)", pod.Node, a, pod.Name)
			}
		}
	}
	var wrong []string
	for _, cn := range d.CiliumNodes {
		withoutAgent := d.Mode == ciliumnode.Kubernetes && !cn.BlockAssignment.HasAgent
		if place := strange[cn.Name]; place != "" && !inside[cn.Name] && !withoutAgent {
			wrong = append(wrong, place)
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	slices.Sort(wrong)
	return unclear("cannot tell what assigns addresses: %s says ipam: %s, and pods of some nodes have no address of the %s there: %s. "+
		"Their agents may run in another mode: observe once the move is over", ciliumconfig.Name, d.Mode, d.list(), suggest.Few(wrong))
}

// list names the field that lists the CIDRs of a node.
func (d *foreignIPAM) list() string {
	kind, _ := d.Mode.Resource()
	return d.Mode.ListField() + " of " + kind.Kind + "s"
}
