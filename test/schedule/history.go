package main

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// change is a version of an object, or its end, reduced to what is judged. Exactly one
// of the pointers is set; a kind of change whose object is gone has gone set, too.
type change struct {
	// version is the resourceVersion, which orders changes of all kinds: they are
	// in one etcd.
	version uint64
	// at is when the watch showed it, since the run began.
	at   time.Duration
	name string
	gone bool

	pod       *podSeen
	node      *nodeSeen
	addresses *addressesSeen
	block     *blockSeen
	pool      *poolSeen
}

// podSeen is a pod on the pod network.
type podSeen struct {
	// node is empty while the pod is pending.
	node string
	// zone restricts where it may run; empty: anywhere.
	zone string
	// requests is how many addresses it requests.
	requests int
	address  netip.Addr // zero: none yet
	running  bool
	leaving  bool // being deleted
	ended    bool
}

// nodeSeen is a Node.
type nodeSeen struct {
	zone string
	// cordoned: or tainted, against all pods.
	cordoned bool
	// offer is how many addresses it offers; -1: it does not have the resource.
	offer int
}

// addressesSeen are the addresses of a CiliumNode that are not the agent's own, and that
// any pod may get.
type addressesSeen struct {
	free []netip.Addr
	// leaving are marked for release, or further on their way out.
	leaving []netip.Addr
}

// blockSeen is a PodIPBlock.
type blockSeen struct {
	cidr netip.Prefix
	// drains and cools are how far it has come on its way back to its pool.
	drains, cools bool
}

// poolSeen is a PodIPPool: the CIDRs of which nodes get blocks.
type poolSeen struct {
	zone      string
	cidrs     []netip.Prefix
	blockBits int
}

// inOrder sorts what several watches have shown. A later change is not earlier in time.
func inOrder(history []change) {
	slices.SortStableFunc(history, func(a, b change) int { return cmp.Compare(a.version, b.version) })
	var now time.Duration
	for i := range history {
		now = max(now, history[i].at)
		history[i].at = now
	}
}
