package main

import (
	"context"
	"hash/fnv"
	"maps"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/test/agent"
)

const (
	// updateRate is how often an agent of the demo reports, where real ones
	// take 15 s: so that it all fits into three minutes.
	updateRate = 2 * time.Second
	// lookEvery is how soon a new Node gets its agent.
	lookEvery = 300 * time.Millisecond
)

// fleet is an agent for every Node of the cluster, and the kubelet of them all.
type fleet struct {
	client  client.WithWatch
	hub     *agent.Hub
	kubelet *agent.Kubelet
	// added and failed count CNI ADDs.
	added, failed atomic.Int64

	mu     sync.Mutex
	agents map[string]*member
}

type member struct {
	*agent.Agent
	node types.UID
	stop context.CancelFunc
}

func newFleet(cfg *rest.Config) (*fleet, error) {
	c, err := agent.NewClient(cfg)
	if err != nil {
		return nil, err
	}
	f := &fleet{client: c, hub: agent.NewHub(c), agents: map[string]*member{}}
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

// run works until ctx ends.
func (f *fleet) run(ctx context.Context) {
	var parts sync.WaitGroup
	defer parts.Wait()
	parts.Go(func() { f.hub.Run(ctx) })
	parts.Go(func() { f.kubelet.Run(ctx) })
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		f.follow(ctx, &parts)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// follow starts an agent for every new Node and stops those whose Node is gone.
func (f *fleet) follow(ctx context.Context, parts *sync.WaitGroup) {
	nodes := &corev1.NodeList{}
	if err := f.client.List(ctx, nodes); err != nil {
		return // the next look comes soon
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	gone := maps.Clone(f.agents)
	for _, node := range nodes.Items {
		if m := f.agents[node.Name]; m != nil && m.node == node.UID {
			delete(gone, node.Name)
			continue
		}
		if m := f.agents[node.Name]; m != nil {
			m.stop()
		}
		delete(gone, node.Name)
		alive, stop := context.WithCancel(ctx)
		m := &member{Agent: f.newAgent(node.Name), node: node.UID, stop: stop}
		f.agents[node.Name] = m
		f.kubelet.Attach(m.Agent)
		parts.Go(func() { m.Run(alive) })
	}
	for name, m := range gone {
		m.stop()
		delete(f.agents, name)
	}
}

func (f *fleet) newAgent(name string) *agent.Agent {
	seed := fnv.New64a()
	_, _ = seed.Write([]byte(name))
	return agent.New(f.client, f.hub, agent.Options{
		NodeName:     name,
		UpdateRate:   updateRate,
		PollInterval: time.Second,
		CrashBackoff: 2 * time.Second,
		Seed:         seed.Sum64(),
		Health:       true,
		Pod:          true,
		PodExists:    f.kubelet.HasPod,
	})
}

// addresses are those that each node's pods and agent have right now.
func (f *fleet) addresses() map[string][]netip.Addr {
	f.mu.Lock()
	agents := maps.Clone(f.agents)
	f.mu.Unlock()
	held := make(map[string][]netip.Addr, len(agents))
	for name, m := range agents {
		all := map[netip.Addr]bool{}
		for addr := range m.Addresses() {
			all[addr] = true
		}
		for _, addrs := range m.Endpoints() {
			for _, addr := range addrs {
				all[addr] = true
			}
		}
		for addr := range all {
			held[name] = append(held[name], addr)
		}
	}
	return held
}

// ready says whether the agents of all these nodes take pods.
func (f *fleet) ready(ctx context.Context, names []string) error {
	for _, name := range names {
		f.mu.Lock()
		m := f.agents[name]
		f.mu.Unlock()
		if m == nil {
			return agent.ErrNotReady
		}
		if err := m.WaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}
