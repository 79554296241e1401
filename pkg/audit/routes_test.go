package audit

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/frrconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// announce lets frr-k8s announce CIDRs from nodes to all neighbors.
func (w world) announce(cidrs map[string]string) {
	w.announceTo(map[string]any{"toAdvertise": map[string]any{"allowed": map[string]any{"mode": "all"}}}, cidrs)
}

// announceTo lets frr-k8s announce CIDRs from nodes by a template with one neighbor.
func (w world) announceTo(neighbor map[string]any, cidrs map[string]string) {
	template := frrconfig.Empty("frr", "t")
	template.Object["spec"] = map[string]any{
		"nodeSelector": map[string]any{"matchLabels": map[string]any{frrconfig.TemplateLabel: ""}},
		"bgp":          map[string]any{"routers": []any{map[string]any{"neighbors": []any{neighbor}}}},
	}
	w.Routes = state.NewFRRConfigurations()
	w.Routes.SetKnown()
	w.Routes.Set(frrconfig.Read(template))
	for i := range w.Nodes {
		n := &w.Nodes[i]
		n.Labels = map[string]string{corev1.LabelHostname: n.Name}
		w.Routes.SetNode(n.Name, n)
		if cidr := cidrs[n.Name]; cidr != "" {
			wants, _ := frrconfig.For(n, w.Routes.Templates(), fixtures.Prefixes(cidr), "")
			obj := wants[0].New("frr")
			obj.SetUID(types.UID(n.Name))
			w.Routes.Set(frrconfig.Read(obj))
		}
	}
}

func checksRoutes() map[string]checkTest {
	return map[string]checkTest{
		"announced":   {func(w world) { w.announce(map[string]string{"a": "10.0.0.0/29", "b": "10.0.0.8/29"}) }, ""},
		"not written": {func(w world) { w.announce(map[string]string{"a": "10.0.0.0/29"}) }, "BlockNotAnnounced PodIPBlock/10.0.0.8-29 Node/b 10.0.0.8/29"},
		"from the wrong node": {
			func(w world) { w.announce(map[string]string{"a": "10.0.0.8/29", "b": "10.0.0.8/29"}) },
			"AnnouncedByOtherNode Node/a 10.0.0.8/29, BlockNotAnnounced PodIPBlock/10.0.0.0-29 Node/a 10.0.0.0/29",
		},
		"to no neighbor": {
			func(w world) {
				w.announceTo(map[string]any{}, map[string]string{"a": "10.0.0.0/29", "b": "10.0.0.8/29"})
			},
			"BlockWithoutNeighbor PodIPBlock/10.0.0.0-29 Node/a 10.0.0.0/29, BlockWithoutNeighbor PodIPBlock/10.0.0.8-29 Node/b 10.0.0.8/29",
		},
		"to a neighbor of the other family": {
			func(w world) {
				all := map[string]any{"allowed": map[string]any{"mode": "all"}}
				w.announceTo(map[string]any{"address": "2001:db8::1", "toAdvertise": all}, map[string]string{"a": "10.0.0.0/29"})
			},
			"BlockNotAnnounced PodIPBlock/10.0.0.8-29 Node/b 10.0.0.8/29, BlockWithoutNeighbor PodIPBlock/10.0.0.0-29 Node/a 10.0.0.0/29",
		},
		"from a node with the same hostname": {
			func(w world) {
				w.announce(map[string]string{"a": "10.0.0.0/29"})
				w.Nodes[1].Labels = w.Nodes[0].Labels
				w.Routes.SetNode("b", &w.Nodes[1])
			},
			"AnnouncedByOtherNode Node/b 10.0.0.0/29, BlockNotAnnounced PodIPBlock/10.0.0.8-29 Node/b 10.0.0.8/29",
		},
		"left after the setting": {func(w world) { w.RoutesLeft = []types.NamespacedName{{Namespace: "frr", Name: "x"}} }, "FRRConfigurationLeft FRRConfiguration/frr/x"},
		"frr-k8s reports faults": {
			func(w world) {
				w.RouteFaults = []frrconfig.Report{
					{Kind: frrconfig.NodeStateKind, Name: "a", Node: "a", Fault: "refused"},
					{Kind: frrconfig.SessionStateKind, Namespace: "frr", Name: "x", Node: "b", Fault: "the session with 192.0.2.1 is Active"},
					{Kind: frrconfig.SessionStateKind, Namespace: "frr", Name: "y", Node: "gone", Fault: "the session with 192.0.2.1 is Active"},
				}
			},
			"FRRConfigurationRefused FRRNodeState/a Node/a, BGPSessionDown BGPSessionState/frr/x Node/b",
		},
		"without frr-k8s": {
			func(w world) { w.Routes = state.NewFRRConfigurations() },
			"BlockNotAnnounced PodIPBlock/10.0.0.0-29 Node/a 10.0.0.0/29, BlockNotAnnounced PodIPBlock/10.0.0.8-29 Node/b 10.0.0.8/29",
		},
	}
}
