package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// failoverTable returns a table with a row for each way in which a leader ended, at each
// size.
func failoverTable(k kept) string {
	bySize := k.by["failover"]
	if len(bySize) == 0 {
		return ""
	}
	var out strings.Builder
	out.WriteString("### Failover\n\nTwo processes with the Lease as shipped. The leader is killed (SIGKILL) or stopped (SIGTERM), and then a pod needs an address " +
		"on a node that has none left. Time: from the signal. A killed leader's Lease has to run out, one that is stopped gives it up.\n\n" +
		"| nodes | the leader is | times | block claimed: median, s | longest, s | addresses published: median, s | longest, s | commit |\n" +
		"| --- | --- | --- | --- | --- | --- | --- | --- |\n")
	for _, nodes := range slices.Sorted(maps.Keys(bySize)) {
		m := bySize[nodes]
		for _, how := range []string{"killed", "stopped"} {
			fmt.Fprintf(&out, "| %d | %s |", nodes, how)
			for _, value := range []string{"times", "claim p50 s", "claim max s", "publish p50 s", "publish max s"} {
				out.WriteString(" " + cell(m.values(ours, how+" "+value), nil, false) + " |")
			}
			fmt.Fprintf(&out, " %s |\n", strings.Join(m.commits(), ", "))
		}
	}
	return out.String() + "\n"
}
