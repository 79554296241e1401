//go:build linux

package main

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
)

func TestMadeUp(t *testing.T) {
	for name, test := range map[string]struct {
		to, device string
		want       []string
	}{
		"a block":            {"100.66.224.0/27", "cilium_host", nil},
		"a block, IPv6":      {"fd00:100:162::20/123", "cilium_host", nil},
		"the range given":    {"169.254.254.0/24", "cilium_host", nil},
		"made up":            {"10.10.0.0/16", "cilium_host", []string{"10.10.0.0/16"}},
		"made up, IPv6":      {"f00d::a0a:0:0:0/96", "cilium_host", []string{"f00d::a0a:0:0:0/96"}},
		"the nodes' network": {"192.0.2.0/24", "eth0", nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := madeUp([]bed.Route{{To: netip.MustParsePrefix(test.to), Device: test.device}})
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
