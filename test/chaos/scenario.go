package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// scenario is the environment of the operators in a run, with the faults of that environment.
type scenario struct {
	name string
	// finds describes the faults that only this scenario finds.
	finds string
	// linked connects each operator to the API server by a link of its own.
	linked bool
	// flags are additional flags of each operator; nil: none.
	flags func(o *operator) ([]string, error)
	// faults returns the scenario's own faults. People edit pools, nodes and blocks meanwhile,
	// and agents restart. Nil: there are no faults.
	faults func(c *chaos) lane
	// versions makes replicas of two versions, the older first.
	versions bool
	// leaders is the minimum number of leader changes.
	leaders int
}

// scenarios returns all scenarios. The first is the default.
func scenarios() []scenario {
	return []scenario{
		{
			name: "processes", faults: (*chaos).processFaults, leaders: 3,
			finds: "processes that die at any moment: operators, kube-apiserver and etcd are killed and stopped",
		},
		{
			name: "network", linked: true, faults: (*chaos).networkFaults, leaders: 3,
			finds: "an operator that hangs on a connection without a peer, or writes long after it has lost the lead: " +
				"connections from the operators are slow, cut, reset, half-open and partitioned",
		},
		{
			name: "versions", versions: true, faults: (*chaos).versionFaults, leaders: 3,
			finds: "an operator that loses what another version has stored: replicas of two versions lead in turn, are upgraded and rolled back",
		},
		{
			name: "soak", flags: soakFlags,
			finds: "memory, goroutines and requests that grow: rounds of the same load for FAULTS, without a fault",
		},
	}
}

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

// ofSmall is the number of a scenario's own faults in a small run.
const ofSmall = 2

// lanes returns the faults of the scenario, and those made by people.
func (c *chaos) lanes() []lane {
	if c.scenario.faults == nil {
		return nil
	}
	own := c.scenario.faults(c)
	if c.small {
		own.faults = own.faults[:ofSmall]
	}
	return []lane{own, {gap: 3 * time.Second, faults: []named{
		{"CIDR added", c.network.grow}, {"CIDR set to drain", c.network.drain}, {"drains ended", c.network.undrain},
		{"agents restarted", c.restartAgents}, {"nodes deleted and made again", c.replaceNodes}, {"block deleted by hand", c.deleteBlock},
	}}}
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

// usageOfScenarios returns the part of the usage that describes scenarios.
func usageOfScenarios() string {
	var out strings.Builder
	for _, s := range scenarios() {
		fmt.Fprintf(&out, "  %-11s %s\n", s.name, s.finds)
	}
	return out.String()
}
