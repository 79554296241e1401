//go:build linux

package main

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
)

// wholeRules judge every version of everything in a mode where agents are told
// whole blocks, by the rules of docs/architecture.md as docs/modes.md has them,
// and count who wrote what agents are told.
type wholeRules struct {
	carrier

	mu     sync.Mutex
	lists  map[string][]netip.Prefix         // by node
	blocks map[string]ownedBlock             // by name
	own    map[string][]netip.Addr           // agents' addresses, by node
	pods   map[string]map[string]*corev1.Pod // by node and name
	writes map[string]int                    // of lists, by who wrote
	broken []string
	// moments are what became of CIDRs, in their order.
	moments []moment
}

func newWholeRules(c carrier) *wholeRules {
	return &wholeRules{
		carrier: c, lists: map[string][]netip.Prefix{}, blocks: map[string]ownedBlock{},
		own: map[string][]netip.Addr{}, pods: map[string]map[string]*corev1.Pod{}, writes: map[string]int{},
	}
}

// watchWhole has every version judged from now on.
func (e *env) watchWhole(ctx context.Context, c carrier) error {
	return e.watchRules(ctx, newWholeRules(c))
}

func (e *env) watchRules(ctx context.Context, w *wholeRules) (err error) {
	e.whole = w
	e.rules, err = invariant.Watch(ctx, e.Config(), invariant.Options{
		OnChange: e.whole.see,
		// What stands in the fields of crd mode nobody reads here; agents in kubernetes
		// mode write podCIDRs of their own.
		Expect: func(v invariant.Violation) bool {
			return !strings.HasPrefix(v.Subject, "PodIPBlock ") || strings.Contains(v.Text, "in the pool of node")
		},
	})
	return err
}

// begin takes what there is as it is.
func (w *wholeRules) begin(kind invariant.Kind, list client.ObjectList) error {
	err := meta.EachListItem(list, func(o runtime.Object) error {
		object, ok := o.(client.Object)
		if ok {
			w.see(invariant.Change{Kind: kind, Name: object.GetName(), New: object})
		}
		return nil
	})
	clear(w.writes)
	return err
}

// judgeWhole checks that no rule was broken since watchWhole, and that Cilium's
// operator wrote nothing that agents are told, where that can be told.
func (e *env) judgeWhole(ctx context.Context) error {
	if err := e.rules.Sync(ctx); err != nil {
		return err
	}
	var broken []string
	for _, v := range e.rules.Violations() {
		broken = append(broken, v.String())
	}
	e.whole.mu.Lock()
	broken = append(broken, e.whole.broken...)
	writes := maps.Clone(e.whole.writes)
	e.whole.mu.Unlock()
	for _, b := range broken {
		e.Logf("broken: %s", b)
	}
	e.check(len(broken) == 0, "promised rules broken at any instant", "%d", len(broken))
	if len(e.whole.fields) == 0 {
		e.check(writes["nobody"] > 0, "writes of what agents are told, by whomever", "%d", writes["nobody"])
		return nil
	}
	e.check(writes[ciliumWriter] == 0 && writes[operatorWriter] > 0, "writes of what agents are told: by us, by agents, by cilium-operator", "%d, %d, %d",
		writes[operatorWriter], writes[agentWriter], writes[ciliumWriter])
	for who, n := range writes {
		if !slices.Contains([]string{operatorWriter, agentWriter, ciliumWriter}, who) {
			e.Logf("%d writes by %s", n, who)
		}
	}
	return nil
}

// see judges one version. It is called for one at a time, in their order.
func (w *wholeRules) see(c invariant.Change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch c.Kind {
	case invariant.KindBlock:
		w.seeBlock(c)
	case invariant.KindPod:
		w.seePod(c)
	case invariant.KindCiliumNode:
		w.own[c.Name] = ownAddresses(c.New)
	}
	object := c.New
	if object == nil {
		object = c.Old
	}
	if object == nil {
		return
	}
	if _, is := w.cidrs(object); is {
		w.seeList(c)
	}
}

func (w *wholeRules) seeList(c invariant.Change) {
	before, after, who := w.lists[c.Name], []netip.Prefix(nil), "nobody"
	if c.New != nil {
		after, _ = w.cidrs(c.New)
		who = writer(c.New, w.fields)
	}
	if slices.Equal(before, after) {
		return
	}
	w.writes[who]++
	w.lists[c.Name] = after
	for _, cidr := range after {
		if !slices.Contains(before, cidr) {
			w.note(c, cidr, isTold)
			w.came(c, cidr, who)
		}
	}
	for _, cidr := range before {
		if slices.Contains(after, cidr) {
			continue
		}
		w.note(c, cidr, notTold)
		if c.New != nil {
			w.went(c, cidr, who)
		}
	}
}

func (w *wholeRules) note(c invariant.Change, cidr netip.Prefix, what happening) {
	w.moments = append(w.moments, moment{cidr, what, c.Received})
}

// timeline is what became of CIDRs since it began.
func (w *wholeRules) timeline() []moment {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.moments)
}

// came is rule 1 for a CIDR that an agent is told from now on. One that its
// object was made with somebody gave it by hand.
func (w *wholeRules) came(c invariant.Change, cidr netip.Prefix, who string) {
	for other, list := range w.lists {
		if other != c.Name && slices.ContainsFunc(list, cidr.Overlaps) {
			w.find(c, 1, "%s told %s by %s, of which %s is told something too", c.Name, cidr, who, other)
		}
	}
	if c.Old == nil {
		return
	}
	for _, b := range w.blocks {
		if b.cidr == cidr && b.node == c.Name && !b.cooling {
			return
		}
	}
	w.find(c, 1, "%s told %s by %s, and it has no such block in service", c.Name, cidr, who)
}

// went is rule 2 for a CIDR that an agent is told no more.
func (w *wholeRules) went(c invariant.Change, cidr netip.Prefix, who string) {
	if who != w.takes {
		w.find(c, 2, "%s of %s taken off by %s", cidr, c.Name, who)
	}
	for _, addr := range w.own[c.Name] {
		if cidr.Contains(addr) {
			w.find(c, 2, "%s of %s taken off by %s while the agent itself has %s", cidr, c.Name, who, addr)
		}
	}
	for name, pod := range w.pods[c.Name] {
		for _, ip := range pod.Status.PodIPs {
			if addr, err := netip.ParseAddr(ip.IP); err == nil && cidr.Contains(addr) && pod.DeletionTimestamp == nil {
				w.find(c, 2, "%s of %s taken off by %s while pod %s has %s", cidr, c.Name, who, name, addr)
			}
		}
	}
}

// seeBlock is rule 1 for a block that goes.
func (w *wholeRules) seeBlock(c invariant.Change) {
	_, known := w.blocks[c.Name]
	delete(w.blocks, c.Name)
	if b, ok := blockOf(c.New); ok {
		w.blocks[c.Name] = b
		if !known {
			w.note(c, b.cidr, isMade)
		}
		return
	}
	old, ok := blockOf(c.Old)
	w.note(c, old.cidr, isUnmade)
	for node, list := range w.lists {
		if ok && slices.ContainsFunc(list, old.cidr.Overlaps) {
			w.find(c, 1, "block %s of %s deleted while %s is told it", old.cidr, old.node, node)
		}
	}
}

func (w *wholeRules) seePod(c invariant.Change) {
	if old, ok := c.Old.(*corev1.Pod); ok {
		delete(w.pods[old.Spec.NodeName], c.Name)
	}
	if pod, ok := c.New.(*corev1.Pod); ok && pod.Spec.NodeName != "" && !pod.Spec.HostNetwork {
		if w.pods[pod.Spec.NodeName] == nil {
			w.pods[pod.Spec.NodeName] = map[string]*corev1.Pod{}
		}
		w.pods[pod.Spec.NodeName][c.Name] = pod
	}
}

func (w *wholeRules) find(c invariant.Change, rule int, format string, args ...any) {
	w.broken = append(w.broken, fmt.Sprintf("rule %d: %s (resourceVersion %d)", rule, fmt.Sprintf(format, args...), c.Version))
}
