package main

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/test/agent"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/whole"
)

// updateRate is how often an agent reports, where real ones take 15 s: so that
// a minute sees many handshakes.
const updateRate = time.Second

// fleet is the machines of the cluster: their agents and their kubelets.
type fleet struct {
	client  client.WithWatch
	mode    mode
	hub     *agent.Hub
	kubelet *agent.Kubelet
	// added and failed count CNI ADDs; dropped endpoints that an agent could not
	// restore; crashed starts of agents that failed.
	added, failed, dropped, crashed atomic.Int64

	mu       sync.Mutex
	random   *rand.Rand
	machines map[string]*machine
	running  sync.WaitGroup
}

// machine is a node's agent, with its disk.
type machine struct {
	*agent.Agent
	stop context.CancelFunc
}

func newFleet(cfg *rest.Config, seed uint64, m mode) (*fleet, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent = whole.AgentWriter // by which the API server's book tells who wrote
	c, err := agent.NewClient(cfg)
	if err != nil {
		return nil, err
	}
	f := &fleet{
		client: c, mode: m, hub: agent.NewHub(c), machines: map[string]*machine{},
		random: rand.New(rand.NewPCG(seed, 1)),
	}
	f.kubelet = agent.NewKubelet(c, agent.KubeletOptions{
		Retry: time.Second,
		OnAdd: func(_ types.NamespacedName, err error) {
			if err != nil {
				f.failed.Add(1)
				return
			}
			f.added.Add(1)
		},
	})
	return f, nil
}

// run works until ctx ends, and all machines are off.
func (f *fleet) run(ctx context.Context) {
	f.running.Go(func() { f.hub.Run(ctx) })
	f.running.Go(func() { f.kubelet.Run(ctx) })
	<-ctx.Done()
	f.running.Wait()
}

// boot starts a machine with an empty disk.
func (f *fleet) boot(ctx context.Context, node string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	alive, stop := context.WithCancel(ctx)
	m := &machine{stop: stop, Agent: agent.New(f.client, f.hub, agent.Options{
		NodeName: node, IPAM: agent.IPAM(f.mode.String()), PreAllocate: preAllocate,
		UpdateRate: updateRate, PollInterval: time.Second, CrashBackoff: 2 * time.Second,
		Seed: f.random.Uint64(), Health: true, Pod: true, PodExists: f.kubelet.HasPod, OnEvent: f.note,
	})}
	f.machines[node] = m
	f.kubelet.Attach(m.Agent)
	f.running.Go(func() { m.Run(alive) })
}

func (f *fleet) note(e agent.Event) {
	switch e.Kind {
	case agent.EndpointDropped:
		f.dropped.Add(1)
	case agent.Crashed:
		f.crashed.Add(1)
	}
}

// scrap ends a machine for good.
func (f *fleet) scrap(node string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m := f.machines[node]; m != nil {
		m.stop()
		delete(f.machines, node)
	}
}

func (f *fleet) machine(node string) *machine {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.machines[node]
}

// ready waits until the agents of all machines take pods.
func (f *fleet) ready(ctx context.Context) error {
	f.mu.Lock()
	machines := make([]*machine, 0, len(f.machines))
	for _, m := range f.machines {
		machines = append(machines, m)
	}
	f.mu.Unlock()
	for _, m := range machines {
		if err := m.WaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// own are the addresses that an agent has for itself.
func (m *machine) own() []netip.Addr {
	var out []netip.Addr
	for addr, owner := range m.Addresses() {
		if owner == "router" || owner == "health" {
			out = append(out, addr)
		}
	}
	return out
}

// held are the addresses that each node's pods and agent have right now.
func (f *fleet) held() map[string][]netip.Addr {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make(map[string][]netip.Addr, len(f.machines))
	for name, m := range f.machines {
		for addr := range m.Addresses() {
			out[name] = append(out[name], addr)
		}
		for _, addrs := range m.Endpoints() {
			out[name] = append(out[name], addrs...)
		}
		slices.SortFunc(out[name], netip.Addr.Compare)
		out[name] = slices.Compact(out[name])
	}
	return out
}

// ServeHTTP tells what is held, for the checker's process.
func (f *fleet) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	_ = json.NewEncoder(w).Encode(f.held()) // who asked may be gone
}
