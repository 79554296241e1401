package main

import (
	"log/slog"
	"time"

	"github.com/cilium/cilium/pkg/ipam"
	ipamoption "github.com/cilium/cilium/pkg/ipam/option"
	"github.com/cilium/cilium/pkg/k8s/client/clientset/versioned"
	"github.com/cilium/cilium/pkg/node"
	nodetypes "github.com/cilium/cilium/pkg/node/types"
	"github.com/cilium/cilium/pkg/option"
	ciliumtime "github.com/cilium/cilium/pkg/time"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/cilium-pool/cilium-pool-operator/test/truth/wire"
)

const defaultPool = "default"

// settings configure an agent in crd mode.
type settings struct {
	kubeconfig, node string
	rate             time.Duration
	// poll is the most that Cilium's own waits may take, such as the 5 s for the first pool.
	poll time.Duration
}

// crdAgent is a node in crd mode. The underlying node store is a process-wide singleton
// (pkg/ipam/crd.go:49), hence one node per process.
type crdAgent struct {
	ipam   *ipam.IPAM
	ready  chan struct{}
	events *events
	gate   *wire.Gate
}

func newCRDAgent(s settings) (*crdAgent, error) {
	ciliumtime.MaxInternalTimerDelay = s.poll
	cfg, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		return nil, err
	}
	cfg.QPS = -1
	cilium, err := versioned.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	a := &crdAgent{ready: make(chan struct{}), events: &events{}, gate: wire.NewGate()}
	nodetypes.SetName(s.node)
	// PoolDefault reads the global configuration (pkg/ipam/ipam.go).
	option.Config.IPAMDefaultIPPool = defaultPool
	a.ipam = ipam.NewIPAM(ipam.NewIPAMParams{
		Logger: slog.New(slog.DiscardHandler),
		AgentConfig: &option.DaemonConfig{
			EnableIPv4:               true,
			EnableIPv6:               true,
			IPAM:                     ipamoption.IPAMCRD,
			IPAMCiliumNodeUpdateRate: s.rate,
		},
		NodeDiscovery:  noDiscovery{},
		LocalNodeStore: node.NewTestLocalNodeStore(node.LocalNode{}),
		K8sEventReg:    a.events,
		Clientset:      &clientset{cilium: cilium, events: a.events, gate: a.gate},
		Metadata:       onePool{},
	})
	go func() {
		a.ipam.ConfigureAllocator() // blocks until the CiliumNode has a pool
		close(a.ready)
	}()
	return a, nil
}

func (a *crdAgent) do(req wire.Request) (known bool, err error) {
	if req.Do != "gate" {
		return false, nil
	}
	a.gate.Set(req.Gate)
	return true, nil
}

func (a *crdAgent) allocators(wait bool) *ipam.IPAM {
	if wait {
		<-a.ready
	}
	return once(a.ready, a.ipam)
}

func (a *crdAgent) tell(resp *wire.Response) {
	resp.Seen, resp.Attempts = a.events.seen(), a.gate.Attempts()
}

// once returns the allocators once they are ready, and nil before.
func once(ready chan struct{}, allocators *ipam.IPAM) *ipam.IPAM {
	select {
	case <-ready:
		return allocators
	default:
		return nil
	}
}

// noDiscovery leaves the creation of the CiliumNode to the test: the real one,
// pkg/nodediscovery, cannot be built outside its cell.
type noDiscovery struct{}

func (noDiscovery) UpdateCiliumNodeResource() {}

// onePool answers as pkg/ipam/metadata does outside multi-pool mode.
type onePool struct{}

func (onePool) GetIPPoolForPod(string, ipam.Family) (string, error) { return defaultPool, nil }
