//go:build linux

package main

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// budgets judges each version of the pods of PodDisruptionBudgets, in their order.
type budgets struct {
	// least is how many Ready pods a budget asks for, by the value of the label app.
	least map[string]int
	// lowest is how many there were at least, once there were enough.
	lowest map[string]int
	// ready are the pods that a budget counts: Ready, and not being deleted.
	ready map[string]map[types.UID]bool
	// evicted are all pods that the Eviction API has deleted.
	evicted map[types.UID]bool
	broken  []string
}

func newBudgets(least map[string]int) *budgets {
	return &budgets{least: least, lowest: map[string]int{}, ready: map[string]map[types.UID]bool{}, evicted: map[types.UID]bool{}}
}

// see takes in a version of a pod, or its deletion.
func (b *budgets) see(pod *corev1.Pod, deleted bool) {
	leaves := deleted || pod.DeletionTimestamp != nil
	if leaves && hasCondition(pod, corev1.DisruptionTarget) {
		b.evicted[pod.UID] = true
	}
	app := pod.Labels["app"]
	least, judged := b.least[app]
	if !judged {
		return
	}
	if b.ready[app] == nil {
		b.ready[app] = map[types.UID]bool{}
	}
	was := b.ready[app][pod.UID]
	if b.ready[app][pod.UID] = !leaves && hasCondition(pod, corev1.PodReady); !b.ready[app][pod.UID] {
		delete(b.ready[app], pod.UID)
	}
	if was && leaves && !b.evicted[pod.UID] {
		b.broken = append(b.broken, pod.Name+" was deleted without an eviction")
	}
	b.count(app, least)
}

// count judges how many pods of an app are Ready, from when there were enough.
func (b *budgets) count(app string, least int) {
	ready := len(b.ready[app])
	lowest, begun := b.lowest[app]
	switch {
	case !begun && ready < least:
		return
	case !begun || ready < lowest:
		b.lowest[app] = ready
	}
	if ready < least {
		b.broken = append(b.broken, fmt.Sprintf("%d pods of %s are Ready, %d must be", ready, app, least))
	}
}

// begun reports whether each budget had as many Ready pods as it asks for.
func (b *budgets) begun() bool { return len(b.lowest) == len(b.least) }

func hasCondition(pod *corev1.Pod, kind corev1.PodConditionType) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == kind && c.Status == corev1.ConditionTrue
	})
}

// flow is a pod that pings the address of another one.
type flow struct {
	from, to     string
	fromID, toID types.UID
	address      string
}

// lostByStaying adds up what was lost between pods both of which are still there, and
// counts these flows. results are what a pod reports, by the address that it pings.
func lostByStaying(flows []flow, now map[string]types.UID, results map[string]map[string]losses) (sum losses, judged int) {
	for _, f := range flows {
		r, reported := results[f.from][f.address]
		if now[f.from] != f.fromID || now[f.to] != f.toID || !reported {
			continue
		}
		judged++
		sum.Sent += r.Sent
		sum.Lost += r.Lost
		sum.LongestGapMs = max(sum.LongestGapMs, r.LongestGapMs)
	}
	return sum, judged
}

// renumbered is what a move has come to.
type renumbered struct {
	// flows are those between pods that were to stay, judged those of pods that did.
	flows, judged int
	pings         losses
	broken        []string // budgets
	left          []string // what still names the old range
}

// unharmed reports whether no ping was lost of a pod that was to stay.
func (r renumbered) unharmed() bool {
	return r.pings.Lost == 0 && r.pings.Sent > 0 && r.judged == r.flows && r.flows > 0
}

// passed reports whether all is as it should be.
func (r renumbered) passed() bool { return r.unharmed() && len(r.broken) == 0 && len(r.left) == 0 }

var ipv4 = regexp.MustCompile(`\b\d{1,3}(?:\.\d{1,3}){3}(?:/\d{1,2})?`)

// named are the addresses and CIDRs in a text that lie in a range, each once.
func named(text string, in netip.Prefix) []string {
	var out []string
	for _, word := range ipv4.FindAllString(text, -1) {
		p, err := netip.ParsePrefix(word)
		if addr, addrErr := netip.ParseAddr(word); addrErr == nil {
			p, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		if err == nil && p.Bits() >= in.Bits() && in.Contains(p.Addr()) {
			out = append(out, word)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
