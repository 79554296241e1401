package world

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Faults is a set of faults that may happen.
type Faults uint32

// Faults.
const (
	Kill           Faults = 1 << iota // an operator's process dies
	KillAfterWrite                    // it dies when a write is done and not answered
	Unheard                           // a write is done, and the answer is lost
	Fail                              // a call fails, or is refused for now
	Lag                               // watches lag, each kind for itself
	HandlerLag                        // handlers lag behind their caches
	Relist                            // a watch begins anew with a list
	StaleList                         // a first list is old
	Freeze                            // an operator's process stops for a while
	Jump                              // a lot of time passes, or the lease with it
	Skew                              // operators' clocks are off
	AgentKill                         // agents restart
	AgentEmpty                        // a restarted agent reports no address
	AgentMute                         // an agent does not report for long, or never
	NodeGone                          // Nodes are deleted, with or without their machine, and made again
	CiliumNodeGone                    // users delete CiliumNodes
	PoolEdits                         // pools are edited, made and deleted
	BlockEdits                        // users delete and make blocks
	Torn                              // block objects are torn away, their status or finalizers taken
	Edits                             // users edit CiliumNodes, and touch objects
	Restore                           // a backup of pools and blocks is restored: new UIDs, no status
	Upgrade                           // an operator is replaced by one with other defaults
	ForcedPods                        // pods are removed before their node knows
	allFaults      = 1<<iota - 1
)

func names() []string {
	return []string{"kill", "kill-after-write", "unheard", "fail", "lag", "handler-lag", "relist", "stale-list", "freeze",
		"jump", "skew", "agent-kill", "agent-empty", "agent-mute", "node-gone", "ciliumnode-gone", "pool-edits", "block-edits",
		"torn", "edits", "restore", "upgrade", "forced-pods"}
}

// AllFaults returns all faults.
func AllFaults() Faults { return allFaults }

// Has reports whether all of these may happen.
func (f Faults) Has(one Faults) bool { return f&one == one }

func (f Faults) String() string { return FormatSet(f, names()) }

// ParseFaults reads the notation of ParseSet.
func ParseFaults(s string) (Faults, error) { return ParseSet[Faults](s, names()) }

// Each returns the single elements of a set.
func Each[T ~uint32](set T) (out []T) {
	for one := T(1); one != 0; one <<= 1 {
		if set&one != 0 {
			out = append(out, one)
		}
	}
	return out
}

// FormatSet returns the notation that ParseSet reads.
func FormatSet[T ~uint32](set T, names []string) string {
	var out []string
	for i, name := range names {
		if set&(1<<i) != 0 {
			out = append(out, name)
		}
	}
	return cmp.Or(strings.Join(out, ","), "none")
}

// ParseSet reads names separated by commas, "all" and "none".
func ParseSet[T ~uint32](s string, names []string) (set T, err error) {
	switch s {
	case "all":
		return 1<<len(names) - 1, nil
	case "", "none":
		return 0, nil
	}
	for part := range strings.SplitSeq(s, ",") {
		i := slices.Index(names, part)
		if i < 0 {
			return 0, fmt.Errorf("%q is unknown; there are %s", part, strings.Join(names, ","))
		}
		set |= 1 << i
	}
	return set, nil
}
