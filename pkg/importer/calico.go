package importer

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/importer/selector"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// ipPool is the spec of an IPPool: api/pkg/apis/projectcalico/v3/ippool.go of
// Calico v3.34, the same in crd.projectcalico.org/v1.
type ipPool struct {
	commonPool `json:",inline"`

	VXLANMode   string `json:"vxlanMode"`
	IPIPMode    string `json:"ipipMode"`
	NATOutgoing bool   `json:"natOutgoing"`
	Disabled    bool   `json:"disabled"`
}

// commonPool are the fields that an IPPool and an entry of an Installation share.
type commonPool struct {
	CIDR              string   `json:"cidr"`
	DisableBGPExport  bool     `json:"disableBGPExport"`
	BlockSize         int      `json:"blockSize"`
	NodeSelector      string   `json:"nodeSelector"`
	NamespaceSelector string   `json:"namespaceSelector"`
	AllowedUses       []string `json:"allowedUses"`
	AssignmentMode    string   `json:"assignmentMode"`
}

// namedPool is an IPPool, or an entry of an Installation.
type namedPool struct {
	source Object
	name   string
	spec   ipPool
	// field is where the spec is in the object.
	field   string
	unknown []string
	// encapsulated: packets between some nodes go through a tunnel.
	encapsulated bool
}

// Calico converts IPPools and the pools of an Installation. IPReservations and the IPAM
// configuration are applied to each pool.
func Calico(objects []Object, wholeBlocks bool) *Result {
	r := &Result{wholeBlocks: wholeBlocks}
	pools := calicoPools(r, objects)
	config := readCalicoConfig(r, objects)
	for _, p := range pools {
		convertIPPool(r, p, config)
	}
	config.remarkOutside(r, pools)
	noteRouting(r, pools)
	return r
}

// calicoPools returns the pools, each once: both API groups serve an IPPool, and Calico's
// operator creates one for each pool of an Installation.
func calicoPools(r *Result, objects []Object) []namedPool {
	var pools []namedPool
	for _, o := range objects {
		if o.Kind != "IPPool" || !isCalico(o) {
			continue
		}
		p := namedPool{source: o, name: o.Name, field: "spec."}
		var ok bool
		if p.unknown, ok = r.read(o, "spec", fields(o.content, "spec"), &p.spec); !ok {
			continue
		}
		never := []string{"", "Never"}
		p.encapsulated = !slices.Contains(never, p.spec.VXLANMode) || !slices.Contains(never, p.spec.IPIPMode)
		same := slices.IndexFunc(pools, func(q namedPool) bool { return q.name == p.name })
		if same < 0 {
			pools = append(pools, p)
		} else if !reflect.DeepEqual(pools[same].spec, p.spec) {
			r.lost(o, "spec", "another IPPool of this name says otherwise, and was taken ("+pools[same].source.Source+")", "Import the one that holds")
		}
	}
	for _, o := range objects {
		if o.Kind == "Installation" && o.group() == "operator.tigera.io" {
			pools = append(pools, installationPools(r, o, pools)...)
		}
	}
	return pools
}

func isCalico(o Object) bool {
	return o.group() == "crd.projectcalico.org" || o.group() == "projectcalico.org"
}

func convertIPPool(r *Result, p namedPool, config calicoConfig) {
	s := p.spec
	if len(s.AllowedUses) > 0 && !slices.Contains(s.AllowedUses, "Workload") {
		const reason = "it gives no addresses to pods, so no PodIPPool is made of it"
		if slices.Contains(s.AllowedUses, "LoadBalancer") {
			r.lost(p.source, p.field+"allowedUses", reason, "Make a CiliumLoadBalancerIPPool of it")
		} else {
			r.note(p.source, p.field+"allowedUses", reason, "Cilium's tunnels need no addresses of their own")
		}
		return
	}
	d := newDraft(r, p.source, p.name)
	d.unknown(p.field, p.unknown)
	cidrs := d.cidrs(p.field+"cidr", []string{s.CIDR})
	if len(cidrs) == 0 {
		return
	}
	family := ipalloc.FamilyOf(cidrs[0].Addr())
	bits := d.blockBits(p.field+"blockSize", family, p.blockSize(family))
	d.add(family, cidrs, bits, v1alpha1.EdgeIPs{AllowFirstIP: new(true), AllowLastIP: new(true)})
	if s.Disabled {
		for _, r := range crd.RangesIn(&d.pool.Spec) {
			(*r.CIDRs)[0].AllocationPolicy = v1alpha1.AllocationCordon
		}
		d.note(strings.TrimSuffix(p.field, "."), "the pool is disabled, so its CIDR is cordoned: nodes keep the blocks they have and get no new ones", "")
	}
	d.selectNodes(p)
	d.calicoRouting(p)
	config.apply(d, cidrs[0], bits)
	d.done()
}

func (p namedPool) blockSize(f ipalloc.Family) int {
	if p.spec.BlockSize != 0 {
		return p.spec.BlockSize
	}
	return map[ipalloc.Family]int{ipalloc.IPv4: 26, ipalloc.IPv6: 122}[f] // Calico's defaults
}

// selectNodes sets which nodes the pool is for, or holds it back.
func (d *draft) selectNodes(p namedPool) {
	e, err := selector.ParseCalico(p.spec.NodeSelector)
	if err != nil {
		err = fmt.Errorf("cannot be read: %w", err)
	} else {
		d.pool.Spec.NodeSelector, err = e.LabelSelector()
	}
	if err != nil {
		d.withhold(p.field+"nodeSelector: "+p.spec.NodeSelector, err.Error())
	}
	if s := p.spec.NamespaceSelector; s != "" && s != "all()" {
		d.withhold(p.field+"namespaceSelector: "+s, "pods get the addresses of their node here, whatever their namespace")
	}
	if p.spec.AssignmentMode == "Manual" {
		d.withhold(p.field+"assignmentMode: Manual", "only pods that ask for this pool get its addresses, and pods cannot ask here")
	}
}

// calicoRouting remarks on settings that Cilium has once for all pools, if its default differs.
func (d *draft) calicoRouting(p namedPool) {
	if !p.encapsulated {
		d.lost(strings.TrimSuffix(p.field, "."), "it has no encapsulation. That is a setting of Cilium's for all pools, and its default is a tunnel", "Set Cilium's routingMode to native")
	}
	if !p.spec.NATOutgoing {
		d.lost(p.field+"natOutgoing", "it is off: masquerading is a setting of Cilium's for all pools, and its default is on", "Set Cilium's enableIPv4Masquerade and enableIPv6Masquerade, or its ipMasqAgent")
	}
	if p.spec.DisableBGPExport {
		d.lost(p.field+"disableBGPExport", "Cilium's BGP control plane advertises no podCIDRs in crd mode, and PodIPPools say nothing of BGP", "Leave the pool out of what announces prefixes to your routers (kubectl cilium-pool export)")
	}
}

// noteRouting notes once the requests of these pools that are Cilium's default.
func noteRouting(r *Result, pools []namedPool) {
	note := func(field, reason, fix string) {
		r.Remarks = append(r.Remarks, Remark{Object: "IPPools", Field: field, Reason: reason, Fix: fix})
	}
	if slices.ContainsFunc(pools, func(p namedPool) bool { return p.encapsulated }) {
		note("vxlanMode, ipipMode, encapsulation", "encapsulation is a setting of Cilium's for all pools", "Its default is a VXLAN tunnel between all nodes (routingMode)")
	}
	if slices.ContainsFunc(pools, func(p namedPool) bool { return p.spec.NATOutgoing }) {
		note("natOutgoing", "masquerading is a setting of Cilium's for all pools", "Its default is on (enableIPv4Masquerade, enableIPv6Masquerade). Name a range that holds all pools in ipv4NativeRoutingCIDR and ipv6NativeRoutingCIDR")
	}
}

// operatorPool is an entry of spec.calicoNetwork.ipPools of an Installation
// (operator.tigera.io/v1). Calico's operator creates an IPPool from it.
type operatorPool struct {
	commonPool `json:",inline"`

	Name                 string `json:"name"`
	Encapsulation        string `json:"encapsulation"`
	NATOutgoing          string `json:"natOutgoing"`
	DisableNewAllocation bool   `json:"disableNewAllocations"`
}

// installationPools returns the pools of an Installation that are not in known.
func installationPools(r *Result, o Object, known []namedPool) []namedPool {
	entries, _ := fields(o.content, "spec", "calicoNetwork")["ipPools"].([]any)
	var pools []namedPool
	for i, entry := range entries {
		content, _ := entry.(map[string]any)
		field := fmt.Sprintf("spec.calicoNetwork.ipPools[%d].", i)
		var spec operatorPool
		unknown, ok := r.read(o, strings.TrimSuffix(field, "."), content, &spec)
		if !ok || slices.ContainsFunc(known, func(p namedPool) bool { return p.spec.CIDR == spec.CIDR }) {
			continue
		}
		p := namedPool{source: o, name: spec.Name, spec: spec.ipPool(), field: field, unknown: unknown}
		p.encapsulated = spec.encapsulated()
		if p.name == "" {
			p.name = spec.defaultName(known, pools)
		}
		pools = append(pools, p)
	}
	return pools
}

// ipPool returns the IPPool that Calico's operator creates, without encapsulation; fields that
// are not set have the operator's defaults: NAT, all nodes.
func (s operatorPool) ipPool() ipPool {
	return ipPool{commonPool: s.commonPool, NATOutgoing: s.NATOutgoing != "Disabled", Disabled: s.DisableNewAllocation}
}

// encapsulated reports whether the pool uses a tunnel: by default, IPv4 uses IPIP.
func (s operatorPool) encapsulated() bool {
	if s.Encapsulation != "" {
		return s.Encapsulation != "None"
	}
	cidr, err := netip.ParsePrefix(s.CIDR)
	return err == nil && cidr.Addr().Is4()
}

// defaultName returns the name of an unnamed pool as Calico's operator would choose it: the first
// of a family has a fixed one.
func (s operatorPool) defaultName(lists ...[]namedPool) string {
	name := "default-ipv4-ippool"
	if strings.Contains(s.CIDR, ":") {
		name = "default-ipv6-ippool"
	}
	for _, pools := range lists {
		if slices.ContainsFunc(pools, func(p namedPool) bool { return p.name == name }) {
			return strings.NewReplacer(".", "-", ":", "-", "/", "-").Replace(s.CIDR)
		}
	}
	return name
}
