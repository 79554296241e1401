package explain

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterview"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
)

func explainGrowth(c *clusterview.Cluster, s *cli.Text, d *clusterview.Decision) {
	if grows(d.Plan) {
		s.Line("Now %s.", growth(d, c, d.Plan))
	} else if n, plan, ok := morePods(d, mostPods(d)); ok {
		s.Line("With %s %s.", suggest.Plural(n, "more pod", "more pods"), growth(d, c, plan))
	}
}

func explainShrinking(s *cli.Text, d *clusterview.Decision) {
	if line := returnOf(d.State.BlockAssignment); line != "" {
		s.Line("%s", line)
		return
	}
	n, ok := fewerPods(d)
	switch {
	case d.Policy.ReclaimDisabled:
		s.Line("It gives no block back by itself: reclaim is disabled.")
	case d.State.BlockAssignment == nil && (!d.State.AgentSettled || len(d.State.Used) == 0):
		s.Line("It gives no block back as long as its agent is not trusted.")
	case ok && n == 0:
		s.Line("It can do without %s now: that is taken back once it has held for %s without interruption.", suggest.Count(len(d.Memory.IdleSince), "block"), cli.Duration(idleFor(d)))
		explainWhen(s, d)
	case ok:
		s.Line("It gives a block back with %s: its other blocks then stay at or below %d%% in use. That has to hold for %s without interruption.",
			suggest.Plural(n, "pod fewer", "pods fewer"), d.Policy.ReclaimPercent, cli.Duration(idleFor(d)))
		explainWhen(s, d)
	case inService(d.State.Blocks) <= 1:
		s.Line("It gives no block back by itself: a node keeps its last one.")
	default:
		s.Line("It gives no block back however few its pods: it keeps those with the agent's own addresses or with addresses given to one pod by hand.")
	}
}

// returnOf says when a node returns whole blocks; "": by its pool's thresholds.
func returnOf(w *expand.BlockAssignment) string {
	switch {
	case w == nil:
		return ""
	case w.SingleBlock:
		return "It keeps its block as long as its Node is there."
	case w.ReturnsByItself():
		return "Its agent gives a block back by itself, once nothing of it is in use and its others cover what it asks for."
	case w.OfOwner:
		return "It gives its block back once no pod of the owner is here."
	case !w.Reported:
		return "It gives no block back before its node agent has reported."
	}
	return ""
}

// mostPods is the largest number of more pods that are tried for the node's growth.
func mostPods(d *clusterview.Decision) int {
	if d.State.BlockAssignment != nil && d.State.BlockAssignment.SingleBlock {
		return 0
	}
	return d.Policy.MaxAddresses + 1
}

// explainWhen describes the settings that shorten or lengthen the time until a block leaves.
func explainWhen(s *cli.Text, d *clusterview.Decision) {
	if idleFor(d) < d.Policy.IdleFor {
		s.Line("That is less than %s, as %d%% of its pool's blocks are taken.", cli.Duration(d.Policy.IdleFor), d.State.PoolTaken)
	}
	switch delay := d.State.ReclaimDelay; delay.Reason {
	case expand.WaitMode:
		s.Line("Nothing is taken back while the agent is configured for another IPAM mode than the operator's.")
	case expand.WaitNoWindow:
		s.Line("No maintenance window of pool %s will ever open: nothing is taken back.", d.Ruling())
	case expand.WaitWindow:
		s.Line("Nothing is taken back before the maintenance window of pool %s opens at %s.", d.Ruling(), delay.Until.UTC().Format(time.RFC3339))
	}
}

func idleFor(d *clusterview.Decision) time.Duration {
	return d.Policy.IdleUnder(d.State.PoolTaken, d.State.Cordoned)
}

func growth(d *clusterview.Decision, c *clusterview.Cluster, p expand.Plan) string {
	var parts []string
	if len(p.Undrain) > 0 {
		parts = append(parts, fmt.Sprintf("%s goes back into service", suggest.Few(texts(p.Undrain))))
	}
	if p.Claim.Pins > 0 {
		parts = append(parts, "it claims "+suggest.Count(p.Claim.Pins, "block")+" that are pinned to it")
	}
	if p.Claim.Addresses > 0 {
		free := uint64(0)
		for _, pool := range d.Pools {
			if !pool.Deleting {
				free += c.State.FreeIn(pool.Name, d.Family)
			}
		}
		left := "its pools have none free"
		if free > 0 {
			left = "its pools have " + cli.Many(free) + " free"
		}
		parts = append(parts, "it asks for another block, and "+left)
	}
	if p.Shortage > 0 {
		parts = append(parts, fmt.Sprintf("%s %d short", limitsKeep(d), p.Shortage))
	}
	return strings.Join(parts, ", and ")
}

// limitsKeep begins the sentence that the node is short.
func limitsKeep(d *clusterview.Decision) string {
	if w := d.State.BlockAssignment; w != nil && w.SingleBlock {
		return "its block, the only one it gets, leaves it"
	}
	return "its limits keep it"
}

func inService(blocks []expand.Block) int {
	n := 0
	for i := range blocks {
		if blocks[i].Phase == ipalloc.InService {
			n++
		}
	}
	return n
}

// These call expand.Decide with more pods, or fewer. So they print the result for any thresholds
// and limits.

// morePods returns the number of additional pods that make the node request addresses, and the plan
// in that case. It returns false if not even most more pods would.
func morePods(d *clusterview.Decision, most int) (int, expand.Plan, bool) {
	n := sort.Search(most+1, func(n int) bool { return grows(planWith(d, n)) })
	return n, planWith(d, n), n <= most
}

func grows(p expand.Plan) bool {
	return p.Claim.Addresses > 0 || len(p.Undrain) > 0 || p.Shortage > 0
}

func planWith(d *clusterview.Decision, n int) expand.Plan {
	s := d.State
	s.Pods = slices.Clone(s.Pods)
	for i := range n {
		pod := expand.Pod{Name: fmt.Sprintf("?/more-%d", i)}
		if s.BlockAssignment != nil {
			pod.Seen = d.At // where agents report no addresses, only new ones count
		}
		s.Pods = append(s.Pods, pod)
	}
	plan, _ := expand.Decide(d.At, d.Policy, s, expand.Budget{}, expand.Memory{})
	return plan
}

// fewerPods returns the number of pods that must go before a block can be reclaimed. It returns
// false if the block stays even without any pod.
func fewerPods(d *clusterview.Decision) (int, bool) {
	names := podNames(d)
	n := sort.Search(len(names)+1, func(n int) bool { return spareWithout(d, names[:min(n, len(names))]) > 0 })
	return n, n <= len(names)
}

func podNames(d *clusterview.Decision) []string {
	names := map[string]bool{}
	for _, o := range d.State.Used {
		if o = strings.TrimSuffix(o, " [restored]"); strings.Contains(o, "/") {
			names[o] = true
		}
	}
	for _, p := range d.State.Pods {
		names[p.Name] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// spareWithout returns the number of blocks that could be reclaimed without these pods.
func spareWithout(d *clusterview.Decision, names []string) int {
	s := d.State
	s.Used = maps.Clone(s.Used)
	maps.DeleteFunc(s.Used, func(_ netip.Addr, o string) bool {
		return slices.Contains(names, strings.TrimSuffix(o, " [restored]"))
	})
	s.Pods = slices.DeleteFunc(slices.Clone(s.Pods), func(p expand.Pod) bool { return slices.Contains(names, p.Name) })
	_, memory := expand.Decide(d.At, d.Policy, s, expand.Budget{}, expand.Memory{})
	return len(memory.IdleSince)
}
