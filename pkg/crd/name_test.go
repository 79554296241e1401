package crd_test

import (
	"net/netip"
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
)

func TestBlockName(t *testing.T) {
	for cidr, want := range map[string]string{
		"10.20.0.0/27":             "10.20.0.0-27",
		"0.0.0.0/0":                "0.0.0.0-0",
		"fd00:10::40/122":          "fd00-10--40-122",
		"fd00::/64":                "fd00---64",
		"::40/122":                 "0--40-122",
		"::/0":                     "0---0",
		"1:2:3:4:5:6:7:8/128":      "1-2-3-4-5-6-7-8-128",
		"0:1:2:3:4:5:6:7/128":      "0-1-2-3-4-5-6-7-128",
		"2001:db8:0:1:1:1:1::/112": "2001-db8-0-1-1-1-1-0-112",
	} {
		t.Run(cidr, func(t *testing.T) {
			if got := crd.BlockName(netip.MustParsePrefix(cidr)); got != want {
				t.Errorf("BlockName is %s, want %s", got, want)
			}
			if got, err := crd.ParseBlockName(want); err != nil || got != netip.MustParsePrefix(cidr) {
				t.Errorf("ParseBlockName is %s, %v", got, err)
			}
		})
	}
}

func TestParseBlockNameRefuses(t *testing.T) {
	for _, name := range []string{
		"", "-", "mine", "10.20.0.0", "10.20.0.0-", "10.20.0.0-33", "10.20.0.1-27", "10.20.0.0/27", "10.20.0.0-027",
		"FD00---64", "fd00-0-0-0-0-0-0-0-64", "--40-122", "fd00:---64", "0--ffff-10.0.0.0-122",
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := crd.ParseBlockName(name); err == nil {
				t.Errorf("is %s", got)
			}
		})
	}
}
