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
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/agent"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
)

// leaseFor is how long the lease lasts without renewal.
const leaseFor = 15 * time.Second

// Config is the initial state of a world. All of it but Seed is the same for all worlds of a
// search.
type Config struct {
	// Nodes, and how many pods each may have at a time.
	Nodes, PodsPerNode int
	// Operators is the number of processes, one of which leads at a time.
	Operators int
	// Families of addresses. Empty: IPv4.
	Families []agent.Family
	// SwitchesFamilies: users switch the second family of agents off and on again.
	SwitchesFamilies bool
	// Pools exist from the start; Spare are ranges that users may add to the first of them.
	Pools []*v1alpha1.PodIPPool
	Spare []v1alpha1.PoolCIDR
	// Other is a pool that users may create and delete. Nil: none.
	Other *v1alpha1.PodIPPool
	// Move is another IPAM in which the world begins. Nil: none.
	Move *Move
	// Renumbering is a range that users replace. Nil: none.
	Renumbering *Renumbering
	// Maintenance is what holds blocks on their nodes. Nil: nothing.
	Maintenance *Maintenance
	// Labels of Nodes, by which pools select. Nil: pools select all.
	Labels *Labels
	// Cluster is what the cluster itself uses of the pools' ranges. Nil: nothing.
	Cluster *Cluster
	// Asking is what pods may request besides Cilium's pool default, in multi-pool mode. Nil:
	// nothing.
	Asking *Asking
	// Scheduling is the scheduler that binds pods, in crd mode. Nil: there is none.
	Scheduling *Scheduling
	// Settings of the operators. Upgraded are those after an upgrade.
	Settings, Upgraded config.Settings
	// Reserve is how many addresses of each Cilium pool agents in multi-pool mode keep free.
	Reserve map[string]int
	// UpdateRate is the minimum time between two reports of an agent.
	UpdateRate time.Duration
	// Faults are those that may happen.
	Faults Faults
	// Seed picks the addresses that agents assign to pods. Zero: the lowest.
	Seed uint64
	// Skew is how far the clocks of operators may be off, in either direction.
	Skew time.Duration
	// Model: each step is held to the model of the address protocol until one comes that the
	// model lacks.
	Model bool
	// ModelAlone: no other rule is checked.
	ModelAlone bool
	// Trace, if set, is called with a line for each action.
	Trace func(line string)
}

// World is the whole cluster. It is not safe for concurrent use.
type World struct {
	cfg       Config
	api       *API
	now       time.Time
	operators []*Operator
	machines  []*machine
	lease     struct {
		holder  *Operator
		renewed time.Time
	}
	slots []string
	mover *mover     // nil: people type no command
	sched *scheduler // nil: none

	judge *invariant.Judge
	// writer is the operator whose write is being carried out, or nil; byMover: it is a write
	// of kubectl cilium-pool.
	writer  *Operator
	byMover bool
	// dropped are pods, by UID, that were not restored; refused is when a pod's last CNI ADD
	// failed.
	dropped map[string]error
	refused map[string]time.Time
	backup  map[Kind]map[string]client.Object
	excused map[netip.Addr]excuse
	// left are the marks that an operator did not withdraw although it knew that the agent had
	// restarted, with their nodes by address. stories are what happened to addresses: see
	// happened.
	left, stories map[netip.Addr]string
	torn          map[string]tornBlock
	ipv6Over      bool                     // people are done with IPv6
	first         map[types.UID]firstClaim // by block, while no agent has read its CiliumNode
	sent          int                      // writes of operators, of which some changed nothing
	lasting       int                      // those that tell more than the hour
	turn          int                      // of Calm
	wrote         time.Time                // when an operator last wrote something
	hours         map[hourKey]hour         // what operators wrote for the hour alone

	refinement *refinement // nil: none, or no more

	// Violations of the rules so far.
	Violations []Violation
	Counts     Counts

	strips  map[Kind]toolscache.TransformFunc
	trace   func(string)
	quiet   context.Context
	enabled []Action
	known   *known // if Hash is asked for
}

// Violation is a broken rule.
type Violation struct {
	// Rule is its number in docs/contributing/architecture.md; 9 is liveness, 10 what users have asked for,
	// 11 that each step is one of the model, 12 that a pod is bound only where an address is
	// left for it.
	Rule int
	Text string
}

func (v Violation) String() string { return fmt.Sprintf("rule %d: %s", v.Rule, v.Text) }

// New creates a world in which nothing has happened yet: Nodes and pools exist, operators and
// agents are down.
func New(cfg Config) *World {
	cfg.Maintenance.apply(&cfg.Settings.Defaults)
	cfg.Maintenance.apply(&cfg.Upgraded.Defaults)
	if len(cfg.Families) == 0 {
		cfg.Families = []agent.Family{agent.IPv4}
	}
	w := &World{
		cfg: cfg, now: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC),
		dropped: map[string]error{}, refused: map[string]time.Time{}, excused: map[netip.Addr]excuse{}, torn: map[string]tornBlock{},
		first: map[types.UID]firstClaim{}, hours: map[hourKey]hour{}, left: map[netip.Addr]string{}, stories: map[netip.Addr]string{},
		judge: invariant.NewJudge(cfg.Settings.Defaults.Cooldown - 2*cfg.Skew),
		trace: cfg.Trace, quiet: log.IntoContext(context.Background(), logr.Discard()),
		Counts: newCounts(),
	}
	w.sched = newScheduler(w, cfg.Scheduling)
	w.strips = stripsOf()
	w.api = NewAPI(w.Now)
	w.api.stored = w.stored
	for i := range cfg.PodsPerNode {
		w.slots = append(w.slots, fmt.Sprintf("p%d", i+1))
	}
	if w.sched != nil {
		w.slots = append(w.slots, w.sched.slots...)
	}
	for i := range cfg.Operators {
		w.operators = append(w.operators, &Operator{w: w, name: fmt.Sprintf("op%d", i+1), settings: cfg.Settings})
	}
	for _, p := range cfg.Pools {
		w.must(w.api.Create(p))
	}
	if cfg.Asking != nil {
		w.makeNamespaces()
	}
	for i := range cfg.Nodes {
		m := &machine{w: w, name: fmt.Sprintf("n%d", i+1), families: cfg.Families, endpoints: map[string]*endpoint{}, router: map[agent.Family]netip.Addr{}}
		w.machines = append(w.machines, m)
		w.makeNode(m.name)
		if cfg.Move != nil {
			w.beginElsewhere(m, cfg.Move.Given[i])
		}
	}
	if cfg.Move != nil || cfg.Renumbering != nil {
		w.mover = &mover{w: w, ready: map[string]bool{}}
	}
	if cfg.Model {
		w.refinement = newRefinement(w)
	}
	return w
}

// makeNode creates a Node as its kubelet registers it.
func (w *World) makeNode(name string) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux"}}}
	w.cfg.Labels.register(w, node)
	w.must(w.api.Create(node))
}

// policy returns the policy that applies to a node for a family, and the pool it comes from;
// "": none.
func (w *World) policy(node string, v4 bool) (expand.Policy, string) {
	family := ipalloc.IPv6
	if v4 {
		family = ipalloc.IPv4
	}
	for _, o := range w.operators {
		if !o.leads {
			continue
		}
		if pools := crd.ForFamily(o.parts.Node.Pools.Match(w.labelsOf(node)), family, ""); len(pools) > 0 {
			return pools[0].Policy, pools[0].Name
		}
		return o.settings.Defaults.Policy, ""
	}
	return w.cfg.Settings.Defaults.Policy, ""
}

// Now is the true time.
func (w *World) Now() time.Time { return w.now }

// API returns the API server, for reading.
func (w *World) API() *API { return w.api }

// pass lets time pass: running leaders renew their lease, and processes that have lost it exit.
func (w *World) pass(d time.Duration) {
	w.now = w.now.Add(d)
	for _, o := range w.operators {
		switch {
		case !o.running() || !o.leads:
		case w.lease.holder == o:
			w.lease.renewed = w.now
		default:
			w.Counts.Faults["lost its lease"]++
			o.crash()
		}
	}
	for _, o := range w.operators {
		if o.running() {
			for _, q := range o.queues {
				q.due()
			}
		}
	}
}

// next returns when something comes due by time alone, or zero.
func (w *World) next() time.Time {
	var first time.Time
	at := func(t time.Time) {
		if t.After(w.now) && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	for _, o := range w.operators {
		if o.running() {
			o.dues(at)
		}
	}
	for _, m := range w.machines {
		m.dues(w.cfg.UpdateRate, at)
		for _, slot := range w.slots {
			if t, ok := w.refused[m.podKey(slot)]; ok {
				at(t.Add(addRetry))
			}
		}
	}
	if w.mover.busy() && w.mover.pending.verb == "sleep" {
		at(w.mover.woken)
	}
	if h := w.lease.holder; h != nil && (!h.running() || !h.leads) {
		at(w.lease.renewed.Add(leaseFor))
	}
	return first
}

// dues reports when something about the agent comes due by time alone.
func (m *machine) dues(rate time.Duration, at func(time.Time)) {
	if m.phase == down {
		at(m.again)
	}
	if m.reads() && m.asked && !m.silent {
		at(m.wrote.Add(rate))
	}
	for _, since := range m.waits {
		at(since.Add(patience))
	}
}

// dues reports when something about the operator comes due by time alone.
func (o *Operator) dues(at func(time.Time)) {
	for _, q := range o.queues {
		at(q.next())
	}
	for _, f := range o.flights {
		if f.pending.verb == "wait" {
			at(f.since.Add(shownWithin))
		}
	}
}

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

// pick returns one of n, the same for the same arguments.
func (w *World) pick(who string, turn uint64, n int) int {
	if w.cfg.Seed == 0 || n == 1 {
		return 0
	}
	h := w.cfg.Seed ^ turn*0x9e3779b97f4a7c15
	for i := range len(who) {
		h = (h ^ uint64(who[i])) * 0x100000001b3
	}
	h ^= h >> 31
	h *= 0xbf58476d1ce4e5b9
	h ^= h >> 29
	return int(h % uint64(n))
}

// must is for the world's own writes, which cannot fail.
func (w *World) must(_ client.Object, err error) { w.mustNot(err) }

func (w *World) mustNot(err error) {
	if err != nil {
		panic(err)
	}
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
	if w.mover != nil {
		w.mover.die()
	}
}
