package demo

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"text/tabwriter"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/agent/multipool"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/whole"
)

// sight is the state that the API server shows at one moment.
type sight struct {
	nodes []nodeSight // sorted by name
	pools []v1alpha1.PodIPPool
	// waiting is the number of pods without an address.
	waiting int
}

type nodeSight struct {
	name, zone string
	exists     bool // its CiliumNode
	// blocks are in service, leaving are those being returned.
	blocks, leaving []string
	// fromPools are the pools of the blocks in service.
	fromPools                []string
	addresses, used, running int
}

func (s *stage) look(ctx context.Context) (*sight, error) {
	nodes, cilium, pods := &corev1.NodeList{}, &ciliumv2.CiliumNodeList{}, &corev1.PodList{}
	blocks, pools := &v1alpha1.PodIPBlockList{}, &v1alpha1.PodIPPoolList{}
	if err := errors.Join(s.client.List(ctx, nodes), s.client.List(ctx, cilium), s.client.List(ctx, pods),
		s.client.List(ctx, blocks), s.client.List(ctx, pools)); err != nil {
		return nil, fmt.Errorf("look at the cluster: %w", err)
	}
	seen := &sight{pools: pools.Items, nodes: make([]nodeSight, len(nodes.Items))}
	for i, node := range nodes.Items {
		seen.nodes[i] = nodeSight{name: node.Name, zone: node.Labels[zoneLabel]}
	}
	for _, cn := range cilium.Items {
		n := seen.node(cn.Name)
		n.exists, n.addresses, n.used = true, len(cn.Spec.IPAM.Pool), len(cn.Status.IPAM.Used)
		for _, cidr := range whole.AssignedTo(&cn) {
			n.addresses += len(multipool.Inner(cidr))
		}
		if s.wholeBlocks() { // agents report no use
			n.used = len(whole.OwnAddresses(&cn))
		}
	}
	for _, b := range blocks.Items {
		n := seen.node(b.Spec.NodeName)
		if cmp.Or(b.Status.Phase, v1alpha1.PhaseInService) != v1alpha1.PhaseInService || b.DeletionTimestamp != nil {
			n.leaving = append(n.leaving, b.Spec.CIDR)
			continue
		}
		n.blocks = append(n.blocks, b.Spec.CIDR)
		n.fromPools = append(n.fromPools, b.Spec.PoolName)
	}
	for _, pod := range pods.Items {
		switch {
		case pod.Spec.HostNetwork:
		case pod.Status.PodIP == "":
			seen.waiting++
		default:
			n := seen.node(pod.Spec.NodeName)
			if n.running++; s.wholeBlocks() {
				n.used++
			}
		}
	}
	return seen, nil
}

// listed returns the CIDRs that other nodes route to a node.
func listed(cn *ciliumv2.CiliumNode) []netip.Prefix {
	out := whole.AssignedTo(cn)
	for _, p := range cn.Spec.IPAM.PodCIDRs {
		out = append(out, p.Prefix)
	}
	return out
}

// node returns the node with that name, or an empty one if there is none.
func (s *sight) node(name string) *nodeSight {
	if i := slices.IndexFunc(s.nodes, func(n nodeSight) bool { return n.name == name }); i >= 0 {
		return &s.nodes[i]
	}
	return &nodeSight{}
}

// every reports whether a condition holds for every node.
func (s *sight) every(holds func(nodeSight) bool) bool {
	return !slices.ContainsFunc(s.nodes, func(n nodeSight) bool { return !holds(n) })
}

// pool reports whether a pool's condition is true.
func (s *sight) pool(name, condition string) bool {
	return slices.ContainsFunc(s.pools, func(p v1alpha1.PodIPPool) bool {
		return p.Name == name && meta.IsStatusConditionTrue(p.Status.Conditions, condition)
	})
}

func (s *story) nodeTable(seen *sight) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out bytes.Buffer
	w := tabwriter.NewWriter(&out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "NODE\tZONE\tBLOCKS\tAT MOST\tADDRESSES\tUSED\tUTILISATION\tPODS\tPOD CIDRS")
	for _, n := range seen.nodes {
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%d%%\t%d\t%s\n", n.name, n.zone, len(n.blocks)+len(n.leaving), s.peaks[n.name],
			n.addresses, n.used, n.used*100/max(1, n.addresses), n.running, strings.Join(append(n.blocks, n.leaving...), " "))
	}
	_ = w.Flush() // writing to a Buffer does not fail
	return out.String()
}
