package importer

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/importer/selector"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// clusterCIDR is the spec of a ClusterCIDR: KEP-2593, networking.k8s.io/v1alpha1
// of Kubernetes 1.25 to 1.28, and networking.x-k8s.io/v1 of the project
// node-ipam-controller.
type clusterCIDR struct {
	NodeSelector    *corev1.NodeSelector `json:"nodeSelector"`
	PerNodeHostBits int                  `json:"perNodeHostBits"`
	IPv4            string               `json:"ipv4"`
	IPv6            string               `json:"ipv6"`
}

func isClusterCIDR(o Object) bool {
	return o.Kind == "ClusterCIDR" && (o.group() == "networking.k8s.io" || o.group() == "networking.x-k8s.io")
}

func convertClusterCIDR(r *Result, o Object) {
	var spec clusterCIDR
	unknown, ok := r.read(o, "spec", fields(o.content, "spec"), &spec)
	if !ok {
		return
	}
	if r.named(o.Name) {
		r.lost(o, "metadata.name", "there is a ClusterCIDR of this name already, which was taken", "Import the one that holds")
		return
	}
	d := newDraft(r, o, o.Name)
	d.unknown("spec.", unknown)
	for _, f := range ipalloc.Families() {
		cidr := map[ipalloc.Family]string{ipalloc.IPv4: spec.IPv4, ipalloc.IPv6: spec.IPv6}[f]
		if cidr != "" {
			bits := d.blockBits("spec.perNodeHostBits", f, f.Bits()-spec.PerNodeHostBits)
			d.add(f, d.cidrs("spec."+f.String(), []string{cidr}), bits, v1alpha1.EdgeIPs{})
		}
	}
	var err error
	if d.pool.Spec.NodeSelector, err = selector.FromNodeSelector(spec.NodeSelector).LabelSelector(); err != nil {
		d.withhold("spec.nodeSelector", err.Error())
	} else {
		d.pool.Spec.Priority = requirements(spec.NodeSelector)
	}
	d.done()
}

// requirements returns the number of labels that a ClusterCIDR names: among the matches of a node,
// the one with the most comes first (KEP-2593, Expected Behavior). With several terms it is the
// smallest of them.
func requirements(s *corev1.NodeSelector) int32 {
	if s == nil || len(s.NodeSelectorTerms) == 0 {
		return 0
	}
	least := len(s.NodeSelectorTerms[0].MatchExpressions)
	for _, t := range s.NodeSelectorTerms[1:] {
		least = min(least, len(t.MatchExpressions))
	}
	return int32(least)
}

// remarkTies remarks on pools among which a ClusterCIDR's further tie-breaks would choose.
// A pool that is withheld serves no node.
func remarkTies(r *Result) {
	names := map[int32][]string{}
	for _, p := range r.Pools {
		s := p.Object.Spec
		if s.NodeSelector == nil || s.NodeSelector.MatchLabels[WithholdLabel] == "" {
			names[s.Priority] = append(names[s.Priority], p.Object.Name)
		}
	}
	for _, priority := range slices.Sorted(maps.Keys(names)) {
		if len(names[priority]) > 1 {
			r.Remarks = append(r.Remarks, Remark{
				Object: "ClusterCIDRs " + strings.Join(names[priority], ", "), Field: "spec.nodeSelector",
				Reason: "they name as many labels. For nodes that several of them match, Kubernetes takes the one with the fewest podCIDRs left first; PodIPPools of one priority are taken by name",
				Fix:    "Change spec.priority if the order matters",
			})
		}
	}
}
