package main

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// change is a version of an object, or its deletion, reduced to what is judged. Exactly one of
// the pointers is set; gone is also set if the object is deleted.
type change struct {
	// version is the resourceVersion, which orders changes of all kinds: they are
	// in one etcd.
	version uint64
	// at is when the watch delivered it, since the run began.
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
	// zone restricts where the pod may run; empty: anywhere.
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
	// cordoned is also true for a taint against all pods.
	cordoned bool
	// offer is how many addresses it offers; -1 if it lacks the resource.
	offer int
}

// addressesSeen are the addresses of a CiliumNode that are not the agent's own, and that
// any pod may get.
type addressesSeen struct {
	free []netip.Addr
	// leaving are marked for release, or in a later state of it.
	leaving []netip.Addr
}

// blockSeen is a PodIPBlock.
type blockSeen struct {
	cidr netip.Prefix
	// drains and cools are the stages of its return to its pool.
	drains, cools bool
}

// poolSeen is a PodIPPool, with the CIDRs from which nodes get blocks.
type poolSeen struct {
	zone      string
	cidrs     []netip.Prefix
	blockBits int
}

// inOrder sorts the changes that several watches have delivered. A later change is not earlier
// in time.
func inOrder(history []change) {
	slices.SortStableFunc(history, func(a, b change) int { return cmp.Compare(a.version, b.version) })
	var now time.Duration
	for i := range history {
		now = max(now, history[i].at)
		history[i].at = now
	}
}
