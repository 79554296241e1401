package main

import (
	"encoding/json"
	"log/slog"
	"net"
	"net/netip"

	"github.com/cilium/cilium/pkg/cidr"
	"github.com/cilium/cilium/pkg/ipam"
	ipamoption "github.com/cilium/cilium/pkg/ipam/option"
	"github.com/cilium/cilium/pkg/k8s"
	slimcorev1 "github.com/cilium/cilium/pkg/k8s/slim/k8s/api/core/v1"
	"github.com/cilium/cilium/pkg/node"
	"github.com/cilium/cilium/pkg/option"
	"github.com/cilium/cilium/pkg/source"
)

// fixedRequest is one input line in kubernetes mode. Do is one of start, next, restore,
// release.
type fixedRequest struct {
	Do     string           `json:"do"`
	Node   *slimcorev1.Node `json:"node,omitempty"`
	IPv6   bool             `json:"ipv6,omitempty"`
	Owner  string           `json:"owner,omitempty"`
	IP     string           `json:"ip,omitempty"`
	Family string           `json:"family,omitempty"`
}

// fixedResponse is one output line. PodCIDRs are the CIDRs that the agent reads from its Node, IPv4
// first.
type fixedResponse struct {
	Err       string   `json:"err,omitempty"`
	Got       string   `json:"got,omitempty"`
	PodCIDRs  []string `json:"podCIDRs,omitempty"`
	Ready     bool     `json:"ready,omitempty"`
	Allocated []string `json:"allocated,omitempty"`
}

// fixedServer is a node in kubernetes mode. It takes the steps of the agent's start between these
// parts of Cilium: read the Node (localNodeSynchronizer.retrieveNodeInformation), wait for a
// podCIDR of each family, set them in the local node
// (localNodeSynchronizer.WaitForNodeInformation), create the allocators. It omits
// IPAMInitializer.AutoComplete, which makes up a podCIDR if none is required.
type fixedServer struct {
	ipam     *ipam.IPAM
	podCIDRs addressing
}

func (s *fixedServer) serve(line []byte) (any, error) {
	var req fixedRequest
	if err := json.Unmarshal(line, &req); err != nil {
		return nil, err
	}
	var resp fixedResponse
	if err := s.do(req, &resp); err != nil {
		resp.Err = err.Error()
	}
	for _, f := range []family{s.podCIDRs.v4, s.podCIDRs.v6} {
		if f.podCIDR != nil {
			resp.PodCIDRs = append(resp.PodCIDRs, f.podCIDR.String())
		}
	}
	if resp.Ready = s.ipam != nil; resp.Ready {
		resp.Allocated = allocated(s.ipam)
	}
	return resp, nil
}

func (s *fixedServer) do(req fixedRequest, resp *fixedResponse) error {
	switch req.Do {
	case "start":
		s.start(req)
		return nil
	case "next":
		result, err := s.ipam.AllocateNextFamily(ipam.Family(req.Family), req.Owner, "")
		if err == nil {
			resp.Got = result.IP.String()
		}
		return err
	}
	ip, err := netip.ParseAddr(req.IP)
	if err != nil {
		return err
	}
	if req.Do == "release" {
		return s.ipam.ReleaseIP(ip, defaultPool)
	}
	_, err = s.ipam.AllocateIPWithoutSyncUpstream(ip, req.Owner, defaultPool)
	return err
}

func (s *fixedServer) start(req fixedRequest) {
	option.Config.AnnotateK8sNode, option.Config.IPAMDefaultIPPool = true, defaultPool
	log := slog.New(slog.DiscardHandler)
	n := k8s.ParseNode(log, req.Node, source.Unspec)
	s.podCIDRs = addressing{family{n.IPv4AllocCIDR}, family{n.IPv6AllocCIDR}}
	s.ipam = nil
	if n.IPv4AllocCIDR == nil || req.IPv6 && n.IPv6AllocCIDR == nil {
		return
	}
	s.ipam = ipam.NewIPAM(ipam.NewIPAMParams{
		Logger:         log,
		NodeAddressing: s.podCIDRs,
		AgentConfig:    &option.DaemonConfig{EnableIPv4: true, EnableIPv6: req.IPv6, IPAM: ipamoption.IPAMKubernetes},
		Metadata:       onePool{},
	})
	s.ipam.ConfigureAllocator()
}

// addressing has the local node's podCIDRs.
type addressing struct{ v4, v6 family }

func (a addressing) IPv4() node.AddressingFamily { return a.v4 }
func (a addressing) IPv6() node.AddressingFamily { return a.v6 }

type family struct{ podCIDR *cidr.CIDR }

func (f family) AllocationCIDR() *cidr.CIDR { return f.podCIDR }
func (family) Router() net.IP               { return nil }
func (family) PrimaryExternal() net.IP      { return nil }
