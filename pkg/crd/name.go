package crd

import (
	"fmt"
	"net/netip"
	"strings"
)

// BlockName returns the name of the PodIPBlock for cidr, which must have no host
// bits: 10.20.0.0-27, fd00-10--40-122, 0--40-122 for ::40/122. The CRD holds
// every object to it, so that creating one is an exclusive claim.
func BlockName(cidr netip.Prefix) string {
	name := strings.ReplaceAll(strings.ReplaceAll(cidr.String(), ":", "-"), "/", "-")
	if strings.HasPrefix(name, "-") {
		return "0" + name
	}
	return name
}

// ParseBlockName returns the block that a PodIPBlock of this name is for. It
// fails for every name that BlockName never returns.
func ParseBlockName(name string) (netip.Prefix, error) {
	addr, bits := name, ""
	if i := strings.LastIndexByte(name, '-'); i >= 0 {
		addr, bits = name[:i], name[i+1:]
	}
	cidr, err := netip.ParsePrefix(strings.ReplaceAll(addr, "-", ":") + "/" + bits)
	if err != nil || cidr.Masked() != cidr || cidr.Addr().Is4In6() || BlockName(cidr) != name {
		return netip.Prefix{}, fmt.Errorf("%q is not the name of a block: those are like 10.20.0.0-27 or fd00-10--40-122", name)
	}
	return cidr, nil
}
