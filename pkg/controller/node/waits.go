package node

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// blockWait is what a block waits for, as its status says it. The zero value is for a block that
// waits for nothing, or for the agent's answer, which comes by itself.
type blockWait struct {
	For  expand.WaitReason
	note string
}

// waitOf returns which of the waits of a plan is a block's.
func (r *Reconciler) waitOf(b crd.Block, waits []expand.Wait) blockWait {
	i := slices.IndexFunc(waits, func(w expand.Wait) bool { return w.CIDR == b.CIDR })
	if i < 0 {
		return blockWait{}
	}
	switch w := waits[i]; w.For {
	case expand.WaitHandshake, expand.WaitReturn, expand.WaitPodAddress:
		return blockWait{}
	default:
		return blockWait{w.For, waitNote(b, r.Pools.Get(b.Pool), w)}
	}
}

// actOnWaits reports what blocks wait for that leave, or must, where that has changed. The names
// of the pods in a block change constantly, and are not reported again.
func (r *Reconciler) actOnWaits(ctx context.Context, o *observation, plans []familyPlan, done *outcome) error {
	for i := range plans {
		p := &plans[i]
		for _, b := range o.Blocks {
			if !r.about(*p, b, o.CiliumNode) || b.Phase == ipalloc.CoolingDown || changesPhase(p.plan, b.CIDR) {
				continue
			}
			wait := r.waitOf(b, p.plan.Waits)
			if wait.For == b.WaitsFor && (wait.note == b.WaitNote || !wait.For.IsHold()) {
				continue
			}
			what := "it must leave its node, and has not begun to"
			if b.Phase == ipalloc.Draining {
				what = o.drainMessage(b.CIDR, b.Reason)
			}
			err := r.Blocks.setWait(ctx, b, wait, what)
			if err == nil {
				r.Reporter.sendDrainWaits(o.Node, b, wait)
			}
			if err := done.carryOn(err); err != nil {
				return err
			}
		}
	}
	return nil
}

// changesPhase reports whether a plan has moved a block to another phase.
func changesPhase(p expand.Plan, cidr netip.Prefix) bool {
	return slices.Contains(p.Undrain, cidr) ||
		slices.ContainsFunc(p.Drain, func(d expand.Drain) bool { return d.CIDR == cidr }) ||
		slices.ContainsFunc(p.Free, func(f expand.Free) bool { return f.CIDR == cidr })
}

// waitNote describes a wait, and its remedy where it does not end by itself. That of a hold
// changes only when a window opens or closes, or the hourly rate is used up: it is written to
// every held block. pool may be nil.
func waitNote(b crd.Block, pool *crd.Pool, w expand.Wait) string {
	switch w.For {
	case expand.WaitPods:
		return "pods " + someOf(w.By)
	case expand.WaitRestart:
		return fmt.Sprintf("a restart of the agent of %s, which has %s there: restart it, and it takes other addresses", b.Node, someOf(w.By))
	case expand.WaitAgent:
		return fmt.Sprintf("the agent of %s, which keeps %s there as long as the Node exists: drain and delete the Node, or keep the block", b.Node, someOf(w.By))
	case expand.WaitReplacement:
		return fmt.Sprintf("a replacement: give a pool of %s free blocks, or raise the limit of its blocks", b.Node)
	case expand.WaitUnsettled:
		return fmt.Sprintf("the agent of %s to run steadily", b.Node)
	case expand.WaitMode:
		return fmt.Sprintf("an agent of %s that is configured for the operator's IPAM mode", b.Node)
	case expand.WaitNodes:
		if pool != nil {
			return fmt.Sprintf("other nodes: pool %s no longer selects this one, and nodes move off it %d at a time (spec.unselectedNodes.maxConcurrent)", pool.Name, pool.MaxUnselected)
		}
	case expand.WaitTurn:
		if pool != nil {
			return fmt.Sprintf("its turn: %d blocks of pool %s may begin in an hour, and as many have", pool.Maintenance.BlocksPerHour, pool.Name)
		}
	case expand.WaitWindow:
		if w.Until.IsZero() {
			return fmt.Sprintf("a maintenance window of pool %s, and none will ever open: correct spec.maintenance.windows", b.Pool)
		}
		return fmt.Sprintf("the maintenance window of pool %s that opens at %s", b.Pool, w.Until.UTC().Format(time.RFC3339))
	}
	return string(w.For)
}

// someOf names up to five of those who use a block.
func someOf(names []string) string {
	const most = 5
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}
