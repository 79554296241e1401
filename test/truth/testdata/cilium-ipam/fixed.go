package main

import (
	"encoding/json"
	"log/slog"
	"net"

	"github.com/cilium/cilium/pkg/cidr"
	"github.com/cilium/cilium/pkg/ipam"
	ipamoption "github.com/cilium/cilium/pkg/ipam/option"
	"github.com/cilium/cilium/pkg/k8s"
	slimcorev1 "github.com/cilium/cilium/pkg/k8s/slim/k8s/api/core/v1"
	"github.com/cilium/cilium/pkg/node"
	"github.com/cilium/cilium/pkg/option"
	"github.com/cilium/cilium/pkg/source"

	"github.com/cilium-pool/cilium-pool-operator/test/truth/wire"
)

// fixedAgent is a node in kubernetes mode. It takes the steps of the agent's start between these
// parts of Cilium: read the Node (localNodeSynchronizer.retrieveNodeInformation), wait for a
// podCIDR of each family, set them in the local node
// (localNodeSynchronizer.WaitForNodeInformation), create the allocators. It omits
// IPAMInitializer.AutoComplete, which makes up a podCIDR if none is required.
type fixedAgent struct {
	ipam     *ipam.IPAM
	podCIDRs addressing
}

func (a *fixedAgent) do(req wire.Request) (known bool, err error) {
	if req.Do != "start" {
		return false, nil
	}
	var n slimcorev1.Node
	if err := json.Unmarshal(req.K8sNode, &n); err != nil {
		return true, err
	}
	a.start(&n, req.IPv6)
	return true, nil
}

func (a *fixedAgent) allocators(bool) *ipam.IPAM { return a.ipam }

func (a *fixedAgent) tell(resp *wire.Response) {
	for _, f := range []family{a.podCIDRs.v4, a.podCIDRs.v6} {
		if f.podCIDR != nil {
			resp.PodCIDRs = append(resp.PodCIDRs, f.podCIDR.String())
		}
	}
}

func (a *fixedAgent) start(from *slimcorev1.Node, ipv6 bool) {
	option.Config.AnnotateK8sNode, option.Config.IPAMDefaultIPPool = true, defaultPool
	log := slog.New(slog.DiscardHandler)
	n := k8s.ParseNode(log, from, source.Unspec)
	a.podCIDRs = addressing{family{n.IPv4AllocCIDR}, family{n.IPv6AllocCIDR}}
	a.ipam = nil
	if n.IPv4AllocCIDR == nil || ipv6 && n.IPv6AllocCIDR == nil {
		return
	}
	a.ipam = ipam.NewIPAM(ipam.NewIPAMParams{
		Logger:         log,
		NodeAddressing: a.podCIDRs,
		AgentConfig:    &option.DaemonConfig{EnableIPv4: true, EnableIPv6: ipv6, IPAM: ipamoption.IPAMKubernetes},
		Metadata:       onePool{},
	})
	a.ipam.ConfigureAllocator()
}

// addressing has the local node's podCIDRs.
type addressing struct{ v4, v6 family }

func (a addressing) IPv4() node.AddressingFamily { return a.v4 }
func (a addressing) IPv6() node.AddressingFamily { return a.v6 }

type family struct{ podCIDR *cidr.CIDR }

func (f family) AllocationCIDR() *cidr.CIDR { return f.podCIDR }
func (family) Router() net.IP               { return nil }
func (family) PrimaryExternal() net.IP      { return nil }
