package main

import (
	"io"
	"log/slog"

	"github.com/cilium/cilium/pkg/ipam"
	ipamoption "github.com/cilium/cilium/pkg/ipam/option"
	"github.com/cilium/cilium/pkg/node"
	nodetypes "github.com/cilium/cilium/pkg/node/types"
	"github.com/cilium/cilium/pkg/option"
	"github.com/cilium/cilium/pkg/time"
)

const defaultPool = "default"

// newIPAM creates Cilium's own allocator in crd mode. Its ConfigureAllocator blocks until the
// CiliumNode has a pool; the underlying node store is a process-wide singleton
// (pkg/ipam/crd.go:49), hence one node per process.
func newIPAM(nodeName string, ipv6 bool, rate time.Duration, client *clientset, events *events) *ipam.IPAM {
	nodetypes.SetName(nodeName)
	// PoolDefault reads the global configuration (pkg/ipam/ipam.go).
	option.Config.IPAMDefaultIPPool = defaultPool
	return ipam.NewIPAM(ipam.NewIPAMParams{
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		AgentConfig: &option.DaemonConfig{
			EnableIPv4:               true,
			EnableIPv6:               ipv6,
			IPAM:                     ipamoption.IPAMCRD,
			IPAMCiliumNodeUpdateRate: rate,
		},
		NodeDiscovery:  noDiscovery{},
		LocalNodeStore: node.NewTestLocalNodeStore(node.LocalNode{}),
		K8sEventReg:    events,
		Clientset:      client,
		Metadata:       onePool{},
	})
}

// noDiscovery leaves the creation of the CiliumNode to the test: the real one,
// pkg/nodediscovery, cannot be built outside its cell.
type noDiscovery struct{}

func (noDiscovery) UpdateCiliumNodeResource() {}

// onePool answers as pkg/ipam/metadata does outside multi-pool mode.
type onePool struct{}

func (onePool) GetIPPoolForPod(string, ipam.Family) (string, error) { return defaultPool, nil }
