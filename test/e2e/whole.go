//go:build linux

package main

import (
	"context"
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/whole"
)

// watchWhole checks every version by the rules of whole blocks from now on.
func (e *env) watchWhole(ctx context.Context, c whole.Carrier) error {
	return e.watchRules(ctx, whole.New(c))
}

func (e *env) watchRules(ctx context.Context, w *whole.Rules) (err error) {
	e.whole = w
	e.rules, err = invariant.Watch(ctx, e.Config(), invariant.Options{OnChange: w.See, Judges: whole.Judges})
	return err
}

// judgeWhole checks that no rule has been broken since watchWhole, and that Cilium's operator
// wrote no assignment, if the writer is known.
func (e *env) judgeWhole(ctx context.Context) error {
	if err := e.rules.Sync(ctx); err != nil {
		return err
	}
	broken := append(e.rules.Violations(), e.whole.Violations()...)
	for _, b := range broken {
		e.logf("broken: %s", b)
	}
	e.Check(len(broken) == 0, "promised rules broken at any instant", "%d", len(broken))
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
