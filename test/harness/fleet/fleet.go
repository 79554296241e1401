// Package fleet simulates the machines of a cluster: an agent for each node, and
// one kubelet for them all.
package fleet

import (
	"context"
	"errors"
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/test/agent"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// Options configure a Fleet.
type Options struct {
	// Agent is the common part of all agents. The fleet itself sets the node's name, the seed, Pod,
	// PodExists and OnEvent. Its Families are those of the machines that Follow boots.
	Agent agent.Options
	// Seed makes the choice of addresses repeatable, together with a node's name.
	Seed uint64
	// Retry is the kubelet's wait after a failed CNI call. Zero: 10 s.
	Retry time.Duration
	// Workers is the number of pods that the kubelet works on at the same time. Zero: 16.
	Workers int
}

// Fleet is the machines of a cluster.
type Fleet struct {
	// Added and Failed count CNI ADDs, Exhausted the ones of Failed that found no address; Dropped
	// endpoints that an agent could not restore; Crashed starts of agents that failed.
	Added, Failed, Exhausted, Dropped, Crashed atomic.Int64

	client  client.WithWatch
	opts    Options
	hub     *agent.Hub
	kubelet *agent.Kubelet

	mu       sync.Mutex
	machines map[string]*Machine
	booted   uint64
	running  sync.WaitGroup
}

// Machine is a node's agent, with its disk.
type Machine struct {
	*agent.Agent
	node types.UID // where Follow booted it
	stop context.CancelFunc
}

// Quick are an agent's times for tests, so that everything happens within seconds.
func Quick() agent.Options {
	return agent.Options{UpdateRate: 200 * time.Millisecond, PollInterval: 50 * time.Millisecond, CrashBackoff: 100 * time.Millisecond}
}

// IPAM is the mode of agents.
func (f *Fleet) IPAM() agent.IPAM {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.opts.Agent.IPAM
}

// SetIPAM sets the mode of agents that boot from now on.
func (f *Fleet) SetIPAM(mode agent.IPAM) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opts.Agent.IPAM = mode
}

// New returns a Fleet without machines; Run makes it work.
func New(c client.WithWatch, opts Options) *Fleet {
	f := &Fleet{client: c, opts: opts, hub: agent.NewHub(c), machines: map[string]*Machine{}}
	f.kubelet = agent.NewKubelet(c, agent.KubeletOptions{Retry: opts.Retry, Workers: opts.Workers, OnAdd: func(_ *corev1.Pod, err error) {
		if errors.Is(err, agent.ErrExhausted) {
			f.Exhausted.Add(1)
		}
		if err != nil {
			f.Failed.Add(1)
			return
		}
		f.Added.Add(1)
	}})
	return f
}

// Run works until ctx ends, and all machines are off.
func (f *Fleet) Run(ctx context.Context) {
	f.running.Go(func() { f.hub.Run(ctx) })
	f.running.Go(func() { f.kubelet.Run(ctx) })
	<-ctx.Done()
	f.running.Wait()
}

// Boot starts a machine with an empty disk, in the place of the node's former one; it runs until
// ctx ends. families are the families of its agent.
func (f *Fleet) Boot(ctx context.Context, node string, families ...agent.Family) *Machine {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.boot(ctx, node, families...)
}

// boot has f.mu held.
func (f *Fleet) boot(ctx context.Context, node string, families ...agent.Family) *Machine {
	opts := f.opts.Agent
	f.booted++
	opts.NodeName, opts.Families, opts.Seed = node, families, f.seed(node)
	opts.Pod, opts.PodExists, opts.OnEvent = true, f.kubelet.HasPod, f.note
	if before := f.machines[node]; before != nil {
		before.stop()
	}
	alive, stop := context.WithCancel(ctx)
	m := &Machine{stop: stop, Agent: agent.New(f.client, f.hub, opts)}
	f.machines[node] = m
	f.kubelet.Attach(m.Agent)
	if alive.Err() == nil {
		f.running.Go(func() { m.Run(alive) })
	}
	return m
}

// seed differs from boot to boot, as the choices of a new machine do.
func (f *Fleet) seed(node string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(node))
	return h.Sum64() ^ f.opts.Seed ^ f.booted<<32
}

func (f *Fleet) note(e agent.Event) {
	switch e.Kind {
	case agent.EndpointDropped:
		f.Dropped.Add(1)
	case agent.Crashed:
		f.Crashed.Add(1)
	}
}

// Follow is Run, and boots a machine for every Node there is; it scraps machines without a Node.
func (f *Fleet) Follow(ctx context.Context) {
	f.running.Go(func() {
		for ctx.Err() == nil {
			nodes := &corev1.NodeList{}
			if f.client.List(ctx, nodes) == nil { // else the next look comes soon
				f.have(ctx, nodes.Items)
			}
			_ = harness.Sleep(ctx, 300*time.Millisecond)
		}
	})
	f.Run(ctx)
}

func (f *Fleet) have(ctx context.Context, nodes []corev1.Node) {
	f.mu.Lock()
	defer f.mu.Unlock()
	gone := maps.Clone(f.machines)
	for i := range nodes {
		node := &nodes[i]
		if m := gone[node.Name]; m != nil && m.node == node.UID {
			delete(gone, node.Name)
		}
	}
	for name, m := range gone {
		m.stop()
		delete(f.machines, name)
	}
	for i := range nodes {
		if node := &nodes[i]; f.machines[node.Name] == nil {
			f.boot(ctx, node.Name, f.opts.Agent.Families...).node = node.UID
		}
	}
}

// Scrap stops a machine and drops its disk.
func (f *Fleet) Scrap(node string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m := f.machines[node]; m != nil {
		m.stop()
		delete(f.machines, node)
	}
}

// Machine returns the machine of a node, or nil.
func (f *Fleet) Machine(node string) *Machine {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.machines[node]
}

// Ready waits until the agents of all machines take pods.
func (f *Fleet) Ready(ctx context.Context) error {
	f.mu.Lock()
	machines := slices.Collect(maps.Values(f.machines))
	f.mu.Unlock()
	for _, m := range machines {
		if err := m.WaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Own are the addresses that an agent has for itself.
func (m *Machine) Own() []netip.Addr {
	var out []netip.Addr
	for addr, owner := range m.Addresses() {
		if owner == "router" || owner == "health" {
			out = append(out, addr)
		}
	}
	return out
}

// Held are the addresses that each node's pods and agent have right now.
func (f *Fleet) Held() map[string][]netip.Addr {
	f.mu.Lock()
	machines := maps.Clone(f.machines)
	f.mu.Unlock()
	out := make(map[string][]netip.Addr, len(machines))
	for name, m := range machines {
		held := slices.Collect(maps.Keys(m.Addresses()))
		for _, addrs := range m.Endpoints() {
			held = append(held, addrs...)
		}
		slices.SortFunc(held, netip.Addr.Compare)
		out[name] = slices.Compact(held)
	}
	return out
}
