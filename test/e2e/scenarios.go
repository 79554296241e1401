//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"sync"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"

	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
	"github.com/cilium-pool/cilium-pool-operator/test/harness/process"
	"github.com/cilium-pool/cilium-pool-operator/test/harness/script"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/whole"
)

// scenarios returns all of them; the moves and the other modes take half an hour each, so "all"
// leaves them out.
func scenarios() []script.Scenario {
	return []script.Scenario{
		{Name: "join", CI: true, Alone: true},
		{Name: "surge", CI: true, Alone: true},
		{Name: "reclaim", CI: true},
		{Name: "restart", CI: true},
		{Name: "restart-surge", Alone: true},
		{Name: "restart-early"},
		{Name: "dual", File: "life"},
		{Name: "ipv6", File: "life"},
		{Name: "native", File: "life"},
		{Name: "second-family"},
		{Name: "undo"},
		{Name: "kill"},
		{Name: "recreate"},
		{Name: "gone"},
		{Name: "vacate"},
		{Name: "vacate-own", File: "vacate"},
		{Name: "vacate-native", File: "vacate"},
		{Name: "vacate-wireguard", File: "vacate"},
		{Name: "vacate-kill"},
		{Name: "unguarded"},
		{Name: "migrate-cluster-pool", Apart: true, Alone: true, File: "migrate"},
		{Name: "migrate-kubernetes", Apart: true, Alone: true, File: "migrate"},
		{Name: "migrate-multi-pool", Apart: true, Alone: true, File: "migrate"},
		{Name: "migrate-to-multi-pool", Apart: true, Alone: true},
		{Name: "modes-multi-pool", Apart: true, Alone: true},
		{Name: "modes-multi-pool-dual", Apart: true, Alone: true, File: "modes-multi-pool"},
		{Name: "modes-second-family", Apart: true, Alone: true, File: "second-family"},
		{Name: "modes-pools", Apart: true, Alone: true},
		{Name: "modes-kubernetes", Apart: true, Alone: true},
		{Name: "modes-kubernetes-dual", Apart: true, Alone: true, File: "modes-kubernetes"},
		{Name: "modes-move", Apart: true, Alone: true},
		{Name: "modes-bgp", Apart: true, Alone: true},
		{Name: "modes-bgp-kubernetes", Apart: true, Alone: true, File: "modes-bgp"},
		{Name: "modes-drain", Apart: true, Alone: true},
		{Name: "modes-compact", Apart: true, Alone: true},
		{Name: "modes-in-place", Apart: true, Alone: true},
		{Name: "matrix-crd", Apart: true, File: "matrix"},
		{Name: "matrix-multi-pool", Apart: true, File: "matrix"},
		{Name: "modes-hand-over", Apart: true, Alone: true},
		{Name: "bgp-crd", Apart: true, Alone: true, File: "modes-bgp"}, // with PATCHED=1 alone
	}
}

// env is the environment of a scenario.
type env struct {
	*bed.Bed
	script.Table
	scenario script.Scenario
	options  bed.Options
	// patched agents answer marks once they have restored their pods, and restore them
	// at marked addresses.
	patched bool
	rules   *invariant.Checker
	// whole checks further rules where agents are assigned whole blocks.
	whole *whole.Rules
	// operators are the running operators, and flags are their own.
	operators []*process.Process
	flags     []string
	renewing  sync.Mutex // for these two

	// The rest is named by the script.
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
	cilium     *process.Process            // Cilium's own
	unwatch    context.CancelFunc          // ends the watch of rules
	churn      *churn
	rounds     int // of traffic
	router     *bed.Router
	peers      []*bed.Node
	seen       int // the router's events when it last had every block
}

// logf logs a line; before the bed there is only standard error.
func (e *env) logf(format string, args ...any) {
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
		e.logf("%v", err)
	}
	for _, what := range refused {
		e.logf("the operator may not: %s", what)
	}
	e.Check(err == nil && len(refused) == 0, "requests of the operator refused for want of rights", "%d", len(refused))
}

const (
	poolCIDR  = "100.66.224.0/19"
	poolCIDR6 = "fd00:100:162::/64"
)
