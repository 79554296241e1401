package ciliumnode

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// podCIDRAnnotations are annotations of a Node, by family (pkg/annotation/k8s.go, V4CIDRName and
// V6CIDRName, v1.20.1). The second of each is its older name. The agent reads it only where the
// first is absent (annotation.Get).
var podCIDRAnnotations = [2][2]string{
	ipalloc.IPv4: {"network.cilium.io/ipv4-pod-cidr", "io.cilium.network.ipv4-pod-cidr"},
	ipalloc.IPv6: {"network.cilium.io/ipv6-pod-cidr", "io.cilium.network.ipv6-pod-cidr"},
}

// viewOfNode reads a Node in kubernetes mode. Before it starts, an agent waits for its Node to have
// a podCIDR of each family that it requires, in the spec or in an annotation
// (pkg/k8s/node.go, ParseNode; pkg/node/sync/local_node_sync_wait.go, v1.20.1), and
// keeps it until it restarts. So a Node takes the place of its CiliumNode here. The report is the zero
// value if it is not known.
func viewOfNode(obj client.Object, report agentReport) *View {
	v := &View{
		Name: obj.GetName(), UID: obj.GetUID(), ResourceVersion: obj.GetResourceVersion(), Own: report.own, familyDisabled: report.familyDisabled,
		BlockAssignment: &BlockAssignment{SingleBlock: true, HasAgent: report.exists, ActiveCIDRs: report.activeCIDRs},
	}
	node, ok := obj.(*corev1.Node)
	if !ok {
		return v
	}
	for _, f := range ipalloc.Families() {
		said := append([]string{}, node.Spec.PodCIDRs...)
		if len(said) == 0 {
			said = append(said, node.Spec.PodCIDR)
		}
		annotated := annotatedOf(f, node.Annotations)
		// The agent prefers the spec to the annotation.
		if p := firstOf(f, append(said, annotated...)); p.IsValid() {
			v.PodCIDRs = append(v.PodCIDRs, p)
		}
		if p := firstOf(f, annotated); p.IsValid() {
			v.BlockAssignment.Annotated = append(v.BlockAssignment.Annotated, p)
		}
	}
	return v
}

func annotatedOf(f ipalloc.Family, annotations map[string]string) []string {
	for _, name := range podCIDRAnnotations[f] {
		if said, ok := annotations[name]; ok {
			return []string{said}
		}
	}
	return nil
}

// firstOf returns the first CIDR of a family, without host bits. It reads them as the agent does
// (pkg/cidr/cidr.go, ParseCIDR, v1.20.1), which accepts more than netip: 10.0.0.0/024.
func firstOf(f ipalloc.Family, said []string) netip.Prefix {
	for _, s := range said {
		_, cidr, err := net.ParseCIDR(s)
		if err != nil {
			continue
		}
		if p, err := netip.ParsePrefix(cidr.String()); err == nil && ipalloc.FamilyOf(p.Addr()) == f {
			return p
		}
	}
	return netip.Prefix{}
}

// patchNode assigns one block of each family that the Node has none of.
func (c Change) patchNode(v *View) *patch {
	assigned := newPodCIDRs(v, c)
	if len(assigned) == 0 {
		return nil
	}
	p := v.newPatch()
	p.Metadata.Annotations = map[string]string{}
	for f, cidr := range assigned {
		p.Metadata.Annotations[podCIDRAnnotations[f][0]] = cidr.String()
	}
	return &p
}

func newPodCIDRs(v *View, c Change) map[ipalloc.Family]netip.Prefix {
	var served [2]bool
	for _, cidr := range v.PodCIDRs {
		served[ipalloc.FamilyOf(cidr.Addr())] = true
	}
	assigned := map[ipalloc.Family]netip.Prefix{}
	for _, cidr := range sorted(c.Blocks) {
		if f := ipalloc.FamilyOf(cidr.Addr()); !served[f] && slices.Contains(c.Assign, cidr) {
			assigned[f] = cidr
			served[f] = true
		}
	}
	return assigned
}

// versionAnnotation is an annotation of a Node with the version that the write replaces: never the
// same value twice.
const versionAnnotation = "cilium-pool.io/moved"

// ErrRunsWithAnother means that a Node may not be assigned a podCIDR, as its agent runs
// with another one.
var ErrRunsWithAnother = errors.New("the agent runs with another podCIDR")

// checkRuns refuses to assign a Node a podCIDR if its agent has run with another one: the
// agent would switch to the new one when it restarts, and its pods would lose
// connectivity.
func (c *Client) checkRuns(ctx context.Context, v *View, change Change) error {
	runs, err := c.RunsWith(ctx, v.Name)
	if err != nil {
		return err
	}
	assigned := newPodCIDRs(v, change)
	for _, active := range runs {
		if cidr, ok := assigned[ipalloc.FamilyOf(active.Addr())]; ok && cidr != active {
			return fmt.Errorf("%w: %s on Node %s, which is not assigned %s", ErrRunsWithAnother, active, v.Name, cidr)
		}
	}
	return nil
}

// RunsWith returns the CIDRs that a node's agent runs with, by its CiliumNode, read live
// (pkg/nodediscovery/nodediscovery.go, mutateNodeResource), if they were assigned before it started
// and it keeps them regardless of later changes to its Node. Otherwise none.
func (c *Client) RunsWith(ctx context.Context, name string) ([]netip.Prefix, error) {
	if c.Mode != Kubernetes {
		return nil, nil
	}
	cn, err := (&Client{Reader: c.Reader}).Live(ctx, name)
	if cn == nil {
		return nil, err
	}
	return cn.PodCIDRs, nil
}
