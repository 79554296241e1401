package explain

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sort"
	"strings"

	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cluster"
)

// These call expand.Decide with more pods, or fewer. So they print the result for any thresholds
// and limits.

// morePods returns the number of additional pods that make the node request addresses, and the plan
// in that case. It returns false if not even most more pods would.
func morePods(d *cluster.Decision, most int) (int, expand.Plan, bool) {
	n := sort.Search(most+1, func(n int) bool { return grows(planWith(d, n)) })
	return n, planWith(d, n), n <= most
}

func grows(p expand.Plan) bool {
	return p.Claim != expand.Claim{} || len(p.Undrain) > 0 || p.Shortage > 0
}

// planWith returns the plan with n more pods.
func planWith(d *cluster.Decision, n int) expand.Plan {
	s := d.State
	s.Pods = slices.Clone(s.Pods)
	for i := range n {
		pod := expand.Pod{Name: fmt.Sprintf("?/more-%d", i)}
		if s.BlockAssignment != nil {
			pod.Seen = d.At // where agents report no addresses, only new ones count
		}
		s.Pods = append(s.Pods, pod)
	}
	plan, _ := expand.Decide(d.At, d.Policy, s, expand.Memory{})
	return plan
}

// fewerPods returns the number of pods that must go before a block can be reclaimed. It returns
// false if the block stays even without any pod.
func fewerPods(d *cluster.Decision) (int, bool) {
	names := podNames(d)
	n := sort.Search(len(names)+1, func(n int) bool { return spareWithout(d, names[:min(n, len(names))]) > 0 })
	return n, n <= len(names)
}

// podNames returns the pods that the agent reports or that are bound.
func podNames(d *cluster.Decision) []string {
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
func spareWithout(d *cluster.Decision, names []string) int {
	s := d.State
	s.Used = maps.Clone(s.Used)
	maps.DeleteFunc(s.Used, func(_ netip.Addr, o string) bool {
		return slices.Contains(names, strings.TrimSuffix(o, " [restored]"))
	})
	s.Pods = slices.DeleteFunc(slices.Clone(s.Pods), func(p expand.Pod) bool { return slices.Contains(names, p.Name) })
	_, memory := expand.Decide(d.At, d.Policy, s, expand.Memory{})
	return len(memory.IdleSince)
}
