package main

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/test/sim/world"
)

// scope is a part of what can happen, small enough to try all of it: where it
// begins, which actions there are, and how many of them in a row.
type scope struct {
	name, about string
	// depth is how many actions, unless asked for otherwise.
	depth  int
	faults world.Faults
	// before brings a new world to where the search begins.
	before func(*prelude)
	// verbs are those that are tried, with how often at most in one history.
	verbs map[world.Verb]int
	// mishaps bounds how many faults there are in one history, of all verbs.
	mishaps int
	// change, if set, makes the world another one.
	change func(*world.Config)
}

// mishap says that a verb is a fault. A process dies right after its writes only:
// to die later, before the next one, leaves the same behind.
func mishap(v world.Verb) bool {
	return v == world.CallKills || v == world.CallUnheard || v == world.AgentDies
}

// free is for verbs that may happen any number of times.
const free = -1

// only are the actions tried of verbs that have more: time passes to the next
// timer, or so that the lease is over; of reconciles those of nodes, as the others
// write a pool's status and a block's finalizer alone.
func only() map[world.Verb]string {
	return map[world.Verb]string{world.Pass: "next", world.JumpFar: "20s", world.Reconcile: "node/"}
}

// allows says that an action is one of the scope's.
func (s scope) allows(a world.Action) bool {
	what, narrow := only()[a.Verb]
	return s.verbs[a.Verb] != 0 && (!narrow || strings.HasPrefix(a.What, what))
}

// config is the world of all scopes: two operators, two nodes, and a pool of
// three blocks, each with two addresses that can be used.
func (s scope) config() world.Config {
	p := expand.DefaultPolicy()
	p.MinFree, p.IdleFor = 1, 30*time.Second
	p.PressurePercent = 0 // how full a pool was last seen to be is no part of a state
	c := world.Config{
		Nodes: 2, PodsPerNode: 1, Operators: 2, UpdateRate: 15 * time.Second, Faults: s.faults,
		Settings: config.Settings{
			Defaults:       crd.Defaults{Policy: p, Cooldown: time.Minute, NodeGoneCooldown: 5 * time.Minute},
			AgentNamespace: "kube-system", AgentSettle: time.Minute, NodeWorkers: 2,
		},
		Pools: []*v1alpha1.PodIPPool{{
			ObjectMeta: metav1.ObjectMeta{Name: "main"},
			Spec: v1alpha1.PodIPPoolSpec{IPv4: &v1alpha1.IPv4Ranges{
				BlockSize: 30, CIDRs: []v1alpha1.PoolCIDR{{CIDR: "10.0.0.0/29"}, {CIDR: "10.0.0.8/30"}},
			}},
		}},
	}
	if s.change != nil {
		s.change(&c)
	}
	return c
}

// with joins sets of verbs.
func with(sets ...map[world.Verb]int) map[world.Verb]int {
	all := map[world.Verb]int{}
	for _, set := range sets {
		for verb, n := range set {
			all[verb] = n
		}
	}
	return all
}

// operators is what two operators do that both lead, as the first one has not
// noticed yet that its lease is over: it does so when time passes.
func operators() map[world.Verb]int {
	return map[world.Verb]int{
		world.Reconcile: free, world.Call: free, world.Shown: free, world.CallKills: free, world.CallUnheard: free,
	}
}

func agents() map[world.Verb]int {
	return map[world.Verb]int{
		world.AgentStart: free, world.AgentOpen: free, world.AgentRestore: free, world.AgentServe: free,
		world.AgentReport: free,
	}
}

func pods() map[world.Verb]int {
	return map[world.Verb]int{world.PodAdd: free, world.PodStatus: free, world.PodDel: free, world.PodGone: free}
}

const strife = world.KillAfterWrite | world.Unheard | world.Jump

func scopes() []scope {
	return []scope{
		{
			name: "join", about: "two new nodes, one with an agent that waits, and two leaders, who die and lose answers",
			mishaps: 1, depth: 7, faults: strife, before: (*prelude).bothLead,
			verbs: operators(),
		},
		{
			name: "lag", about: "the same, with watches that lag, each kind for itself",
			mishaps: 1, depth: 7, faults: strife | world.Lag, before: (*prelude).bothLead,
			verbs: with(operators(), map[world.Verb]int{world.Watch: free}),
		},
		{
			name: "grow", about: "two nodes need the third block of two leaders, who die and lose answers",
			mishaps: 1, depth: 6, faults: strife, before: (*prelude).bothGrow,
			verbs: with(operators(), pods(), map[world.Verb]int{world.Timeout: 1, world.Pass: 1}),
		},
		{
			name: "release", about: "a block leaves while its node's agent restarts, a pod comes, and two lead who die and lose answers",
			mishaps: 2, depth: 5, faults: strife | world.AgentKill, before: (*prelude).blockLeaves,
			verbs: with(operators(), agents(), pods(), map[world.Verb]int{
				world.AgentDies: free, world.AgentPod: free, world.PodNew: 1, world.Pass: 3, world.Start: 1, world.Lead: 1,
			}),
		},
		{
			name: "return", about: "a block rests and goes to the other node; its first leader wakes up about to publish it",
			mishaps: 1, depth: 11, faults: strife | world.Freeze, before: (*prelude).blockRests,
			verbs: with(operators(), pods(), map[world.Verb]int{world.Thaw: free, world.Pass: 4}),
		},
		{
			name: "drain", about: "a block in use is deleted; its pod goes or stays, and two lead who die and lose answers",
			mishaps: 1, depth: 20, faults: strife | world.BlockEdits, before: (*prelude).blockDeleted,
			verbs: with(operators(), pods(), map[world.Verb]int{world.AgentReport: free, world.PodDelete: 1, world.Pass: 2}),
		},
	}
}

func scopeNamed(name string) (scope, bool) {
	all := scopes()
	i := slices.IndexFunc(all, func(s scope) bool { return s.name == name })
	if i < 0 {
		return scope{}, false
	}
	return all[i], true
}
