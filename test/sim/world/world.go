package world

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/test/agent"
)

// leaseFor is the duration of the lease without renewal.
const leaseFor = 15 * time.Second

// Config is the initial state of a world. All of it but Seed is the same for all worlds of a
// search.
type Config struct {
	// The number of Nodes, and of pods that each may have at a time.
	Nodes, PodsPerNode int
	// Operators is the number of processes, one of which leads at a time.
	Operators int
	// Families of addresses. Empty: IPv4.
	Families []agent.Family
	// EtcdRestores: people copy etcd, and put it back to the copy.
	EtcdRestores bool
	// SwitchesFamilies: users switch the second family of agents off and on again.
	SwitchesFamilies bool
	// Pools exist from the start; Spare are ranges that users may add to the first of them.
	Pools []*v1alpha1.PodIPPool
	Spare []v1alpha1.PoolCIDR
	// Other is a pool that users may create and delete. Nil: none.
	Other *v1alpha1.PodIPPool
	// Move is another IPAM that the world begins with. Nil: none.
	Move *Move
	// Maintenance limits when blocks leave their nodes. Nil: no limit.
	Maintenance *Maintenance
	// Labels of Nodes, by which pools select. Nil: pools select all.
	Labels *Labels
	// Cluster lists the cluster's own addresses in the pools' ranges. Nil: none.
	Cluster *Cluster
	// Asking lists the pools that pods may request besides Cilium's pool default, in multi-pool
	// mode. Nil: nothing.
	Asking *Asking
	// Scheduling is the scheduler that binds pods. Nil: there is none.
	Scheduling *Scheduling
	// Settings of the operators. Upgraded are those after an upgrade.
	Settings, Upgraded config.Settings
	// Reserve is the number of addresses of each Cilium pool that agents in multi-pool mode keep
	// free.
	Reserve map[string]int
	// UpdateRate is the minimum time between two reports of an agent.
	UpdateRate time.Duration
	// Faults are those that may happen.
	Faults Faults
	// Seed picks the addresses that agents assign to pods. Zero: the lowest.
	Seed uint64
	// Skew is the largest error of the operators' clocks, in either direction.
	Skew time.Duration
	// Model: each step is held to the model of the address protocol until one comes that the
	// model lacks.
	Model bool
	// ModelAlone: no other rule is checked.
	ModelAlone bool
	// Trace, if set, is called with a line for each action.
	Trace func(line string)
}

// Settings returns those of operators that keep one address free.
func Settings() config.Settings {
	p := expand.DefaultPolicy()
	p.MinFree, p.IdleFor, p.PressurePercent = 1, 2*time.Minute, 0
	return config.Settings{
		Defaults:       crd.Defaults{Policy: p, Cooldown: time.Minute, NodeGoneCooldown: 5 * time.Minute},
		AgentNamespace: "kube-system", AgentSettle: time.Minute, NodeWorkers: 2,
	}
}

// Pool returns a pool with one IPv4 range.
func Pool(name string, priority, size int32, cidr string) *v1alpha1.PodIPPool {
	return &v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.PodIPPoolSpec{
		Priority: priority, IPv4: &v1alpha1.IPv4Ranges{BlockSize: size, CIDRs: []v1alpha1.PoolCIDR{{CIDR: cidr}}},
	}}
}

// World is the whole cluster. Its parts hold the state; each knows the World. It is not safe for
// concurrent use.
type World struct {
	queries
	operators []*Operator
	machines  []*machine

	clock      *clock
	processes  *processes
	workload   *workload
	sched      *scheduler // nil: none
	users      *users
	poolUsers  *poolUsers
	etcd       *etcd
	migration  *migration
	quiescence *quiescence

	rules      *writeRules
	modeRules  *modeRules
	offers     *offerRules
	settled    *settledRules
	space      *space
	refinement *refinement // nil: none, or no more

	// Violations of the rules so far.
	Violations []Violation
	Counts     Counts

	strips  map[Kind]toolscache.TransformFunc
	trace   func(string)
	quiet   context.Context
	enabled []Action
}

// Violation is a broken rule.
type Violation struct {
	// Rule is its number in docs/contributing/architecture.md; 9 is liveness, 10 the users'
	// requests, 11 that each step is one of the model, 12 that a pod is bound only where an address
	// is left for it.
	Rule int
	Text string
}

func (v Violation) String() string { return fmt.Sprintf("rule %d: %s", v.Rule, v.Text) }

// New creates a world at its beginning: Nodes and pools exist, operators and agents are down.
func New(cfg Config) *World {
	cfg.Maintenance.apply(&cfg.Settings.Defaults)
	cfg.Maintenance.apply(&cfg.Upgraded.Defaults)
	if len(cfg.Families) == 0 {
		cfg.Families = []agent.Family{agent.IPv4}
	}
	w := &World{
		trace: cfg.Trace, quiet: log.IntoContext(context.Background(), logr.Discard()), strips: stripsOf(), Counts: NewCounts(),
	}
	w.clock = &clock{World: w, now: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)}
	w.queries = queries{cfg: cfg, api: NewAPI(w.Now)}
	w.rules = newWriteRules(w)
	w.modeRules, w.offers, w.settled, w.space = &modeRules{w}, &offerRules{w}, &settledRules{w}, &space{w}
	w.processes = &processes{World: w}
	w.workload = &workload{World: w, dropped: map[string]error{}, refused: map[string]time.Time{}}
	w.users, w.poolUsers = &users{World: w}, &poolUsers{World: w}
	w.etcd = &etcd{World: w}
	w.migration = &migration{World: w}
	w.quiescence = &quiescence{World: w}
	w.sched = newScheduler(w, cfg.Scheduling)
	w.api.stored = w.rules.stored
	for i := range cfg.PodsPerNode {
		w.workload.slots = append(w.workload.slots, fmt.Sprintf("p%d", i+1))
	}
	for i := range cfg.stays() {
		w.workload.slots = append(w.workload.slots, fmt.Sprint(staying, i))
	}
	if w.sched != nil {
		w.workload.slots = append(w.workload.slots, w.sched.slots...)
	}
	for i := range cfg.Operators {
		w.operators = append(w.operators, &Operator{w: w, name: fmt.Sprintf("op%d", i+1), settings: cfg.Settings})
	}
	for i, p := range cfg.Pools {
		if p = p.DeepCopy(); i == 0 && w.gains() {
			p.Spec.IPv6 = nil
		}
		w.must(w.api.Create(p))
	}
	if cfg.Asking != nil || w.rules.delegated() {
		w.poolUsers.makeNamespaces()
	}
	for i := range cfg.Nodes {
		m := w.newMachine(i)
		w.machines = append(w.machines, m)
		w.makeNode(m.name)
		if cfg.Move != nil {
			w.migration.beginElsewhere(m, cfg.Move.Given[i])
		}
	}
	if cfg.Move != nil {
		w.migration.mover = &mover{w: w, ready: map[string]bool{}}
	}
	if cfg.Model {
		w.refinement = newRefinement(w)
	}
	return w
}

// newMachine returns the machine of a node before anything runs there.
func (w *World) newMachine(i int) *machine {
	m := &machine{w: w, name: fmt.Sprintf("n%d", i+1), families: w.cfg.Families, endpoints: map[string]*endpoint{}, router: map[agent.Family]netip.Addr{}}
	m.kubelet = &kubelet{machine: m}
	if w.gains() {
		m.families = []agent.Family{agent.IPv4}
	}
	if w.delegated() {
		newNodeAgent(m)
	}
	return m
}

// makeNode creates a Node as its kubelet registers it.
func (w *World) makeNode(name string) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux"}}}
	w.cfg.Labels.register(w, node)
	w.must(w.api.Create(node))
}

// Now is the true time.
func (w *World) Now() time.Time { return w.clock.now }

func (w *World) machine(name string) *machine {
	for _, m := range w.machines {
		if m.name == name {
			return m
		}
	}
	return nil
}

func (w *World) operator(name string) *Operator {
	for _, o := range w.operators {
		if o.name == name {
			return o
		}
	}
	return nil
}

func (w *World) tracef(format string, args ...any) {
	if w.trace != nil {
		w.trace(fmt.Sprintf(format, args...))
	}
}

func traceLogger(line func(string)) logr.Logger {
	return funcr.New(func(prefix, args string) { line(strings.TrimSpace(prefix + " " + args)) }, funcr.Options{Verbosity: 1})
}

func deleted[T comparable](list []T, one T) []T {
	out := list[:0:0]
	for _, x := range list {
		if x != one {
			out = append(out, x)
		}
	}
	return out
}

// Close ends everything in progress.
func (w *World) Close() {
	for _, o := range w.operators {
		if o.up {
			o.crash()
		}
	}
	if w.migration.mover != nil {
		w.migration.mover.die()
	}
	w.closeNodeAgents()
}
