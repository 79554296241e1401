package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/chaos/claims"
)

// scenario is the environment of the operators in a run, with the faults of that environment.
// In each scenario, people edit pools, nodes and blocks, and agents restart.
type scenario struct {
	name string
	// finds describes what only this scenario finds.
	finds string
	// etcdMembers is how many members etcd has.
	etcdMembers int
	// prepare runs before the operators start; nil: nothing.
	prepare func(ctx context.Context, c *chaos) error
	// linked gives each operator its own link to the API server.
	linked bool
	// pool is the one pool of all nodes; empty: each zone has one.
	pool string
	// faults returns the scenario's own faults, of which small runs inject the first ones;
	// nil: there are none.
	faults func(c *chaos) lane
	// act runs the scenario; nil: pods are created and deleted, and people make faults too.
	act func(c *chaos, ctx context.Context) error
	// settle checks the end; nil: the check of all scenarios.
	settle func(c *chaos, ctx context.Context) error
	// end runs once no more faults are injected; nil: nothing.
	end func(ctx context.Context, c *chaos) error
	// cooldown is the least time for which each block must cool down, and margin what the
	// operators add to it. A cooldown of 0 means the default.
	cooldown, margin time.Duration
	// leaders is the minimum number of leader changes, ahead that of block conditions whose
	// time is in the future.
	leaders, ahead int
	// inFlight is how long a write may still take effect after its API server has timed
	// out.
	inFlight time.Duration
}

// scenarios returns all scenarios. The first is the default.
func scenarios() []scenario {
	return []scenario{
		{
			name: "processes", etcdMembers: 1, faults: (*chaos).processFaults, leaders: 3, inFlight: claims.InFlight,
			finds: "processes that die at any moment: operators, kube-apiserver and etcd are killed and stopped",
		},
		{
			name: "network", etcdMembers: 1, linked: true, faults: (*chaos).networkFaults, leaders: 3, inFlight: claims.InFlight,
			finds: "an operator that hangs on a connection without a peer, or writes long after it has lost the lead: " +
				"connections from the operators are slow, cut, reset, half-open and partitioned",
		},
		{
			name: "apiservers", etcdMembers: 1, linked: true, prepare: startSecondAPIServer, faults: (*chaos).apiServerFaults, leaders: 2,
			inFlight: time.Minute, // longer than the second API server is ever cut off from etcd
			finds: "an operator that takes an API server's word for the present: of two on one etcd, the operators are moved between them, " +
				"and one lags, or is cut off from etcd",
		},
		{
			name: "etcd", etcdMembers: 3, faults: (*chaos).memberFaults, leaders: 1, inFlight: claims.InFlight,
			finds: "writes for which API servers time out and which etcd makes all the same, and watches that fall behind and go on: " +
				"the members of etcd lose their leader and their quorum",
		},
		{
			name: "clocks", etcdMembers: 1, prepare: skewClocks, faults: (*chaos).clockFaults, leaders: 3, ahead: 1, inFlight: claims.InFlight,
			cooldown: handedOver, margin: skew,
			finds: "a time that one operator wrote and another one compares with a clock of its own: their clocks differ by less than the cooldown",
		},
		{
			name: "versions", etcdMembers: 1, prepare: startOldVersion, faults: (*chaos).versionFaults, end: upgrade, leaders: 3,
			inFlight: claims.InFlight, cooldown: handedOver,
			finds: "what an old and a new version read differently: they lead in turn while CIDRs drain, until both are new",
		},
		{
			name: "soak", etcdMembers: 1, prepare: serveMetrics, act: (*chaos).soak, inFlight: claims.InFlight,
			finds: "memory, goroutines and requests that grow: rounds of the same load for FAULTS, without a fault",
		},
		{
			name: "renumber", etcdMembers: 1, prepare: buildPlugin, pool: "main", faults: (*chaos).renumberFaults,
			act: (*chaos).renumber, settle: (*chaos).renumbered, leaders: 2, inFlight: claims.InFlight,
			finds: "what kubectl cilium-pool renumber takes too early, or leaves behind: all nodes move to another range, by evictions and " +
				"restarts of agents, while operators and the command are killed",
		},
	}
}

// leastCooldown returns the least time for which each block must cool down.
func (s scenario) leastCooldown() time.Duration { return cmp.Or(s.cooldown, cooldown) }

func parseScenario(name string) (scenario, error) {
	var names []string
	for _, s := range scenarios() {
		if s.name == name {
			return s, nil
		}
		names = append(names, s.name)
	}
	return scenario{}, fmt.Errorf("must be one of %s", strings.Join(names, ", "))
}

// defaultScenario returns the scenario of a run that names none.
func defaultScenario() string { return scenarios()[0].name }

// ofSmall is how many of its own faults a scenario has in a small run.
const ofSmall = 2

// lanes returns the faults of a scenario, and those made by people.
func (c *chaos) lanes() []lane {
	if c.scenario.faults == nil {
		return nil
	}
	own := c.scenario.own(c).only(c.Only)
	if c.Small {
		own.faults = own.faults[:min(len(own.faults), ofSmall)]
	}
	if c.scenario.act != nil {
		return []lane{own}
	}
	return []lane{own, {gap: 3 * time.Second, faults: []named{
		{cidrAdded, c.addCIDR}, {cidrDrained, c.drainCIDR}, {drainsEnded, c.endDrains},
		{agentsRestarted, c.restartAgents}, {nodesReplaced, c.replaceNodes}, {blockDeleted, c.deleteBlock},
	}}}
}

// own returns the faults of the scenario itself.
func (s scenario) own(c *chaos) lane {
	if s.faults == nil {
		return lane{}
	}
	return s.faults(c)
}

// kinds returns all kinds of faults of a scenario, in the order in which they are printed.
func (s scenario) kinds() []fault {
	var out []fault
	for _, l := range (&chaos{scenario: s}).lanes() {
		for _, f := range l.faults {
			out = append(out, f.kind)
		}
	}
	return out
}

// lead waits until an operator leads and another one takes part in the election. It returns
// both.
func (c *chaos) lead(ctx context.Context) (leads, waits *operator, err error) {
	err = until(ctx, leadWithin, func(context.Context) error {
		if leads = leader(c.operator); leads == nil {
			return errors.New("no operator leads")
		}
		if waits = c.standby(leads); waits.electsSince().IsZero() {
			return fmt.Errorf("%s does not take part in the election", waits.name)
		}
		return nil
	})
	return leads, waits, err
}

// awaitLeaderSince waits until an operator has become leader after the given time.
func (c *chaos) awaitLeaderSince(ctx context.Context, since time.Time) error {
	return until(ctx, leadWithin, func(context.Context) error {
		if o := leader(c.operator); o == nil || o.leadsSince().Before(since) {
			return errors.New("no operator has taken the lead")
		}
		return nil
	})
}

// usageOfScenarios returns the part of the usage that describes scenarios.
func usageOfScenarios() string {
	var out strings.Builder
	for _, s := range scenarios() {
		fmt.Fprintf(&out, "  %-11s %s\n", s.name, s.finds)
	}
	return out.String()
}

// only removes all faults of a lane but those of a kind; "" removes none.
func (l lane) only(kind fault) lane {
	if kind != "" {
		l.faults = slices.DeleteFunc(slices.Clone(l.faults), func(f named) bool { return f.kind != kind })
	}
	return l
}
