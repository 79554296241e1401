package whois

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cluster"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/output"
)

// past is who had an address at an instant, as far as that is still known.
type past struct {
	Address string    `json:"address"`
	At      time.Time `json:"at"`
	// Pools are those whose CIDRs contain it now.
	Pools []string `json:"pools"`
	// RecordSince is how far back the record of these pools goes: before that, a node may have
	// held it without being listed.
	RecordSince *time.Time `json:"recordSince,omitempty"`
	// NoRecord explains why no record of these pools can be read.
	NoRecord string `json:"noRecord,omitempty"`
	// Held are the blocks containing it that nodes held then: more than one is wrong.
	Held []tenure `json:"held"`
	// Before and After are the closest blocks in time, if none was held.
	Before *tenure `json:"before,omitempty"`
	After  *tenure `json:"after,omitempty"`
	// Pods are those still known that had it then, including ended ones.
	Pods []pastPod `json:"pods"`
	// Events are those about pods that name it, at any time.
	Events []pastEvent `json:"events"`
	// Unread is why there are no events.
	Unread string `json:"unread,omitempty"`
}

// known reports whether it is known who held the block then.
func (p *past) known() bool {
	return len(p.Held) > 0 || p.RecordSince != nil && p.At.After(*p.RecordSince)
}

// heldAt returns who held an address at an instant, without the pods.
func heldAt(c *cluster.Cluster, a netip.Addr, at time.Time) past {
	p := past{
		Address: a.String(), At: at.UTC(), Pools: poolsWith(c, a), Held: []tenure{},
		Pods: []pastPod{}, Events: []pastEvent{},
	}
	p.RecordSince, p.NoRecord = recordSince(c, p.Pools), c.Objects.HistoriesUnread
	for _, t := range tenures(c, a) {
		switch {
		case t.covers(at):
			p.Held = append(p.Held, t)
		case at.Before(t.Since) && p.After == nil:
			p.After = &t
		case !at.Before(t.Since):
			p.Before = &t
		}
	}
	if len(p.Held) > 0 {
		p.Before, p.After = nil, nil
	}
	return p
}

// describe writes the answer in sentences.
func (p *past) describe(s *output.Text) {
	for _, t := range p.Held {
		s.Line("At %s node %s held %s, in block %s: since %s, %s.", instant(p.At), t.Node, p.Address, t.Block, instant(t.Since), t.end())
	}
	if len(p.Held) > 1 {
		s.Line("That must not have been: run kubectl cilium-pool check.")
	}
	switch {
	case len(p.Held) > 0:
	case p.known():
		s.Line("At %s no node held %s.", instant(p.At), p.Address)
	default:
		s.Line("Who held %s at %s is not known.", p.Address, instant(p.At))
	}
	if p.Before != nil {
		s.Line("Before, node %s held it, in block %s: since %s, %s.", p.Before.Node, p.Before.Block, instant(p.Before.Since), p.Before.end())
	}
	if p.After != nil {
		s.Line("After, node %s held it, in block %s: since %s, %s.", p.After.Node, p.After.Block, instant(p.After.Since), p.After.end())
	}
	s.Line("%s", p.reach())
	for _, u := range p.Pods {
		s.Line("%s", u.sentence())
	}
	if len(p.Pods) == 0 {
		s.Line("No pod that there still is had it then.")
	}
	s.Line("Of pods that were deleted nothing is kept but events, for an hour as a rule.")
	for _, e := range p.Events {
		s.Line("Event of %s, %s: %s", e.Pod, instant(e.Time), e.Says)
	}
	if p.Unread != "" {
		s.Line("Events were not read: %s.", p.Unread)
	}
}

// end describes how a tenure ended.
func (t *tenure) end() string {
	switch {
	case t.Until == nil:
		return "and holds it still"
	case t.Reason == v1alpha1.ReasonNodeGone:
		return "until " + instant(*t.Until) + ", when the Node was gone; its machine may have run on"
	}
	return "until " + instant(*t.Until) + ", when it had given the block back"
}

// reach describes how far back the answer can go.
func (p *past) reach() string {
	names := strings.Join(p.Pools, " and of pool ")
	switch {
	case len(p.Pools) == 0:
		return "It lies in no pool now. A pool that is deleted takes its record with it."
	case p.RecordSince == nil:
		return "There is no record of pool " + names + ": " +
			cmp.Or(p.NoRecord, "the operator has yet to write its PodIPPoolHistory, or may not, which its log says") + "."
	}
	return fmt.Sprintf("The record of pool %s goes back to %s.", names, instant(*p.RecordSince))
}
