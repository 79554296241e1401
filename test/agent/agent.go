package agent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
)

// Options configure an Agent.
type Options struct {
	// NodeName is the name of the Node and of the CiliumNode.
	NodeName string
	// IPAM is the mode it runs in. Empty: CRD.
	IPAM IPAM
	// PreAllocate is the number of addresses of each family that it keeps free in multi-pool mode,
	// by Cilium pool (ipam-multi-pool-pre-allocation). Nil: 8 of pool default.
	PreAllocate map[string]int
	// Families the agent allocates for (enable-ipv4, enable-ipv6). Empty: IPv4; modes other than
	// CRD allow IPv6 only in addition.
	Families []Family
	// UpdateRate is the minimum time between two writes of its report
	// (ipam-cilium-node-update-rate). Zero: 15 s.
	UpdateRate time.Duration
	// PollInterval is the interval of a starting agent's checks for a pool (crd.go:227). Zero: 5 s.
	PollInterval time.Duration
	// CrashBackoff is the time that an agent that failed to start stays down. Zero: 10 s, kubelet's
	// first backoff.
	CrashBackoff time.Duration
	// Seed makes the choice of addresses repeatable.
	Seed uint64
	// Health allocates an address for the health endpoint too
	// (enable-health-checking, enable-endpoint-health-checking).
	Health bool
	// Pod keeps a Pod object for the agent, as its DaemonSet and kubelet do.
	Pod bool
	// PodExists reports whether a pod with an endpoint to restore still exists. Nil: all do.
	PodExists func(pod types.NamespacedName) bool
	// OnEvent, if set, is called for each event. It must not block.
	OnEvent func(Event)
}

// Event is something that happened to an agent.
type Event struct {
	Kind EventKind
	// Pod is the pod of EndpointDropped.
	Pod types.NamespacedName
	Err error
}

// EventKind is the kind of an Event.
type EventKind string

// Kinds of events.
const (
	EndpointDropped EventKind = "EndpointDropped"
	Crashed         EventKind = "Crashed"
)

// ErrNotReady is returned while the agent is down or still starting.
var ErrNotReady = errors.New("agent is not ready")

// Agent is a cilium-agent and the disk of its node: while Run runs it is up; when Run runs again it
// restores its endpoints.
type Agent struct {
	client client.Client
	hub    *Hub
	opts   Options

	mu sync.Mutex
	// On disk: endpoints of pods, and the router's address (node_config.h).
	endpoints map[types.NamespacedName]endpoint
	router    addresses
	// State of the current run.
	runs  uint64
	store allocator // nil while not ready
	ready chan struct{}
	kill  context.CancelFunc
}

// endpoint holds the addresses of a pod on the node, and the Cilium pools that they come from.
type endpoint struct {
	v4, v6 netip.Addr
	from   ciliumPools
}

// New returns an agent that is down, on a node with an empty disk. The client
// must know corev1 and Cilium's v2 types.
func New(c client.Client, hub *Hub, opts Options) *Agent {
	if len(opts.Families) == 0 {
		opts.Families = []Family{IPv4}
	}
	// The router's IPv4 address is allocated first (infra_ip_allocation.go:639).
	opts.Families = slices.Sorted(slices.Values(opts.Families))
	for d, value := range map[*time.Duration]time.Duration{
		&opts.UpdateRate: 15 * time.Second, &opts.PollInterval: 5 * time.Second, &opts.CrashBackoff: 10 * time.Second,
	} {
		if *d == 0 {
			*d = value
		}
	}
	if opts.PreAllocate == nil {
		opts.PreAllocate = map[string]int{crd.DefaultCiliumPool: 8}
	}
	if opts.OnEvent == nil {
		opts.OnEvent = func(Event) {}
	}
	return &Agent{
		client:    c,
		hub:       hub,
		opts:      opts,
		endpoints: map[types.NamespacedName]endpoint{},
		router:    addresses{},
		ready:     make(chan struct{}),
	}
}

// Name returns the name of the agent's node.
func (a *Agent) Name() string { return a.opts.NodeName }

// Run keeps the agent up until ctx ends: it restarts after a crash or a Restart.
func (a *Agent) Run(ctx context.Context) {
	var failed *corev1.ContainerStateTerminated // the previous run, if it failed
	for ctx.Err() == nil {
		alive, kill := context.WithCancel(ctx)
		run, started := a.begin(kill), metav1.Now()
		err := a.live(alive, run, failed)
		killed := alive.Err() != nil
		a.down()
		if killed {
			failed = nil
			continue
		}
		failed = &corev1.ContainerStateTerminated{
			ExitCode: 1, Reason: "Error", ContainerID: a.containerID(run), StartedAt: started, FinishedAt: metav1.Now(),
		}
		a.opts.OnEvent(Event{Kind: Crashed, Err: err})
		sleep(ctx, a.opts.CrashBackoff)
	}
}

func (a *Agent) begin(kill context.CancelFunc) (run uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.kill = kill
	a.runs++
	return a.runs
}

// down ends the current run, if any, and closes the agent to pods.
func (a *Agent) down() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.kill != nil {
		a.kill()
	}
	if a.store != nil {
		a.store, a.ready = nil, make(chan struct{})
	}
}

// Restart kills the agent and returns when it is up again, or ctx has ended. Run must be
// running.
func (a *Agent) Restart(ctx context.Context) error {
	a.down()
	return a.WaitReady(ctx)
}

// WaitReady returns when the agent accepts CNI ADDs, or ctx has ended.
func (a *Agent) WaitReady(ctx context.Context) error {
	a.mu.Lock()
	ready := a.ready
	a.mu.Unlock()
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for agent %s: %w", a.opts.NodeName, ctx.Err())
	}
}

// live is one run of the agent (configureDaemon, daemon/cmd/daemon.go:140).
func (a *Agent) live(ctx context.Context, run uint64, failed *corev1.ContainerStateTerminated) error {
	var background sync.WaitGroup
	defer background.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pod := containerRun{id: a.containerID(run), restarts: run - 1, started: time.Now(), after: failed}
	a.writePod(ctx, pod, false)

	node, err := a.node(ctx)
	if err != nil {
		return err
	}
	cn := &ciliumv2.CiliumNode{}
	if err := a.client.Get(ctx, types.NamespacedName{Name: a.opts.NodeName}, cn); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("get CiliumNode: %w", err)
	}
	router, health := ownAddresses(cn)
	if !a.opts.Health {
		health = addresses{}
	}

	way := a.newWay(run, node)
	store := way.pool()
	background.Go(func() { way.write(ctx) })
	if cn, err = a.discover(ctx, node, router, health); err != nil { // crd.go:117
		return err
	}
	defer way.watch(cn)()

	for !way.ready() { // crd.go:206
		if !sleep(ctx, a.opts.PollInterval) {
			return ctx.Err()
		}
	}
	way.open()
	a.restore(store, rand.New(rand.NewPCG(a.opts.Seed, ^run)))
	if err := a.allocateOwn(store, node, router, health); err != nil {
		return err
	}
	if _, err := a.discover(ctx, node, router, health); err != nil {
		return err
	}
	way.restored()
	a.up(ctx, store)
	a.writePod(ctx, pod, true)
	<-ctx.Done()
	return ctx.Err()
}

func (a *Agent) newSession(run uint64) *Session {
	random := rand.New(rand.NewPCG(a.opts.Seed, run))
	return NewSession(a.client, a.hub, a.opts.NodeName, a.opts.UpdateRate, StoreOptions{
		Families:       a.opts.Families,
		HealthChecking: a.opts.Health,
		Pick:           func(candidates []string) string { return candidates[random.IntN(len(candidates))] },
	})
}

// up opens the agent to pods, unless it was killed in the meantime.
func (a *Agent) up(ctx context.Context, store allocator) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if ctx.Err() == nil {
		a.store = store
		close(a.ready)
	}
}
