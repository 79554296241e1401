package importer

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

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
		p := namedPool{from: o, name: spec.Name, spec: spec.ipPool(), field: field, unknown: unknown}
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
