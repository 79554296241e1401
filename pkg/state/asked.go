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
	// quotas are the parts of the pools' CIDRs that asks may withhold, and withQuota has these CIDRs.
	quotas    map[netip.Prefix][]*askQuota
	withQuota *ipalloc.Space
	// beyond are the addresses that are asked for beyond a quota.
	beyond exclude.Set
}

// askQuota is the part of a pool's CIDR that asks may withhold.
type askQuota struct {
	cidr      netip.Prefix
	blockBits int
	asks      []exclude.Ask // of addresses of the CIDR, sorted
	granted   map[exclude.Claimant]bool
}

// Ask replaces the addresses that an object asks for. No block that contains any of them is claimed
// from now on, unless they are beyond the quota of all such objects in a CIDR of a pool: these
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
	oldQuotas := e.quotasOf(old.CIDRs)
	for quota := range oldQuotas {
		i, _ := slices.BinarySearchFunc(quota.asks, old, exclude.Ask.Compare)
		quota.asks = slices.Delete(quota.asks, i, i+1)
	}
	if len(ask.CIDRs) > 0 {
		e.asks[ask.By] = ask
	}
	newQuotas := e.quotasOf(ask.CIDRs)
	for quota := range newQuotas {
		i, _ := slices.BinarySearchFunc(quota.asks, ask, exclude.Ask.Compare)
		quota.asks = slices.Insert(quota.asks, i, ask)
		e.grant(quota, changed)
	}
	for quota := range oldQuotas {
		if !newQuotas[quota] {
			e.grant(quota, changed)
		}
	}
	e.withhold(changed)
}

// quotasOf returns the quotas of the CIDRs of pools that overlap any of cidrs.
func (e *Exclusions) quotasOf(cidrs []netip.Prefix) map[*askQuota]bool {
	out := map[*askQuota]bool{}
	for _, p := range cidrs {
		for _, owned := range heldIn(e.withQuota, p) {
			for _, quota := range e.quotas[owned.CIDR] {
				out[quota] = true
			}
		}
	}
	return out
}

// grant decides anew which objects withhold addresses of a quota, and adds those with another answer
// to changed. Until all objects are read it decides nothing: each would change the answer.
func (e *Exclusions) grant(quota *askQuota, changed map[exclude.Claimant]bool) {
	if !e.space.Ready() {
		return
	}
	earlier := quota.granted
	quota.granted = exclude.Granted(quota.cidr, quota.blockBits, quota.asks)
	for claimant := range earlier {
		if !quota.granted[claimant] {
			changed[claimant] = true
		}
	}
	for claimant := range quota.granted {
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

// isGranted reports whether no quota refuses the addresses of p to an object.
func (e *Exclusions) isGranted(claimant exclude.Claimant, p netip.Prefix) bool {
	for _, owned := range heldIn(e.withQuota, p) {
		for _, quota := range e.quotas[owned.CIDR] {
			if !quota.granted[claimant] {
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
	for _, quotas := range e.quotas {
		for _, quota := range quotas {
			e.grant(quota, changed)
		}
	}
	e.withhold(changed)
}

// setQuotas replaces the quotas after a change of pools. A CIDR that is cut as before keeps its quota.
func (e *Exclusions) setQuotas(pools map[string]*crd.Pool) {
	old := e.quotas
	e.quotas = map[netip.Prefix][]*askQuota{}
	e.withQuota = ipalloc.NewSpace()
	added := map[*askQuota]bool{}
	remaining := map[*askQuota]bool{}
	for _, pool := range pools {
		for _, f := range ipalloc.Families() {
			whole, _ := pool.FullCut(f)
			for _, cidr := range whole.Ranges {
				if quotaIn(e.quotas, cidr, whole.BlockBits) != nil {
					continue
				}
				quota := quotaIn(old, cidr, whole.BlockBits)
				if quota == nil {
					quota = &askQuota{cidr: cidr, blockBits: whole.BlockBits}
					added[quota] = true
				}
				remaining[quota] = true
				e.quotas[cidr] = append(e.quotas[cidr], quota)
				_ = e.withQuota.Restore(ipalloc.Held{CIDR: cidr}) // CIDRs of pools may overlap
			}
		}
	}
	changed := e.addAsks(added)
	for _, quotas := range old {
		for _, quota := range quotas {
			if remaining[quota] {
				continue
			}
			for _, ask := range quota.asks {
				changed[ask.By] = true
			}
		}
	}
	e.withhold(changed)
}

func quotaIn(quotas map[netip.Prefix][]*askQuota, cidr netip.Prefix, blockBits int) *askQuota {
	for _, quota := range quotas[cidr] {
		if quota.blockBits == blockBits {
			return quota
		}
	}
	return nil
}

// addAsks fills new quotas, and returns the objects that ask for addresses of them.
func (e *Exclusions) addAsks(added map[*askQuota]bool) map[exclude.Claimant]bool {
	changed := map[exclude.Claimant]bool{}
	if len(added) == 0 {
		return changed
	}
	for _, ask := range e.asks {
		for quota := range e.quotasOf(ask.CIDRs) {
			if added[quota] {
				quota.asks = append(quota.asks, ask)
				changed[ask.By] = true
			}
		}
	}
	for quota := range added {
		slices.SortFunc(quota.asks, exclude.Ask.Compare)
		e.grant(quota, changed)
	}
	return changed
}
