package harness

import (
	"net/netip"
	"slices"
	"testing"
)

func TestAddressesIn(t *testing.T) {
	const text = `{"pool":{"100.66.224.33":{},"100.66.223.255":{}},"podCIDRs":["100.66.230.0/27","100.64.0.0/12"]}
100.66.224.32/27 via 192.0.2.11 dev eth0`
	got := AddressesIn(text, netip.MustParsePrefix("100.66.224.0/19"))
	if want := []string{"100.66.224.32/27", "100.66.224.33", "100.66.230.0/27"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
