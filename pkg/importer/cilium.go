package importer

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"

	"go4.org/netipx"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumpool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// podIPPool is the spec of a CiliumPodIPPool: pkg/k8s/apis/cilium.io/v2alpha1 of
// Cilium v1.20.1, and the field pool of v2.
type podIPPool struct {
	IPv4              *podIPRanges          `json:"ipv4"`
	IPv6              *podIPRanges          `json:"ipv6"`
	AllowFirstIP      bool                  `json:"allowFirstIP"`
	AllowLastIP       bool                  `json:"allowLastIP"`
	PodSelector       *metav1.LabelSelector `json:"podSelector"`
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector"`
}

type podIPRanges struct {
	CIDRs    []string        `json:"cidrs"`
	MaskSize int             `json:"maskSize"`
	Pool     []podIPPoolCIDR `json:"pool"`
}

// podIPPoolCIDR describes one of the CIDRs. Cilium cuts no new PodCIDR from its reserved ranges.
type podIPPoolCIDR struct {
	CIDR           string `json:"cidr"`
	ReservedRanges []struct {
		Start string `json:"start"`
		End   string `json:"end"`
	} `json:"reservedRanges"`
}

// Cilium converts CiliumPodIPPools, and the settings of cluster-pool mode in the ConfigMap
// cilium-config or in values of Cilium's chart.
func Cilium(objects []Object, wholeBlocks bool) *Result {
	r := &Result{wholeBlocks: wholeBlocks}
	defaultPool := "default"
	for _, o := range objects {
		if name := text(fields(o.content, "data")["ipam-default-ip-pool"]); isCiliumConfig(o) && name != "" {
			defaultPool = name
		}
	}
	for _, o := range objects {
		switch {
		case o.Kind == "CiliumPodIPPool" && o.group() == "cilium.io" && isOurs(o):
			r.note(o, "metadata.labels", "cilium-pool-operator made it for agents to find, and none of its ranges is real", "Nothing: it follows the PodIPPools that there are")
		case o.Kind == "CiliumPodIPPool" && o.group() == "cilium.io":
			convertPodIPPool(r, o, o.Name, "spec", fields(o.content, "spec"), defaultPool)
		case isCiliumConfig(o):
			fromCiliumConfig(r, o)
		case o.Kind == "" && fields(o.content, "ipam") != nil:
			fromCiliumValues(r, o, defaultPool)
		}
	}
	return r
}

// RunsMultiPool reports whether agents run in Cilium's multi-pool mode: by its settings or, where there are
// none, by its CiliumPodIPPools.
func RunsMultiPool(objects []Object) bool {
	hasPools := false
	for _, o := range objects {
		mode := ""
		switch {
		case isCiliumConfig(o):
			mode = text(fields(o.content, "data")["ipam"])
		case o.Kind == "":
			mode = text(fields(o.content, "ipam")["mode"])
		case o.Kind == "CiliumPodIPPool" && !isOurs(o):
			hasPools = true
		}
		if mode != "" {
			return mode == "multi-pool"
		}
	}
	return hasPools
}

// isOurs reports whether the operator maintains a CiliumPodIPPool.
func isOurs(o Object) bool {
	return fields(fields(o.content, "metadata"), "labels")[ciliumpool.ManagedByLabel] == ciliumpool.ManagedBy
}

// convertPodIPPool converts content, which is at field of o. In Cilium, pods choose a pool:
// spec.ciliumPoolName names all but the default one.
func convertPodIPPool(r *Result, o Object, name, field string, content map[string]any, defaultPool string) {
	if r.named(name) {
		r.lost(o, field, "there is a pool of this name already, which was taken", "Import the one that holds")
		return
	}
	var spec podIPPool
	unknown, ok := r.read(o, field, content, &spec)
	if !ok {
		return
	}
	d := newDraft(r, o, name)
	field += "."
	d.unknown(field, unknown)
	edges := v1alpha1.EdgeIPs{AllowFirstIP: ifTrue(spec.AllowFirstIP), AllowLastIP: ifTrue(spec.AllowLastIP)}
	for _, f := range ipalloc.Families() {
		ranges := map[ipalloc.Family]*podIPRanges{ipalloc.IPv4: spec.IPv4, ipalloc.IPv6: spec.IPv6}[f]
		if ranges != nil {
			path := field + f.String() + "."
			cidrs := d.cidrs(path+"cidrs", ranges.CIDRs)
			d.add(f, cidrs, d.blockBits(path+"maskSize", f, ranges.MaskSize), edges)
			d.reserve(path+"pool", cidrs, ranges.Pool)
		}
	}
	if name != defaultPool {
		d.pool.Spec.CiliumPoolName = name
		d.note("metadata.name: "+name, "pods that ask for this pool get its addresses in multi-pool mode; in other modes it serves no node",
			"For use in another mode, remove spec.ciliumPoolName and write its nodeSelector")
	}
	if spec.PodSelector != nil || spec.NamespaceSelector != nil {
		d.note(field+"podSelector, namespaceSelector", "agents read them in the CiliumPodIPPool, and nothing changes them there; in other modes than multi-pool they pick no pods",
			"Keep the CiliumPodIPPool")
	}
	d.done()
}

// reserve reserves the reserved ranges of a CiliumPodIPPool, as far as they lie in cidrs.
func (d *draft) reserve(field string, cidrs []netip.Prefix, pool []podIPPoolCIDR) {
	for _, entry := range pool {
		for _, r := range entry.ReservedRanges {
			text := r.Start + "-" + r.End
			parsed, err := netipx.ParseIPRange(text)
			if err != nil {
				d.lost(field+": "+text, "is not a range of addresses", "Add what was meant to spec.reserved of the pool")
				continue
			}
			for _, part := range parsed.Prefixes() {
				d.reserveWithin(cidrs, part)
			}
		}
	}
}

// reserveWithin reserves the part of a range that lies in cidrs, and that is not reserved yet.
func (d *draft) reserveWithin(cidrs []netip.Prefix, reserved netip.Prefix) {
	for _, cidr := range cidrs {
		if !cidr.Overlaps(reserved) {
			continue
		}
		entry := v1alpha1.ReservedCIDR{CIDR: ipalloc.Narrower(cidr, reserved).String(), Description: "reservedRanges of " + d.source.String()}
		if !slices.Contains(d.pool.Spec.Reserved, entry) {
			d.pool.Spec.Reserved = append(d.pool.Spec.Reserved, entry)
		}
	}
}

func isCiliumConfig(o Object) bool { return o.Kind == "ConfigMap" && o.Name == "cilium-config" }

// clusterPool are the settings of cluster-pool mode, by family.
type clusterPool struct {
	mode, modeField string
	families        [2]familyPool
}

type familyPool struct {
	enabled    bool
	cidrs      []string
	cidrsField string
	maskSize   int
	maskField  string
}

// fromCiliumConfig reads the ConfigMap; missing settings have the defaults of cilium-operator
// (operator/pkg/ipam/clusterpool.go of v1.20.1).
func fromCiliumConfig(r *Result, o Object) {
	data := fields(o.content, "data")
	c := clusterPool{mode: text(data["ipam"]), modeField: "data.ipam"}
	enabled4 := text(data["enable-ipv4"]) != "false"
	enabled6 := text(data["enable-ipv6"]) == "true"
	for _, f := range ipalloc.Families() {
		key := "cluster-pool-" + f.String()
		p := familyPool{
			enabled: [2]bool{enabled4, enabled6}[f],
			cidrs:   splitList(text(data[key+"-cidr"])), cidrsField: "data." + key + "-cidr",
			maskSize: [2]int{24, 112}[f], maskField: "data." + key + "-mask-size",
		}
		if s := text(data[key+"-mask-size"]); s != "" {
			var err error
			if p.maskSize, err = strconv.Atoi(s); err != nil {
				r.lost(o, p.maskField+": "+s, "is not a number", "Fix it and import it again")
				return
			}
		}
		c.families[f] = p
	}
	if made := text(data["auto-create-cilium-pod-ip-pools"]); made != "" && c.mode == "multi-pool" {
		r.note(o, "data.auto-create-cilium-pod-ip-pools", "Cilium makes CiliumPodIPPools of this", "Import those")
	}
	c.convert(r, o)
}

// values are the values of Cilium's chart that matter here.
type values struct {
	IPAM struct {
		Mode     string `json:"mode"`
		Operator struct {
			IPv4CIDRs any            `json:"clusterPoolIPv4PodCIDRList"`
			IPv4Mask  *int           `json:"clusterPoolIPv4MaskSize"`
			IPv6CIDRs any            `json:"clusterPoolIPv6PodCIDRList"`
			IPv6Mask  *int           `json:"clusterPoolIPv6MaskSize"`
			Pools     map[string]any `json:"autoCreateCiliumPodIPPools"`
		} `json:"operator"`
	} `json:"ipam"`
	IPv4 struct {
		Enabled *bool `json:"enabled"`
	} `json:"ipv4"`
	IPv6 struct {
		Enabled *bool `json:"enabled"`
	} `json:"ipv6"`
}

// fromCiliumValues reads values of Cilium's chart; missing ones have the chart's defaults
// (install/kubernetes/cilium/values.yaml of v1.20).
func fromCiliumValues(r *Result, o Object, defaultPool string) {
	var v values
	if _, ok := r.read(o, "ipam", o.content, &v); !ok {
		return
	}
	const at = "ipam.operator."
	operator := v.IPAM.Operator
	c := clusterPool{mode: v.IPAM.Mode, modeField: "ipam.mode", families: [2]familyPool{
		ipalloc.IPv4: {
			enabled: v.IPv4.Enabled == nil || *v.IPv4.Enabled,
			cidrs:   stringsOf(operator.IPv4CIDRs, "10.0.0.0/8"), cidrsField: at + "clusterPoolIPv4PodCIDRList",
			maskSize: ptr.Deref(operator.IPv4Mask, 24), maskField: at + "clusterPoolIPv4MaskSize",
		},
		ipalloc.IPv6: {
			enabled: v.IPv6.Enabled != nil && *v.IPv6.Enabled,
			cidrs:   stringsOf(operator.IPv6CIDRs, "fd00::/104"), cidrsField: at + "clusterPoolIPv6PodCIDRList",
			maskSize: ptr.Deref(operator.IPv6Mask, 120), maskField: at + "clusterPoolIPv6MaskSize",
		},
	}}
	for f, cidrs := range []any{operator.IPv4CIDRs, operator.IPv6CIDRs} {
		if p := c.families[f]; cidrs == nil && p.enabled && c.usesClusterPool() {
			r.note(o, p.cidrsField, "is not set: the chart's default was taken", "")
		}
	}
	if c.mode == "multi-pool" {
		for _, name := range slices.Sorted(maps.Keys(operator.Pools)) {
			content, _ := operator.Pools[name].(map[string]any)
			convertPodIPPool(r, o, name, at+"autoCreateCiliumPodIPPools."+name, content, defaultPool)
		}
	}
	c.convert(r, o)
}

// stringsOf reads a list that may be written as one string, or missing.
func stringsOf(v any, otherwise string) []string {
	switch v := v.(type) {
	case nil:
		return []string{otherwise}
	case string:
		return splitList(v)
	case []any:
		var texts []string
		for _, e := range v {
			texts = append(texts, text(e))
		}
		return texts
	}
	return nil
}

// usesClusterPool reports whether the mode is cluster-pool, which is the default.
// ifTrue leaves out false, the default.
func ifTrue(b bool) *bool {
	if !b {
		return nil
	}
	return &b
}

func (c clusterPool) usesClusterPool() bool {
	return c.mode == "" || c.mode == "cluster-pool" || c.mode == "cluster-pool-v2beta"
}

// remarkMode reports a mode that has no pools to import.
func (c clusterPool) remarkMode(r *Result, o Object) {
	switch c.mode {
	case "kubernetes":
		r.lost(o, c.modeField+": kubernetes", "addresses come from the podCIDRs of Nodes, which Kubernetes gives", "Import them: kubectl cilium-pool import --from kubeadm")
	case "crd":
		r.note(o, c.modeField+": crd", "this is the mode in which PodIPPools are used; it has no pools of its own", "")
	default:
		if c.mode != "multi-pool" { // CiliumPodIPPools are imported by themselves
			r.lost(o, c.modeField+": "+c.mode, "addresses come from the cloud, which PodIPPools do not know", "Write PodIPPools of ranges that your network routes to the nodes")
		}
	}
}

func (c clusterPool) convert(r *Result, o Object) {
	if !c.usesClusterPool() {
		c.remarkMode(r, o)
		return
	}
	d := newDraft(r, o, "cluster-pool")
	for _, f := range ipalloc.Families() {
		if p := c.families[f]; p.enabled {
			d.add(f, d.cidrs(p.cidrsField, p.cidrs), d.blockBits(p.maskField, f, p.maskSize), v1alpha1.EdgeIPs{})
		}
	}
	d.done()
}
