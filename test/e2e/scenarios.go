//go:build linux

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"

	"os"

	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/whole"
)

// scenario is one test, on its own bed: a script of testdata, or a function.
type scenario struct {
	name string
	ci   bool
	// alone is set for a scenario that loads the machine or measures time: no other runs at
	// the same time.
	alone bool
	// file is the script, if it is not named after the scenario.
	file string
	run  func(context.Context, *env) error
}

func scenarios() []scenario {
	return []scenario{
		{name: "join", ci: true, alone: true},
		{name: "surge", ci: true, alone: true},
		{name: "reclaim", ci: true},
		{name: "restart", ci: true},
		{name: "restart-surge", alone: true},
		{name: "restart-early"},
		{name: "dual", file: "life"},
		{name: "ipv6", file: "life"},
		{name: "native", file: "life"},
		{name: "second-family"},
		{name: "undo"},
		{name: "kill"},
		{name: "recreate"},
		{name: "gone"},
		{name: "vacate"},
		{name: "vacate-own", file: "vacate"},
		{name: "vacate-native", file: "vacate"},
		{name: "vacate-wireguard", file: "vacate"},
		{name: "vacate-kill"},
		{name: "unguarded"},
	}
}

// migrations returns scenarios that take half an hour together, so they are not among all
// scenarios.
func migrations() []scenario {
	return []scenario{
		{name: "migrate-cluster-pool", alone: true, run: migrateClusterPool},
		{name: "migrate-kubernetes", alone: true, run: migrateKubernetes},
		{name: "migrate-multi-pool", alone: true, run: migrateMultiPool},
	}
}

// modes returns the scenarios of the operator's modes other than crd.
func modes() []scenario {
	return []scenario{
		{name: "modes-multi-pool", alone: true, file: "modes-multi-pool"},
		{name: "modes-multi-pool-dual", alone: true, file: "modes-multi-pool"},
		{name: "modes-pools", alone: true},
		{name: "modes-kubernetes", alone: true},
		{name: "modes-kubernetes-dual", alone: true, file: "modes-kubernetes"},
		{name: "modes-move", alone: true, run: modesMove},
		{name: "modes-bgp", alone: true},
		{name: "modes-bgp-kubernetes", alone: true, file: "modes-bgp"},
		{name: "modes-drain", alone: true},
	}
}

// groups returns the groups of scenarios by name.
func groups() map[string][]scenario {
	var ci []scenario
	for _, s := range scenarios() {
		if s.ci {
			ci = append(ci, s)
		}
	}
	return map[string][]scenario{"ci": ci, "all": scenarios(), "migrate": migrations(), "modes": modes()}
}

// choose finds scenarios by the name of a group, or by a list of their own names.
func choose(names string) ([]scenario, error) {
	if group, ok := groups()[names]; ok {
		return group, nil
	}
	every := slices.Concat(scenarios(), migrations(), modes())
	known := slices.Sorted(maps.Keys(groups()))
	for _, s := range every {
		known = append(known, s.name)
	}
	var chosen []scenario
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(every, func(s scenario) bool { return s.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no scenario %q; there are: %s", name, strings.Join(known, ", "))
		}
		chosen = append(chosen, every[i])
	}
	return chosen, nil
}

// env is the environment of a scenario.
type env struct {
	*bed.Bed
	name    string
	options bed.Options
	rows    []row
	// patched agents answer marks once they have restored their pods, and restore them
	// at marked addresses.
	patched bool
	rules   *invariant.Checker
	// whole checks further rules where agents are assigned whole blocks.
	whole *whole.Rules
	// operator is the running operator, and flags are its own.
	operator *bed.Operator
	flags    []string
	renewing sync.Mutex // for these two

	// The rest is named by the script.
	file       string
	nodes      map[string]*bed.Node
	gates      map[*bed.Node]*bed.Gate
	pods       map[string][]*bed.Pod
	numbers    map[string]int      // of pods that a group has had
	starting   []chan func() error // pods in the background
	flows      map[string][]*bed.Pings
	streams    map[string][]*bed.Stream
	remembered map[string]*ciliumv2.CiliumNode
	settle     func() error                // ends the churn of operators
	endExempt  func(context.Context) error // ends the exemption
	router     *bed.Router
	peers      []*bed.Node
	seen       int // the router's events when it last had every block
	// sandboxTime is how long a CNI ADD waits after its pod's creation.
	sandboxTime time.Duration
}

// start brings the bed up.
func (e *env) start(ctx context.Context) error {
	b, err := bed.Start(ctx, e.options)
	e.Bed = b
	return err
}

// watch checks every version of every object from now on.
func (e *env) watch(ctx context.Context) (err error) {
	e.rules, err = invariant.Watch(ctx, e.Config(), invariant.Options{Agents: e.Held})
	return err
}

// judgeRules checks that no rule has been broken since watch.
func (e *env) judgeRules(ctx context.Context) error {
	if err := e.rules.AskAgents(ctx); err != nil {
		return err
	}
	broken := e.rules.Violations()
	for _, v := range broken {
		e.Logf("broken: %v", v)
	}
	e.check(len(broken) == 0, "promised rules broken at any instant", "%d", len(broken))
	return nil
}

// Logf logs a line; before the bed there is only standard error.
func (e *env) Logf(format string, args ...any) {
	if e.Bed == nil {
		fmt.Fprintf(os.Stderr, format+"\n", args...)
		return
	}
	e.Bed.Logf(format, args...)
}

func (e *env) close() error {
	if e.Bed == nil {
		return nil
	}
	return e.Stop()
}

// checkRights checks that the chart gives the operator sufficient rights.
func (e *env) checkRights() {
	if e.Bed == nil {
		return
	}
	refused, err := e.Refused()
	if err != nil {
		e.Logf("%v", err)
	}
	for _, what := range refused {
		e.Logf("the operator may not: %s", what)
	}
	e.check(err == nil && len(refused) == 0, "requests of the operator refused for want of rights", "%d", len(refused))
}

// note adds a figure to the table that does not affect the result.
func (e *env) note(what, format string, args ...any) {
	e.add(row{What: what, Figure: fmt.Sprintf(format, args...), Result: noted})
}

// check adds a judged figure to the table.
func (e *env) check(ok bool, what, format string, args ...any) {
	r := row{What: what, Figure: fmt.Sprintf(format, args...), Result: failed}
	if ok {
		r.Result = passed
	}
	e.add(r)
}

func (e *env) add(r row) {
	r.Scenario = e.name
	e.rows = append(e.rows, r)
	e.Logf("%s: %s: %s", r.Result, r.What, r.Figure)
}

// pause waits for a while.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

const (
	poolCIDR  = "100.66.224.0/19"
	poolCIDR6 = "fd00:100:162::/64"
	blockSize = 27
)

// bringUp creates a machine's Node and starts its agent.
func (e *env) bringUp(ctx context.Context, n *bed.Node) error {
	if err := n.Register(ctx, nil); err != nil {
		return err
	}
	if err := n.StartAgent(ctx); err != nil {
		return err
	}
	if err := n.WaitAgent(ctx); err != nil {
		return err
	}
	e.Logf("%s: agent ready", n.Name)
	return nil
}
