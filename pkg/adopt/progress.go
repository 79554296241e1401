package adopt

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Step is a node's progress in a move.
type Step string

// Steps, in order. A Finished node has completed its move, or never had another IPAM; a
// Returning one is on its way back.
const (
	Old       Step = "old"
	Adopted   Step = "adopted"
	Published Step = "published"
	Moved     Step = "moved"
	Settled   Step = "settled"
	Finished  Step = "finished"
	Returning Step = "returning"
)

// Steps returns the steps of a move, in order.
func Steps() []Step { return []Step{Old, Adopted, Published, Moved, Settled, Finished} }

// Reached reports whether a node at s has come as far as want. A node on its way back has
// reached none.
func (s Step) Reached(want Step) bool {
	return slices.Index(Steps(), s) >= slices.Index(Steps(), want) && s != Returning
}

// Progress is the state that determines a node's Step.
type Progress struct {
	Node
	Blocks []crd.Block // the node's
	// Publishable returns the addresses of a block in service that pods may have: none while its
	// range drains.
	Publishable func(crd.Block) []netip.Addr
	// Whole: it moves to multi-pool mode. Listed are the CIDRs that its agent finds there.
	Whole  bool
	Listed []netip.Prefix
	// Settled: its agent has been Ready for a while.
	Settled bool
	// Unreported is the number of pods' addresses that the agent does not report.
	Unreported int
	// Back is the mode that it returns to. Empty: it does not.
	Back string
}

// Step returns the node's progress.
func (s *Progress) Step() Step {
	byHand := s.From == CRD
	switch {
	case s.Back != "":
		return Returning
	case s.From == None:
		return Finished
	case (byHand || !s.Reported) && s.lacksBlocks():
		return Old
	case (byHand || !s.Reported) && s.lacksAddresses():
		return Adopted
	case !s.Reported:
		return Published
	case !s.Settled || s.Unreported > 0:
		return Moved
	}
	return Settled
}

// lacksBlocks reports whether something assigned to the node is not a block yet.
func (s *Progress) lacksBlocks() bool {
	blocks := crd.CIDRs(s.Blocks)
	if s.From == CRD && slices.ContainsFunc(s.Published, func(a netip.Addr) bool {
		return !ipalloc.Covered(netip.PrefixFrom(a, a.BitLen()), blocks)
	}) {
		return true
	}
	return len(ipalloc.Uncovered(s.AssignedCIDRs, blocks)) > 0
}

// lacksAddresses reports whether some addresses of its blocks that pods may have, or do have,
// are not published.
func (s *Progress) lacksAddresses() bool {
	if s.Whole {
		return slices.ContainsFunc(s.Blocks, func(b crd.Block) bool {
			return b.Phase == ipalloc.InService && !b.Deleting && !slices.Contains(s.Listed, b.CIDR)
		})
	}
	published := make(map[netip.Addr]bool, len(s.Published))
	for _, a := range s.Published {
		published[a] = true
	}
	for _, b := range s.Blocks {
		if b.Phase != ipalloc.InService || b.Deleting {
			continue
		}
		if slices.ContainsFunc(s.Publishable(b), func(a netip.Addr) bool { return !published[a] }) {
			return true
		}
		for a := range s.Used {
			if b.CIDR.Contains(a) && !published[a] {
				return true
			}
		}
	}
	return false
}

// ReturnFacts is the state of a node that returns to another mode.
type ReturnFacts struct {
	To Source
	// PodCIDRs are the CiliumNode's, NodePodCIDRs the Node's.
	PodCIDRs, NodePodCIDRs []netip.Prefix
	Blocks                 []crd.Block
	// Used are the addresses in use, and by whom.
	Used map[netip.Addr]string
}

// Refusal returns why the node cannot go back now. Empty: it can. It can always return to
// multi-pool mode, which allows any number of CIDRs; the other modes allow one of each family.
func (b ReturnFacts) Refusal() string {
	blocks := crd.CIDRs(b.Blocks)
	for _, a := range slices.SortedFunc(maps.Keys(b.Used), netip.Addr.Compare) {
		if !ipalloc.Covered(netip.PrefixFrom(a, a.BitLen()), blocks) {
			return fmt.Sprintf("%s has %s, which is in no block of the node", b.Used[a], a)
		}
	}
	if b.To == MultiPool {
		return ""
	}
	var seen [2]netip.Prefix
	for _, cidr := range blocks {
		f := ipalloc.FamilyOf(cidr.Addr())
		if seen[f].IsValid() {
			return fmt.Sprintf("it has %s and %s, and %s mode can have one CIDR of a family: drain all but its old one (kubectl cilium-pool drain), or go back to multi-pool", seen[f], cidr, b.To)
		}
		seen[f] = cidr
	}
	for _, block := range b.Blocks {
		if block.Phase != ipalloc.InService {
			return fmt.Sprintf("its block %s is %s", block.CIDR, block.Phase)
		}
		if block.AdoptedFrom == "" {
			return fmt.Sprintf("its block %s is none that it came with", block.CIDR)
		}
		if b.To == Kubernetes && !slices.Contains(b.NodePodCIDRs, block.CIDR) {
			return fmt.Sprintf("its block %s is not in the podCIDRs of its Node", block.CIDR)
		}
	}
	if notAmong(b.PodCIDRs, blocks) {
		return "its podCIDRs name what is no block of it"
	}
	if b.To == ClusterPool && notAmong(blocks, b.PodCIDRs) {
		return "its podCIDRs do not name its block, so that an agent in that mode would not find it"
	}
	return ""
}
