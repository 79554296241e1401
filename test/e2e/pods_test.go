//go:build linux

package main

import (
	"errors"
	"testing"
)

func TestReasonsOfFailedAdds(t *testing.T) {
	for reason, test := range map[string]struct{ unseen, other bool }{
		"No more IPs available: all CIDR ranges are exhausted":                                        {},
		`unable to allocate from pool "default" (family ipv4): pool not (yet) available`:              {},
		"no IPs currently available on the node":                                                      {},
		`unable to determine IPAM pool for owner "default/p": resource "Pod" "default" "p" not found`: {unseen: true, other: true},
		"429 putEndpointIdTooManyRequests":                                                            {other: true},
	} {
		err := errors.New(reason)
		if notSeen(err) != test.unseen || len(otherReasons([]error{err})) == 1 != test.other {
			t.Errorf("%s: not seen %t, another reason %t", reason, notSeen(err), len(otherReasons([]error{err})) == 1)
		}
	}
}
