//go:build linux

package main

import (
	"errors"
	"testing"
)

func TestReasonsOfFailedAdds(t *testing.T) {
	for reason, test := range map[string]struct{ unseen, busy bool }{
		"No more IPs available: all CIDR ranges are exhausted":                                        {},
		`unable to allocate from pool "default" (family ipv4): pool not (yet) available`:              {},
		"no IPs currently available on the node":                                                      {},
		`unable to determine IPAM pool for owner "default/p": resource "Pod" "default" "p" not found`: {unseen: true},
		"[PUT /endpoint/{id}][429] putEndpointIdTooManyRequests":                                      {busy: true},
	} {
		err := errors.New(reason)
		if notSeen(err) != test.unseen || busy(err) != test.busy {
			t.Errorf("%s: not seen %t, busy %t", reason, notSeen(err), busy(err))
		}
	}
}
