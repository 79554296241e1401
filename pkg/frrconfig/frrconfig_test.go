package frrconfig_test

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/cilium-pool/cilium-pool-operator/pkg/frrconfig"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

func object(t *testing.T, body string) *unstructured.Unstructured {
	t.Helper()
	obj := frrconfig.Empty("frr", "")
	js, err := yaml.YAMLToJSON([]byte(body))
	harness.Must(t, err)
	spec := map[string]any{}
	harness.Must(t, json.Unmarshal(js, &spec))
	for key, value := range spec {
		obj.Object[key] = value
	}
	obj.SetNamespace("frr")
	return obj
}

func template(t *testing.T, selector, bgp string) *frrconfig.View {
	t.Helper()
	return frrconfig.Read(object(t, "metadata: {name: t}\nspec: {nodeSelector: "+selector+", bgp: "+bgp+"}"))
}

func node(rack string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", Labels: map[string]string{"rack": rack, corev1.LabelHostname: "n.example.org"}}}
}

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

const forAll = "{matchLabels: {cilium-pool.io/template: ''}}"

// A template's prefixes stand for the blocks inside.
func TestBlocksTakeThePlaceOfRanges(t *testing.T) {
	blocks := prefixes("10.1.0.0/27", "10.2.0.0/28", "fd00::/122")
	tests := map[string]struct{ bgp, want, problem string }{
		"all to a neighbor": {
			`{routers: [{asn: 1, neighbors: [{address: 192.0.2.1, dualStackAddressFamily: true, holdTime: 9s, toAdvertise: {allowed: {mode: all}}}]}], bfdProfiles: [{name: fast}]}`,
			`{routers: [{asn: 1, prefixes: ["10.1.0.0/27", "10.2.0.0/28", "fd00::/122"], neighbors: [{address: 192.0.2.1, dualStackAddressFamily: true, holdTime: 9s,
				toAdvertise: {allowed: {mode: all, prefixes: ["10.1.0.0/27", "10.2.0.0/28", "fd00::/122"]}}}]}], bfdProfiles: [{name: fast}]}`, "",
		},
		"some routers, some neighbors": {
			`{routers: [{prefixes: [10.0.0.0/8], neighbors: [{address: 192.0.2.1, toAdvertise: {allowed: {mode: filtered, prefixes: [10.2.0.0/16, 10.0.0.0/15]}}}]},
				{vrf: six, prefixes: ["fd00::/8"], neighbors: [{address: 2001:db8::1, toAdvertise: {allowed: {mode: all}}}]}]}`,
			`{routers: [{prefixes: [10.1.0.0/27, 10.2.0.0/28], neighbors: [{address: 192.0.2.1, toAdvertise: {allowed: {mode: filtered, prefixes: [10.1.0.0/27, 10.2.0.0/28]}}}]},
				{vrf: six, prefixes: ["fd00::/122"], neighbors: [{address: 2001:db8::1, toAdvertise: {allowed: {mode: all, prefixes: ["fd00::/122"]}}}]}]}`, "",
		},
		"to an interface": {
			`{routers: [{neighbors: [{interface: eth0, toAdvertise: {allowed: {mode: all}}}]}]}`,
			`{routers: [{prefixes: ["10.1.0.0/27", "10.2.0.0/28", "fd00::/122"], neighbors: [{interface: eth0,
				toAdvertise: {allowed: {mode: all, prefixes: ["10.1.0.0/27", "10.2.0.0/28", "fd00::/122"]}}}]}]}`, "",
		},
		"a neighbor of one family": {
			`{routers: [{neighbors: [{address: 192.0.2.1, toAdvertise: {allowed: {mode: all}}}]}]}`,
			`{routers: [{prefixes: ["10.1.0.0/27", "10.2.0.0/28", "fd00::/122"], neighbors: [{address: 192.0.2.1,
				toAdvertise: {allowed: {mode: all, prefixes: ["10.1.0.0/27", "10.2.0.0/28"]}}}]}]}`,
			"template t announces fd00::/122 to no neighbor",
		},
		"communities and preferences": {
			`{routers: [{neighbors: [{address: 192.0.2.1, toAdvertise: {allowed: {mode: all}, withCommunity: [{community: "1:1", prefixes: [0.0.0.0/0, "::/0"]}, {community: "1:2", prefixes: [172.16.0.0/12]}],
				withLocalPref: [{localPref: 50, prefixes: [10.3.0.0/16]}]}}, {address: 2001:db8::1, toAdvertise: {allowed: {mode: filtered, prefixes: [10.1.0.0/16, "fd00::/8"]},
				withCommunity: [{community: "1:3", prefixes: [10.1.0.0/16]}], withLocalPref: [{localPref: 60, prefixes: [10.1.0.0/16, "fd00::/8"]}]}}]}]}`,
			`{routers: [{prefixes: ["10.1.0.0/27", "10.2.0.0/28", "fd00::/122"], neighbors: [{address: 192.0.2.1, toAdvertise: {allowed: {mode: all, prefixes: ["10.1.0.0/27", "10.2.0.0/28"]},
				withCommunity: [{community: "1:1", prefixes: [10.1.0.0/27, 10.2.0.0/28]}]}}, {address: 2001:db8::1, toAdvertise: {allowed: {mode: filtered, prefixes: ["fd00::/122"]},
				withLocalPref: [{localPref: 60, prefixes: ["fd00::/122"]}]}}]}]}`, "",
		},
		"to nobody": {
			`{routers: [{neighbors: [{address: 192.0.2.1}]}]}`,
			`{routers: [{prefixes: ["10.1.0.0/27", "10.2.0.0/28", "fd00::/122"], neighbors: [{address: 192.0.2.1}]}]}`,
			"template t announces 10.1.0.0/27 to no neighbor",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			wants, problem := frrconfig.For(node("a"), []*frrconfig.View{template(t, forAll, test.bgp)}, blocks, "")
			if !strings.HasPrefix(problem, test.problem) || (problem == "") != (test.problem == "") {
				t.Errorf("problem %q, want %q", problem, test.problem)
			}
			got := wants[0].New("frr")
			want := object(t, `
metadata: {name: cilium-pool-t-n, labels: {app.kubernetes.io/managed-by: cilium-pool-operator}, annotations: {cilium-pool.io/node: "n"},
  ownerReferences: [{apiVersion: v1, kind: Node, name: "n", uid: u}]}
spec: {nodeSelector: {matchLabels: {kubernetes.io/hostname: n.example.org}}, bgp: `+test.bgp+`}`)
			want.Object["spec"].(map[string]any)["bgp"] = object(t, "bgp: "+test.want).Object["bgp"]
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			is := frrconfig.Read(got)
			if !wants[0].Is(is) || !is.Ours || is.Node != "n" || is.Hostname != "n.example.org" || !slices.Contains(is.Prefixes, blocks[2]) {
				t.Errorf("read back it is %+v", is)
			}
		})
	}
}

func TestTemplatesOfANode(t *testing.T) {
	const bgp = "{routers: [{neighbors: [{toAdvertise: {allowed: {mode: all}}}]}]}"
	tests := map[string]struct {
		selector string
		node     *corev1.Node
		holder   string
		problem  string // "": it is a template of the node
	}{
		"all nodes":            {selector: forAll, node: node("a")},
		"its rack":             {selector: "{matchLabels: {cilium-pool.io/template: 'true', rack: a}}", node: node("a")},
		"another rack":         {selector: "{matchLabels: {cilium-pool.io/template: 'true', rack: b}}", node: node("a"), problem: "no template selects"},
		"by an expression":     {selector: "{matchLabels: {cilium-pool.io/template: ''}, matchExpressions: [{key: rack, operator: In, values: [b]}]}", node: node("a"), problem: "no template selects"},
		"in service itself":    {selector: "{matchLabels: {rack: a}}", node: node("a"), problem: "no template selects"},
		"without a hostname":   {selector: forAll, node: &corev1.Node{}, problem: "FRRConfigurations select"},
		"one of two hostnames": {selector: forAll, node: node("a"), holder: "m", problem: "FRRConfigurations select the node by the label kubernetes.io/hostname, which Node m has, too"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			wants, problem := frrconfig.For(test.node, []*frrconfig.View{template(t, test.selector, bgp)}[:1], prefixes("10.1.0.0/27"), test.holder)
			if (len(wants) == 1) != (test.problem == "") || !strings.HasPrefix(problem, test.problem) {
				t.Errorf("%d objects; %s", len(wants), problem)
			}
		})
	}
	if wants, problem := frrconfig.For(node("a"), nil, nil, ""); len(wants) > 0 || problem != "" {
		t.Errorf("without a block: %d objects; %s", len(wants), problem)
	}
}
