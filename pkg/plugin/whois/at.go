package whois

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/audit/check"
	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
)

// tenure is the time that a node held a block, or that a pod's name kept an address.
type tenure struct {
	Block  string `json:"block,omitempty"`
	Node   string `json:"node,omitempty"`
	Pool   string `json:"pool,omitempty"`
	Owner  string `json:"owner,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Since is when it began. Until is when it ended; zero: the log has no end of it.
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
}

// formerOwner is who had an address at a time, as far as a log shows.
type formerOwner struct {
	Address string    `json:"address"`
	At      time.Time `json:"at"`
	// Nodes held a block with the address then: more than one is wrong.
	Nodes []tenure `json:"nodes"`
	// Owners are those that the address was kept for.
	Owners []tenure `json:"owners"`
	// Before and After are the next holders; nil: the log has none.
	Before *tenure `json:"before,omitempty"`
	After  *tenure `json:"after,omitempty"`
	// LogFrom and LogUntil are the times of the first and the last line.
	LogFrom  time.Time `json:"logFrom"`
	LogUntil time.Time `json:"logUntil"`
}

// formerOwnerOf reads logs for who had an address at a time, in RFC 3339.
func formerOwnerOf(e *cli.Env, addr netip.Addr, at string, files []string) (formerOwner, error) {
	moment, err := time.Parse(time.RFC3339, at)
	if err != nil {
		return formerOwner{}, cli.Usagef("--at is %s: must be a time as in 2026-11-20T14:05:00Z", at)
	}
	progress := check.NewProgress(e.Raw.ErrOut)
	log := holderLog{addr: addr, progress: func(n int) { progress.Read("lines", n) }}
	err = log.readFiles(e.In, files)
	progress.Clear()
	if err != nil {
		return formerOwner{}, err
	}
	return log.at(moment.UTC()), nil
}

// at returns who had the address at a time.
func (l *holderLog) at(moment time.Time) formerOwner {
	found := formerOwner{Address: l.addr.String(), At: moment, Nodes: []tenure{}, Owners: []tenure{}, LogFrom: l.from, LogUntil: l.until}
	for _, t := range l.nodes() {
		switch {
		case t.Since.After(moment):
			if found.After == nil {
				found.After = &t
			}
		case t.Until.IsZero() || t.Until.After(moment):
			found.Nodes = append(found.Nodes, t)
		default:
			found.Before = &t
		}
	}
	for _, t := range l.owners() {
		if !t.Since.After(moment) && (t.Until.IsZero() || t.Until.After(moment)) {
			found.Owners = append(found.Owners, t)
		}
	}
	return found
}

// nodes returns the holders of blocks with the address, the first first.
func (l *holderLog) nodes() []tenure {
	var held []tenure
	for _, line := range l.lines {
		if !line.Block.IsValid() {
			continue
		}
		block := line.Block.String()
		last := len(held) - 1
		for last >= 0 && held[last].Block != block {
			last--
		}
		now := tenure{Block: block, Node: line.Node, Pool: line.Pool, Owner: line.Owner, Since: line.Since, Until: line.Until, Reason: line.Reason}
		switch line.Message {
		case config.BlockClaimed:
			now.Since = line.Time
		case config.BlockReturned:
			now.Until = line.Time
		}
		known := last >= 0 && held[last].Node == now.Node && (held[last].Until.IsZero() || held[last].Since.Equal(now.Since))
		if known && line.Message != config.BlockClaimed {
			held[last] = now
		} else {
			held = append(held, now)
		}
	}
	slices.SortStableFunc(held, func(a, b tenure) int { return a.Since.Compare(b.Since) })
	return held
}

// pods returns the pods that alone got the address, or addresses of its block.
func (l *holderLog) owners() []tenure {
	var kept []tenure
	for _, line := range l.lines {
		last := len(kept) - 1
		switch {
		case line.Message == config.AddressKept:
			kept = append(kept, tenure{Owner: line.Owner, Since: line.Time})
		case line.Message != config.AddressReleased:
		case last >= 0 && kept[last].Owner == line.Owner && kept[last].Until.IsZero():
			kept[last].Until = line.Time
		default: // the log begins later
			kept = append(kept, tenure{Owner: line.Owner, Until: line.Time})
		}
	}
	for _, t := range l.nodes() {
		if t.Owner != "" {
			kept = append(kept, t)
		}
	}
	return kept
}

// isKnown reports whether the log covers the time, or a line tells of it from outside.
func (f *formerOwner) isKnown() bool {
	return len(f.Nodes) > 0 || !f.At.Before(f.LogFrom) && !f.At.After(f.LogUntil)
}

func (f *formerOwner) describe(s *cli.Text) {
	for _, t := range f.Nodes {
		s.Line("%s was in block %s of pool %s, which node %s held %s.", f.Address, t.Block, t.Pool, t.Node, t.words())
		if t.Reason == string(expand.NodeGone) {
			s.Line("Its Node was deleted then: the machine may have run on.")
		}
	}
	if len(f.Nodes) > 1 {
		s.Line("That must not be, unless a user removed a block by force: the line of its return is missing then.")
	}
	for _, t := range f.Owners {
		s.Line("Only %s got it, %s.", crd.OwnerWords(t.Owner), t.words())
	}
	if len(f.Nodes) > 0 && len(f.Owners) == 0 {
		s.Line("The log names no pod: ask the API server's audit log, or Cilium's flow log.")
	}
	if len(f.Nodes) == 0 {
		s.Line("The log names no node that held %s at %s.", f.Address, rfc3339(f.At))
		for _, t := range []*tenure{f.Before, f.After} {
			if t != nil {
				s.Line("Node %s held block %s %s.", t.Node, t.Block, t.words())
			}
		}
		s.Line("A block that was claimed before %s and is still held has no line.", rfc3339(f.LogFrom))
	}
	s.Line("The log has lines from %s to %s.", rfc3339(f.LogFrom), rfc3339(f.LogUntil))
	if f.At.Before(f.LogFrom) || f.At.After(f.LogUntil) {
		s.Line("It does not cover %s.", rfc3339(f.At))
	}
}

// words describes the time of a tenure.
func (t *tenure) words() string {
	begin := "from " + rfc3339(t.Since)
	if t.Since.IsZero() {
		begin = "from before the log"
	}
	if t.Until.IsZero() {
		return begin + " on"
	}
	end := fmt.Sprintf("%s until %s", begin, rfc3339(t.Until))
	if t.Reason != "" {
		end += " (" + t.Reason + ")"
	}
	return end
}

func rfc3339(t time.Time) string { return t.UTC().Format(time.RFC3339) }
