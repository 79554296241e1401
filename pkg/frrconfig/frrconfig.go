// Package frrconfig is the only code that reads or writes FRRConfigurations. By these
// frr-k8s configures the FRR of each node. It turns them into plain values, and derives the objects that
// announce the blocks of a node.
//
// It never talks to Kubernetes. The kind is api/v1beta1 of github.com/metallb/frr-k8s v0.0.21. The
// objects stay unstructured: a copy of a template must have the fields of later versions, too.
package frrconfig

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Kind is the kind of FRRConfigurations.
var Kind = schema.GroupVersionKind{Group: "frrk8s.metallb.io", Version: "v1beta1", Kind: "FRRConfiguration"}

// Plural is their resource.
const Plural = "frrconfigurations"

const (
	// TemplateLabel in the nodeSelector of an FRRConfiguration makes it a template for the nodes
	// that the rest of the selector matches. No Node has the label, so frr-k8s itself applies the
	// template to none. Otherwise its webhook would refuse every change of a session that the
	// operator's objects have already (internal/controller/merge.go, neighborsAreCompatible).
	TemplateLabel = "cilium-pool.io/template"
	// NodeAnnotation on the operator's objects names the node.
	NodeAnnotation = "cilium-pool.io/node"

	// An FRRConfiguration with this label belongs to the operator, which writes and deletes no other.
	managedByLabel = "app.kubernetes.io/managed-by"
	managedBy      = "cilium-pool-operator"
)

// View is an FRRConfiguration as plain values. It is read-only.
type View struct {
	Name            string
	UID             types.UID
	ResourceVersion string
	// Ours: it has the operator's label. The operator ignores others, except templates.
	Ours bool
	// Node is the node of one of ours, and Hostname the label by which it selects the node.
	Node     string
	Hostname string
	// Prefixes are the prefixes of all its routers that can be parsed, in their order.
	Prefixes []netip.Prefix
	// template is the spec of a template, and selector selects its nodes; nil: it is none.
	template map[string]any
	selector labels.Selector
	// identity identifies spec and owner of one of ours.
	identity [sha256.Size]byte
}

// Read reads an FRRConfiguration.
func Read(obj *unstructured.Unstructured) *View {
	v := &View{
		Name: obj.GetName(), UID: obj.GetUID(), ResourceVersion: obj.GetResourceVersion(),
		Ours: obj.GetLabels()[managedByLabel] == managedBy,
	}
	spec, _, _ := unstructured.NestedMap(obj.Object, "spec")
	if v.Ours {
		v.Node = obj.GetAnnotations()[NodeAnnotation]
		v.identity = identify(spec, obj.GetOwnerReferences())
		v.Hostname, _, _ = unstructured.NestedString(spec, "nodeSelector", "matchLabels", corev1.LabelHostname)
		for _, router := range nestedMaps(spec, "bgp", "routers") {
			v.Prefixes = append(v.Prefixes, prefixes(router["prefixes"])...)
		}
		return v
	}
	if v.selector = templateFor(spec); v.selector != nil {
		v.template = spec
	}
	return v
}

// IsTemplate reports whether the operator copies the FRRConfiguration for some nodes.
func (v *View) IsTemplate() bool { return v.selector != nil }

// templateFor returns the selector of the nodes that a spec is a template for; nil: it is none.
func templateFor(spec map[string]any) labels.Selector {
	var labelSelector metav1.LabelSelector
	content, _, _ := unstructured.NestedMap(spec, "nodeSelector")
	if runtime.DefaultUnstructuredConverter.FromUnstructured(content, &labelSelector) != nil {
		return nil
	}
	if _, ok := labelSelector.MatchLabels[TemplateLabel]; !ok {
		return nil
	}
	delete(labelSelector.MatchLabels, TemplateLabel)
	selector, err := metav1.LabelSelectorAsSelector(&labelSelector)
	if err != nil { // the webhook of frr-k8s refuses it
		return nil
	}
	return selector
}

// identify returns a hash of the fields that the operator writes.
func identify(spec map[string]any, owners []metav1.OwnerReference) [sha256.Size]byte {
	body, err := json.Marshal([]any{spec, owners}) // sorts keys
	if err != nil {
		return [sha256.Size]byte{}
	}
	return sha256.Sum256(body)
}

// Want is an FRRConfiguration that should exist.
type Want struct {
	Name string
	node *corev1.Node
	spec map[string]any
}

// For returns the FRRConfigurations that announce blocks of a Node, one for each of the templates
// that select it, and the reason that a block is not announced; "": all are.
// holder is another Node that is announced by the same label kubernetes.io/hostname; "": none is. The
// FRRConfigurations select the Node by it.
func For(node *corev1.Node, templates []*View, blocks []netip.Prefix, holder string) ([]Want, string) {
	host := node.Labels[corev1.LabelHostname]
	templates = slices.DeleteFunc(slices.Clone(templates), func(v *View) bool { return v.selector == nil || !v.selector.Matches(labels.Set(node.Labels)) })
	if holder != "" {
		return nil, "FRRConfigurations select the node by the label " + corev1.LabelHostname + ", which Node " + holder +
			" has, too: frr-k8s here announces the blocks of that Node, and none of this one"
	}
	if len(blocks) == 0 {
		return nil, ""
	}
	if host == "" {
		return nil, "FRRConfigurations select the node by the label " + corev1.LabelHostname + ", which is missing"
	}
	if len(templates) == 0 {
		return nil, "no template selects the node: create an FRRConfiguration with the label " + TemplateLabel + " in its nodeSelector"
	}
	var wanted []Want
	remaining := slices.Clone(blocks)
	for _, template := range templates {
		spec, announced := template.announcing(host, blocks)
		wanted = append(wanted, Want{Name: "cilium-pool-" + template.Name + "-" + node.Name, node: node, spec: spec})
		remaining = slices.DeleteFunc(remaining, func(block netip.Prefix) bool { return slices.Contains(announced, block) })
	}
	if len(remaining) > 0 {
		return wanted, fmt.Sprintf("template %s announces %s to no neighbor: one with an address of its family, or dualStackAddressFamily, needs toAdvertise.allowed.mode all or a range around it", templates[0].Name, remaining[0])
	}
	return wanted, ""
}

// announcing returns the spec of a template with blocks in place of its prefixes, and the blocks
// that it announces. The template's lists of prefixes stand for the blocks inside: those of a router,
// of a neighbor's toAdvertise.allowed, and of its communities and local preferences. A router without
// prefixes has all blocks.
func (v *View) announcing(host string, blocks []netip.Prefix) (spec map[string]any, announced []netip.Prefix) {
	spec = runtime.DeepCopyJSON(v.template)
	spec["nodeSelector"] = map[string]any{"matchLabels": map[string]any{corev1.LabelHostname: host}}
	for _, router := range nestedMaps(spec, "bgp", "routers") {
		cidrs := blocks
		if allowed := prefixes(router["prefixes"]); len(allowed) > 0 {
			cidrs = inside(allowed, blocks)
		}
		setPrefixes(router, cidrs)
		for _, neighbor := range nestedMaps(router, "neighbors") {
			announced = append(announced, toAdvertise(neighbor, cidrs)...)
		}
	}
	return spec, announced
}

// toAdvertise fills in the blocks in place of a neighbor's prefixes, and returns the announced ones.
func toAdvertise(neighbor map[string]any, blocks []netip.Prefix) []netip.Prefix {
	advertise, _ := neighbor["toAdvertise"].(map[string]any)
	allowed, _ := advertise["allowed"].(map[string]any)
	blocks = exchanged(neighbor, blocks)
	if allowed["mode"] != "all" {
		blocks = inside(prefixes(allowed["prefixes"]), blocks)
	}
	if allowed != nil {
		setPrefixes(allowed, blocks)
	}
	for _, list := range []string{"withCommunity", "withLocalPref"} {
		var remaining []any
		for _, entry := range nestedMaps(advertise, list) {
			// An entry must have a prefix.
			if covered := inside(prefixes(entry["prefixes"]), blocks); len(covered) > 0 {
				setPrefixes(entry, covered)
				remaining = append(remaining, entry)
			}
		}
		delete(advertise, list)
		if remaining != nil {
			advertise[list] = remaining
		}
	}
	return blocks
}

// exchanged returns the blocks of the families that frr-k8s exchanges with a neighbor: that of its
// address, or both (internal/controller/api_to_config.go, addressFamilyForNeighbor; since v0.0.19). A
// neighbor on an interface has no address.
func exchanged(neighbor map[string]any, blocks []netip.Prefix) []netip.Prefix {
	text, _ := neighbor["address"].(string)
	address, err := netip.ParseAddr(text)
	if err != nil || neighbor["dualStackAddressFamily"] == true {
		return blocks
	}
	return slices.DeleteFunc(slices.Clone(blocks), func(block netip.Prefix) bool { return ipalloc.FamilyOf(block.Addr()) != ipalloc.FamilyOf(address) })
}

// owner makes the garbage collector delete the object with its Node.
func (w Want) owner() []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: w.node.Name, UID: w.node.UID}}
}

// Is reports whether one of the operator's objects is as wanted.
func (w Want) Is(v *View) bool { return v.identity == identify(w.spec, w.owner()) }

// New returns the object to create.
func (w Want) New(namespace string) *unstructured.Unstructured {
	obj := Empty(namespace, w.Name)
	obj.SetLabels(map[string]string{managedByLabel: managedBy})
	obj.SetAnnotations(map[string]string{NodeAnnotation: w.node.Name})
	obj.SetOwnerReferences(w.owner())
	obj.Object["spec"] = w.spec
	return obj
}

// Patch returns a JSON patch that makes an object as wanted, conditional on the version seen. Labels
// and annotations stay.
func (w Want) Patch(v *View) ([]byte, error) {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	body, err := json.Marshal([]operation{
		{"replace", "/metadata/resourceVersion", v.ResourceVersion},
		{"add", "/metadata/ownerReferences", w.owner()},
		{"add", "/spec", w.spec},
	})
	if err != nil {
		return nil, fmt.Errorf("patching FRRConfiguration %s: %w", w.Name, err)
	}
	return body, nil
}

// Empty returns an empty object of the kind.
func Empty(namespace, name string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{}}
	obj.SetGroupVersionKind(Kind)
	obj.SetNamespace(namespace)
	obj.SetName(name)
	return obj
}

// nestedMaps returns the maps in a list of a map.
func nestedMaps(object map[string]any, path ...string) []map[string]any {
	var out []map[string]any
	value, _, _ := unstructured.NestedFieldNoCopy(object, path...)
	list, _ := value.([]any)
	for _, entry := range list {
		if m, ok := entry.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

// prefixes returns the prefixes of a list that can be parsed.
func prefixes(list any) []netip.Prefix {
	var out []netip.Prefix
	texts, _ := list.([]any)
	for _, text := range texts {
		s, _ := text.(string)
		if p, err := netip.ParsePrefix(s); err == nil {
			out = append(out, p.Masked())
		}
	}
	return out
}

func setPrefixes(object map[string]any, list []netip.Prefix) {
	texts := make([]any, 0, len(list))
	for _, p := range list {
		texts = append(texts, p.String())
	}
	object["prefixes"] = texts
}

// inside returns the blocks that lie inside one of ranges.
func inside(ranges, blocks []netip.Prefix) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(blocks), func(block netip.Prefix) bool { return !ipalloc.Covered(block, ranges) })
}
