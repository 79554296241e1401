//go:build linux

package main

import "testing"

func TestLacksAddress(t *testing.T) {
	const setup = `failed to setup network for sandbox "2782": plugin type="cilium-cni" failed (add): `
	for message, want := range map[string]bool{
		setup + `unable to allocate IP via local cilium agent: [POST /ipam][502] postIpamFailure "all CIDR ranges are exhausted"`:                             true,
		setup + `unable to allocate IP via local cilium agent: [POST /ipam][502] postIpamFailure "No more IPs available"`:                                     true,
		setup + `unable to allocate IP via local cilium agent: [POST /ipam][502] postIpamFailure "unable to determine IPAM pool for owner \"default/web-1\""`: false,
		setup + `unable to create endpoint: [PUT /endpoint/{id}][429] putEndpointIdTooManyRequests`:                                                           false,
	} {
		if got := lacksAddress(message); got != want {
			t.Errorf("%t, want %t: %s", got, want, message)
		}
	}
}
