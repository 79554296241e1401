package main

import (
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/test/agent"
	"github.com/cilium-pool/cilium-pool-operator/test/sim/changes/schema"
	"github.com/cilium-pool/cilium-pool-operator/test/sim/world"
)

// poolName is the pool whose spec changes.
const poolName = "main"

type spec = map[string]any

// state is a state of the cluster in which a spec changes.
type state struct {
	name, about string
	// first is the spec with which the cluster begins, and base the one that it has when the
	// state is reached; nil: the same.
	first, base spec
	// before and after are the other pools, created before the pool or after it.
	before, after *v1alpha1.PodIPPool
	// pods of n1 run before base is set, and late ones are created after it.
	pods, late []string
	// dualStack: agents run both families.
	dualStack bool
	// unready: the change is made before anything has happened.
	unready bool
}

// plain is a pool of 36 blocks with two addresses each.
func plain() spec {
	p := schema.PoolExample()
	return spec{
		"ipv4":   spec{"blockSize": int64(30), "cidrs": p["ipv4"].(spec)["cidrs"]},
		"expand": p["expand"], "reclaim": p["reclaim"], "cooldown": p["cooldown"],
	}
}

// with returns a spec with some fields set to other values.
func with(s, fields spec) spec {
	out := runtime.DeepCopyJSON(s)
	maps.Copy(out, fields)
	return out
}

// ranges returns IPv4 ranges, the first with this policy.
func ranges(policy string, cidrs ...string) spec {
	var list []any
	for i, c := range cidrs {
		rng := spec{"cidr": c}
		if i == 0 && policy != "" {
			rng["allocationPolicy"] = policy
		}
		list = append(list, rng)
	}
	return spec{"blockSize": int64(30), "cidrs": list}
}

// other returns a pool that overlaps the last ranges of the pool.
func other(name string, priority int32) *v1alpha1.PodIPPool {
	return &v1alpha1.PodIPPool{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.PodIPPoolSpec{
			Priority: priority,
			IPv4:     &v1alpha1.IPv4Ranges{BlockSize: 30, CIDRs: []v1alpha1.PoolCIDR{{CIDR: "10.0.0.8/29"}, {CIDR: "10.9.0.0/29"}}},
		},
	}
}

func states() []state {
	few := with(plain(), spec{"ipv4": ranges("", "10.0.0.0/30", "10.0.0.8/30", "10.0.1.0/30")})
	draining := with(plain(), spec{"ipv4": ranges("Drain", "10.0.0.0/29", "10.0.0.8/29", "10.0.1.0/25")})
	cordoned := with(plain(), spec{"ipv4": ranges("Cordon", "10.0.0.0/29", "10.0.0.8/29", "10.0.1.0/25")})
	two, three := []string{"p1", "p2"}, []string{"p1", "p2", "p3"}
	return []state{
		{name: "fresh", about: "nothing has happened yet", first: plain(), unready: true},
		{name: "grown", about: "pods of a node have needed a second block", first: plain(), pods: two},
		{name: "complete", about: "every field is set, and nodes are dual stack", first: schema.PoolExample(), pods: two, dualStack: true},
		{name: "draining", about: "a range drains whose addresses pods have", first: plain(), base: draining, pods: two},
		{name: "cordoned", about: "a range is cordoned whose blocks nodes hold", first: plain(), base: cordoned, pods: two},
		{name: "paused", about: "the pool is paused, and a pod waits", first: plain(), base: with(plain(), spec{"paused": true}), pods: two, late: []string{"p3", "p4"}},
		{name: "full", about: "no block is left, and a pod waits", first: few, pods: three},
		{name: "overlapping", about: "a range is also of a younger pool", first: plain(), after: other("other", -1), pods: two},
		{name: "overlapped", about: "a range is of an older pool", first: plain(), before: other("other", -1), pods: two},
	}
}

// config returns the world of a state, without faults. How long blocks are idle and cool down
// is set in the pools, so that it can be any time.
func (s *state) config(first *v1alpha1.PodIPPool) world.Config {
	p := expand.DefaultPolicy()
	p.PressurePercent, p.IdleFor = 0, 0
	c := world.Config{
		Nodes: 2, PodsPerNode: 4, Operators: 1, UpdateRate: 15 * time.Second,
		Settings: config.Settings{
			Defaults:       crd.Defaults{Policy: p, NodeGoneCooldown: 5 * time.Minute},
			AgentNamespace: "kube-system", AgentSettle: time.Minute, NodeWorkers: 2,
		},
		Maintenance: &world.Maintenance{},
	}
	for _, pool := range []*v1alpha1.PodIPPool{s.before, first, s.after} {
		if pool != nil {
			c.Pools = append(c.Pools, pool)
		}
	}
	if s.dualStack {
		c.Families = []agent.Family{agent.IPv4, agent.IPv6}
	}
	c.Upgraded = c.Settings
	return c
}

// from returns the spec that changes.
func (s *state) from() spec {
	if s.base != nil {
		return s.base
	}
	return s.first
}
