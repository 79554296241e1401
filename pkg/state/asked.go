package state

import (
	"net/netip"
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/exclude"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// asked are the addresses that objects ask for. They derive from the objects and pools of the
// moment alone, so that a restart changes no answer.
type asked struct {
	asks map[exclude.Claimant]exclude.Ask
	// shares are the parts of the pools' CIDRs that asks withhold, and withShare has these CIDRs.
	shares    map[netip.Prefix][]*askedShare
	withShare *ipalloc.Space
	// beyond are the addresses that are asked for beyond a share.
	beyond exclude.Set
}

// askedShare is the part of a pool's CIDR that asks withhold.
type askedShare struct {
	cidr      netip.Prefix
	blockBits int
	asks      []exclude.Ask // of addresses of the CIDR, sorted
	granted   map[exclude.Claimant]bool
}

// Ask replaces the addresses that an object asks for. No block that contains any of them is claimed
// from now on, unless they are beyond the share of all such objects in a CIDR of a pool: these
// addresses are only reported. Held blocks keep their addresses.
func (e *Exclusions) Ask(ask exclude.Ask) {
	e.change(func() { e.ask(ask) })
}

func (e *Exclusions) ask(ask exclude.Ask) {
	old := e.asks[ask.By]
	if old.Since.Equal(ask.Since) && slices.Equal(old.CIDRs, ask.CIDRs) || len(old.CIDRs)+len(ask.CIDRs) == 0 {
		return
	}
	changed := map[exclude.Claimant]bool{ask.By: true}
	delete(e.asks, ask.By)
	oldShares := e.sharesOf(old.CIDRs)
	for share := range oldShares {
		i, _ := slices.BinarySearchFunc(share.asks, old, exclude.Ask.Compare)
		share.asks = slices.Delete(share.asks, i, i+1)
	}
	if len(ask.CIDRs) > 0 {
		e.asks[ask.By] = ask
	}
	newShares := e.sharesOf(ask.CIDRs)
	for share := range newShares {
		i, _ := slices.BinarySearchFunc(share.asks, ask, exclude.Ask.Compare)
		share.asks = slices.Insert(share.asks, i, ask)
		e.grant(share, changed)
	}
	for share := range oldShares {
		if !newShares[share] {
			e.grant(share, changed)
		}
	}
	e.withhold(changed)
}

// sharesOf returns the shares of the CIDRs of pools that overlap any of cidrs.
func (e *Exclusions) sharesOf(cidrs []netip.Prefix) map[*askedShare]bool {
	out := map[*askedShare]bool{}
	for _, p := range cidrs {
		for _, owned := range heldIn(e.withShare, p) {
			for _, share := range e.shares[owned.CIDR] {
				out[share] = true
			}
		}
	}
	return out
}

// grant decides anew which objects withhold addresses of a share, and adds those with another answer
// to changed. Until all objects are read it decides nothing: each would change the answer.
func (e *Exclusions) grant(share *askedShare, changed map[exclude.Claimant]bool) {
	if !e.space.Ready() {
		return
	}
	earlier := share.granted
	share.granted = exclude.Granted(share.cidr, share.blockBits, share.asks)
	for claimant := range earlier {
		if !share.granted[claimant] {
			changed[claimant] = true
		}
	}
	for claimant := range share.granted {
		if !earlier[claimant] {
			changed[claimant] = true
		}
	}
}

// withhold brings the withheld addresses of objects that have changed up to date.
func (e *Exclusions) withhold(changed map[exclude.Claimant]bool) {
	if !e.space.Ready() {
		return
	}
	for claimant := range changed {
		var granted, beyond []netip.Prefix
		for _, p := range e.asks[claimant].CIDRs {
			if e.isGranted(claimant, p) {
				granted = append(granted, p)
			} else {
				beyond = append(beyond, p)
			}
		}
		added, removed, shared := e.beyond.Put(claimant, beyond)
		e.taken = append(e.taken, slices.Concat(added, removed, shared)...) // their pools report them
		e.exclude(claimant, granted)
	}
}

// isGranted reports whether no share refuses the addresses of p to an object.
func (e *Exclusions) isGranted(claimant exclude.Claimant, p netip.Prefix) bool {
	for _, owned := range heldIn(e.withShare, p) {
		for _, share := range e.shares[owned.CIDR] {
			if !share.granted[claimant] {
				return false
			}
		}
	}
	return true
}

// grantAll decides about all asks, once all objects are read.
func (e *Exclusions) grantAll() {
	changed := map[exclude.Claimant]bool{}
	for claimant := range e.asks {
		changed[claimant] = true
	}
	for _, shares := range e.shares {
		for _, share := range shares {
			e.grant(share, changed)
		}
	}
	e.withhold(changed)
}

// setShares replaces the shares after a change of pools. A CIDR that is cut as before keeps its share.
func (e *Exclusions) setShares(pools map[string]*crd.Pool) {
	old := e.shares
	e.shares = map[netip.Prefix][]*askedShare{}
	e.withShare = ipalloc.NewSpace()
	added := map[*askedShare]bool{}
	remaining := map[*askedShare]bool{}
	for _, pool := range pools {
		for _, f := range ipalloc.Families() {
			whole, _ := pool.Whole(f)
			for _, cidr := range whole.Ranges {
				if shareIn(e.shares, cidr, whole.BlockBits) != nil {
					continue
				}
				share := shareIn(old, cidr, whole.BlockBits)
				if share == nil {
					share = &askedShare{cidr: cidr, blockBits: whole.BlockBits}
					added[share] = true
				}
				remaining[share] = true
				e.shares[cidr] = append(e.shares[cidr], share)
				_ = e.withShare.Restore(ipalloc.Held{CIDR: cidr}) // CIDRs of pools may overlap
			}
		}
	}
	changed := e.addAsks(added)
	for _, shares := range old {
		for _, share := range shares {
			if remaining[share] {
				continue
			}
			for _, ask := range share.asks {
				changed[ask.By] = true
			}
		}
	}
	e.withhold(changed)
}

func shareIn(shares map[netip.Prefix][]*askedShare, cidr netip.Prefix, blockBits int) *askedShare {
	for _, share := range shares[cidr] {
		if share.blockBits == blockBits {
			return share
		}
	}
	return nil
}

// addAsks fills new shares, and returns the objects that ask for addresses of them.
func (e *Exclusions) addAsks(added map[*askedShare]bool) map[exclude.Claimant]bool {
	changed := map[exclude.Claimant]bool{}
	if len(added) == 0 {
		return changed
	}
	for _, ask := range e.asks {
		for share := range e.sharesOf(ask.CIDRs) {
			if added[share] {
				share.asks = append(share.asks, ask)
				changed[ask.By] = true
			}
		}
	}
	for share := range added {
		slices.SortFunc(share.asks, exclude.Ask.Compare)
		e.grant(share, changed)
	}
	return changed
}
