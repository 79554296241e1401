//go:build linux

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/whole"
)

// scenario is one test, on its own bed.
type scenario struct {
	name  string
	about string
	ci    bool
	// alone is set for a scenario that loads the machine or measures time: no other runs at
	// the same time.
	alone bool
	run   func(context.Context, *env) error
}

func scenarios() []scenario {
	return []scenario{
		{"join", "from Node created to agent ready", true, true, join},
		{"surge", "120 pods at once on a node with one /27", true, true, surge},
		{"surge-peer", "the same surge on Cilium's own multi-pool mode", false, true, surgePeer},
		{"reclaim", "from 120 pods to 6 scattered ones", true, false, reclaim},
		{"restart", "the agent is killed in every phase of a release", true, false, restart},
		{"restart-surge", "the agent is killed in the middle of a surge", false, true, restartSurge},
		{"restart-early", "an agent answers marks before it has restored its pods", false, false, restartEarly},
		{"carry", "new blocks carry traffic, and running connections do not notice", false, false, carry},
		{"route", "routes that an agent makes up, and those to its own pods", false, false, route},
		{"dual", "pods with addresses of both families", false, false, dual},
		{"second-family", "IPv6 is switched on in a running IPv4 cluster, and off again", false, false, secondFamily},
		{"ipv6", "IPv6 alone", false, false, ipv6},
		{"native", "routes between the nodes in place of a tunnel", false, false, native},
		{"pools", "two zones, a pool that spills, runs out, and gets a CIDR", false, false, pools},
		{"drain", "a CIDR is drained, and its pods are moved", false, false, drain},
		{"owner", "an address that is pinned to a pod by its owner field", false, false, owner},
		{"undo", "demand returns in the middle of a release", false, false, undo},
		{"kill", "two operators, one or the other killed every few seconds", false, false, kill},
		{"recreate", "the CiliumNode is deleted under a running agent", false, false, recreate},
		{"gone", "a Node goes, its machine runs on, and a Node of the same name comes", false, false, gone},
		{"vacate", "the CIDR with a node's first block, and the agent's own addresses, is drained", false, false, vacate},
		{"vacate-own", "the same with the addresses of health endpoint and ingress", false, false, vacateOwn},
		{"vacate-native", "the same with routes between the nodes in place of a tunnel", false, false, vacateNative},
		{"vacate-wireguard", "the same while agents encrypt what pods send to other nodes", false, false, vacateWireGuard},
		{"vacate-kill", "the same while operator and agent are killed after each step", false, false, vacateKill},
		{"relabel", "the labels of two nodes change, and they move off their pool one at a time", false, false, relabel},
		{"schedule", "1,000 pods that the scheduler binds, on exactly 1,000 addresses", false, true, schedule},
		{"unguarded", "operator and agent both killed within a release", false, false, unguarded},
	}
}

// migrations returns scenarios that take half an hour together, so they are not among all
// scenarios.
func migrations() []scenario {
	return []scenario{
		{"migrate-cluster-pool", "a running cluster moves from cluster-pool mode, back, and again", false, true, migrateClusterPool},
		{"migrate-kubernetes", "the same from kubernetes mode", false, true, migrateKubernetes},
		{"migrate-multi-pool", "the same from multi-pool mode", false, true, migrateMultiPool},
		{"planchange", "the address plan of two nodes changes in every way there is", false, true, planChange},
	}
}

// modes returns the scenarios of the operator's modes other than crd.
func modes() []scenario {
	return []scenario{
		{"modes-multi-pool", "multi-pool mode: joins, surges, returned blocks, restarts and killed operators", false, true, modesMultiPool},
		{"modes-multi-pool-dual", "multi-pool mode: a surge, a restart and returned blocks in both families", false, true, modesMultiPoolDual},
		{"modes-multi-pool-peer", "the same joins, surges and returned blocks with Cilium's own operator", false, true, modesMultiPoolPeer},
		{"modes-pools", "multi-pool mode: pods and namespaces that request five of Cilium's pools", false, true, modesPools},
		{"modes-kubernetes", "kubernetes mode: one block for a node before its agent starts, and podCIDRs adopted", false, true, modesKubernetes},
		{"modes-kubernetes-dual", "kubernetes mode: one block of each family", false, true, modesKubernetesDual},
		{"modes-move", "a running cluster moves from crd to multi-pool mode, and back", false, true, modesMove},
		{"modes-bgp", "agents in multi-pool mode announce their blocks to a router", false, true, modesBGP},
		{"modes-bgp-kubernetes", "the same in kubernetes mode", false, true, modesBGPKubernetes},
		{"modes-drain", "multi-pool mode: the operator drains a block with pods, and is killed while the block is parked", false, true, modesDrain},
		{"drain-multipool", "multi-pool mode: a CIDR with pods is taken off an agent's list, in three ways", false, true, drainMultiPool},
		{"drain-multipool-native", "the same with native routing", false, true, drainMultiPoolNative},
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
	// operator is the running operator.
	operator *bed.Operator
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

// checkNone checks that nothing failed, and logs the errors.
func (e *env) checkNone(errs []error, what string) {
	for _, err := range errs {
		e.Logf("%v", err)
	}
	e.check(len(errs) == 0, what, "%d", len(errs))
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

// pool creates the pool from which all nodes get their /27 blocks, and IPv6 blocks of the same
// size if pods have both families.
func (e *env) pool(ctx context.Context) error {
	p := &v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: "all"}}
	p.Spec.IPv4 = &v1alpha1.IPv4Ranges{BlockSize: blockSize, CIDRs: []v1alpha1.PoolCIDR{{CIDR: poolCIDR}}}
	if e.families() == 2 {
		p.Spec.IPv6 = &v1alpha1.IPv6Ranges{BlockSize: blockSize6, CIDRs: []v1alpha1.PoolCIDR{{CIDR: poolCIDR6}}}
	}
	if err := e.Client.Create(ctx, p); err != nil {
		return fmt.Errorf("create pool: %w", err)
	}
	return nil
}

const (
	poolCIDR   = "100.66.224.0/19"
	blockSize  = 27
	blockSize6 = 123
	perBlock   = 30 // without the first and the last address
)

// node creates a machine and its Node, and starts its agent.
func (e *env) node(ctx context.Context, name string) (*bed.Node, error) {
	return e.nodeWith(ctx, name, nil)
}

// nodeWith creates a node with labels.
func (e *env) nodeWith(ctx context.Context, name string, labels map[string]string) (*bed.Node, error) {
	n, err := e.AddNode(ctx, name)
	if err != nil {
		return nil, err
	}
	return n, e.bringUp(ctx, n, labels)
}

// bringUp creates a machine's Node and starts its agent.
func (e *env) bringUp(ctx context.Context, n *bed.Node, labels map[string]string) error {
	if err := n.Register(ctx, labels); err != nil {
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
