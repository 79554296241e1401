package invariant

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	ipamoption "github.com/cilium/cilium/pkg/ipam/option"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// judge returns the rules that a change breaks. The model is the state before it.
func (m *model) judge(c Change, from origin, cooldown time.Duration) []Violation {
	switch c.Kind {
	case KindCiliumNode:
		if c.New == nil {
			return m.judgeDeletion(c, from)
		}
		j := &judgement{model: m, node: c.Name, version: c.Version, old: m.views[c.Name], now: newView(c), unshown: c.Unshown}
		if c.Old != nil {
			j.since = " since resourceVersion " + c.Old.GetResourceVersion()
			j.oldVersion, _ = strconv.ParseUint(c.Old.GetResourceVersion(), 10, 64)
		}
		j.published()
		if from == watched {
			j.releaseEntries()
			j.removed()
			j.retired()
		}
		j.podCIDRs()
		return j.violations
	case KindBlock:
		return m.judgeBlock(c, from, cooldown)
	}
	return nil
}

// judgeDeletion is rule 2 for a CiliumNode that is deleted while its Node exists: its pods lose
// their addresses when the agent restarts. A CiliumNode owned by an older Node of that name is
// garbage, and a deletion that was missed is not judged.
func (m *model) judgeDeletion(c Change, from origin) []Violation {
	node := m.objects[KindNode][c.Name]
	if node == nil || from != watched || OwnedByAnother(c.Old, node) {
		return nil
	}
	j := &judgement{model: m, node: c.Name, version: c.Version, old: m.views[c.Name]}
	used := groups{}
	for _, addr := range without(j.old, nil) {
		if by := j.usedBy(addr); by != "" {
			used.add(by, addr)
		}
	}
	if by := used.sorted(); len(by) > 0 {
		j.find(2, "deleted though its Node is there, with %s used by %s and %d other users", list(used[by[0]]), by[0], len(by)-1)
	}
	return j.violations
}

// OwnedByAnother reports whether an object has owners and the Node is not one of them.
func OwnedByAnother(o, node client.Object) bool {
	owners := o.GetOwnerReferences()
	return len(owners) > 0 && !slices.ContainsFunc(owners, func(ref metav1.OwnerReference) bool { return ref.UID == node.GetUID() })
}

// judgement is the judgement of one version of one CiliumNode.
type judgement struct {
	*model
	node       string
	version    uint64
	oldVersion uint64
	old, now   *view
	since      string
	unshown    func(netip.Prefix) bool
	violations []Violation
}

func (j *judgement) find(rule int, format string, args ...any) {
	j.violations = append(j.violations, Violation{
		Rule: rule, Subject: "CiliumNode " + j.node, Version: j.version, Text: fmt.Sprintf(format, args...),
	})
}

// published is rule 1 for added addresses.
func (j *judgement) published() {
	wrong := groups{}
	was := j.putBack()
	for _, addr := range without(j.now, j.old) {
		for _, other := range j.model.published[addr] {
			if other != j.node {
				wrong.add("in the pool of node "+other+" too", addr)
			}
		}
		if what := j.wrongBlock(addr, was); what != "" {
			wrong.add(what, addr)
		}
	}
	for _, what := range wrong.sorted() {
		j.find(1, "%s %s", list(wrong[what]), what)
	}
}

// releaseEntries is rule 2 for added addresses: the agent does not use an address while its
// release entry stands.
func (j *judgement) releaseEntries() {
	if j.old == nil {
		return
	}
	standing := groups{}
	for _, addr := range without(j.now, j.old) {
		if state, stands := j.old.release[addr]; stands {
			standing.add(state, addr)
		}
	}
	for _, state := range standing.sorted() {
		j.find(2, "%s published while its release-ips entry says %s%s", list(standing[state]), state, j.since)
	}
}

// wrongBlock returns why no block of the node allows an address to be published; "": one does.
func (j *judgement) wrongBlock(addr netip.Addr, was *view) string {
	own := j.heldBy(j.node, addr)
	if own != nil {
		earlier := j.overlapped(own)
		switch {
		case own.cooling && j.seen(own.from):
			return "published though its block " + own.name + " cools down"
		case earlier != nil:
			return "published though its block " + own.name + " overlaps an older one, " + earlier.name
		}
		return ""
	}
	if over := j.blocksOver(addr); len(over) > 0 {
		return "published though it lies in block " + over[0].name + " of node " + over[0].node
	}
	stood := was != nil && (was.pool[addr] || j.byHand[j.node][addr])
	if pool := j.inPool(addr); pool != "" && !stood {
		return "of PodIPPool " + pool + " published before a block of it exists"
	}
	return ""
}

// putBack returns the deleted CiliumNode for a version that recreates it: that version, but no
// later one, may contain the content of the deleted one. It may also contain users' writes into an
// earlier one, because a lagging leader restores the last version it has seen. Nil: it is not such
// a version.
func (j *judgement) putBack() *view {
	if j.old != nil {
		return nil
	}
	return j.deleted[j.node]
}

// seen reports whether the CiliumNode has changed since version, so that a patch decided on
// earlier must have lost. A patch decided on while a block was in service may arrive late as
// long as the CiliumNode does not change: the block then drains and cools down again.
func (j *judgement) seen(version uint64) bool { return j.old == nil || j.oldVersion > version }

// removed is rule 2 and, for foreign entries, rule 7, for removed addresses.
func (j *judgement) removed() {
	if j.old == nil || j.objects[KindNode][j.node] == nil {
		return
	}
	for key := range j.old.unreadable {
		if !j.now.unreadable[key] {
			j.find(7, "foreign pool entry %q was removed", key)
		}
	}
	used, unasked, foreign := groups{}, groups{}, groups{}
	for _, addr := range without(j.old, j.now) {
		if j.heldBy(j.node, addr) == nil {
			foreign.add("", addr)
			continue
		}
		if by := j.usedBy(addr); by != "" {
			used.add(by, addr)
		}
		switch state := j.old.release[addr]; state {
		case ipamoption.IPAMReadyForRelease, ipamoption.IPAMReleased:
		case ipamoption.IPAMMarkForRelease:
			if !j.old.familyNotRun(addr) {
				unasked.add("with release-ips state "+state, addr)
			}
		case "":
			unasked.add("without having been marked for release", addr)
		default:
			unasked.add("with release-ips state "+state, addr)
		}
	}
	for _, by := range used.sorted() {
		j.find(2, "%s left the pool while used by %s%s", list(used[by]), by, j.since)
	}
	for _, state := range unasked.sorted() {
		j.find(2, "%s left the pool %s%s", list(unasked[state]), state, j.since)
	}
	if addrs := foreign[""]; len(addrs) > 0 {
		j.find(7, "foreign %s left the pool%s", list(addrs), j.since)
	}
}

// usedBy returns the user of an address in the previous version; "": none.
func (j *judgement) usedBy(addr netip.Addr) string {
	if owner, ok := j.old.used[addr]; ok {
		return owner + " (status.ipam.used)"
	}
	if j.old.own[addr] && (!j.old.stays[addr] || !j.old.familyNotRun(addr)) {
		return "the agent itself (spec.addresses, health or ingress)"
	}
	for key, pod := range j.podsOn[j.node] {
		if hasIP(pod, addr) {
			return fmt.Sprintf("pod %s (status.podIPs, resourceVersion %s)", key, pod.ResourceVersion)
		}
	}
	return ""
}

// groups collects addresses by finding.
type groups map[string][]netip.Addr

func (g groups) add(what string, addr netip.Addr) { g[what] = append(g[what], addr) }

func (g groups) sorted() []string { return slices.Sorted(maps.Keys(g)) }

// list names the first addresses and counts the rest.
func list(addrs []netip.Addr) string {
	const most = 3
	var parts []string
	for _, addr := range addrs[:min(most, len(addrs))] {
		parts = append(parts, addr.String())
	}
	if more := len(addrs) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(parts, ", "), more)
	}
	return strings.Join(parts, ", ")
}
