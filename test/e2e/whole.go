//go:build linux

package main

import (
	"context"
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/whole"
)

// watch checks every version of every object from now on: by the rules of crd mode, or those of
// whole blocks.
func (e *env) watch(ctx context.Context, w *whole.Rules) (err error) {
	o := invariant.Options{Agents: e.Held}
	if e.whole = w; w != nil {
		o = invariant.Options{OnChange: w.See, Judges: whole.Judges}
	}
	e.rules, err = invariant.Watch(ctx, e.Config(), o)
	return err
}

// judge checks that no rule has been broken since watch, if there was one, and that Cilium's operator
// wrote no assignment of whole blocks, if the writer is known.
func (e *env) judge(ctx context.Context) error {
	if e.rules == nil {
		return nil
	}
	current := e.rules.Sync
	if e.whole == nil {
		current = e.rules.AskAgents
	}
	if err := current(ctx); err != nil {
		return err
	}
	broken := e.rules.Violations()
	if e.whole != nil {
		broken = append(broken, e.whole.Violations()...)
	}
	for _, v := range broken {
		e.logf("broken: %v", v)
	}
	e.Check(len(broken) == 0, "promised rules broken at any instant", "%d", len(broken))
	if e.whole == nil {
		return nil
	}
	writes := e.whole.Writes()
	if !e.whole.KnowsWriters() {
		e.Check(writes[whole.Unknown] > 0, "writes of assignments, by any writer", "%d", writes[whole.Unknown])
		return nil
	}
	// In crd mode the operator ends the tracking of writers: after a move they are unknown.
	e.Check(writes[whole.CiliumWriter] == 0 && writes[whole.OperatorWriter]+writes[whole.Unknown] > 0, "writes of assignments: by our operator, by agents, by cilium-operator", "%d, %d, %d",
		writes[whole.OperatorWriter], writes[whole.AgentWriter], writes[whole.CiliumWriter])
	for who, n := range writes {
		if !slices.Contains([]string{whole.OperatorWriter, whole.AgentWriter, whole.CiliumWriter}, who) {
			e.logf("%d writes by %s", n, who)
		}
	}
	return nil
}
