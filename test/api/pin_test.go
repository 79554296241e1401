package api

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPin(t *testing.T) {
	for name, test := range map[string]struct{ name, cidr, node, want string }{
		"IPv4":            {name: "10.20.0.32-27", cidr: "10.20.0.32/27"},
		"IPv6":            {name: "fd00-10--40-122", cidr: "fd00:10::40/122"},
		"another name":    {name: "gateway-1", cidr: "10.20.0.32/27", want: "metadata.name must be 10.20.0.32-27: it follows from spec.cidr"},
		"host bits":       {name: "10.20.0.33-27", cidr: "10.20.0.33/27", want: "write 10.20.0.32/27"},
		"no CIDR":         {name: "x", cidr: "10.20.0.32", want: "cidr must be a CIDR such as 10.20.0.32/27"},
		"no node":         {name: "10.20.0.32-27", cidr: "10.20.0.32/27", node: " ", want: "nodeName must be the name of a Node"},
		"node not a name": {name: "10.20.0.32-27", cidr: "10.20.0.32/27", node: "node/1", want: "nodeName must be the name of a Node"},
	} {
		t.Run(name, func(t *testing.T) {
			o := object(t, "PodIPPin", test.name, pinSpec(test.cidr, orDefault(test.node, "node-1")))
			_, err := resource(t, "podippins").Create(t.Context(), o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			expect(t, err, test.want)
		})
	}
}

// A pin may keep one address for an owner instead of a block for a Node.
func TestPinForOwner(t *testing.T) {
	for name, test := range map[string]struct{ name, spec, want string }{
		"IPv4":            {"10.20.0.5-32", "{cidr: 10.20.0.5/32, podNamespace: shop, podName: web-0}", ""},
		"IPv6":            {"fd00-10--5-128", "{cidr: 'fd00:10::5/128', podNamespace: shop, podName: web-0}", ""},
		"a block":         {"10.20.0.4-31", "{cidr: 10.20.0.4/31, podNamespace: shop, podName: web-0}", "end cidr with /32 or /128"},
		"and a Node":      {"10.20.0.5-32", "{cidr: 10.20.0.5/32, podNamespace: shop, podName: web-0, nodeName: node-1}", "set one of nodeName, podName and podLabel"},
		"neither":         {"10.20.0.5-32", "{cidr: 10.20.0.5/32}", "set one of nodeName, podName and podLabel"},
		"no namespace":    {"10.20.0.5-32", "{cidr: 10.20.0.5/32, podName: web-0}", "set podNamespace together with podName or podLabel"},
		"not a name":      {"10.20.0.5-32", "{cidr: 10.20.0.5/32, podNamespace: shop, podName: Web}", "podName must be the name of a pod"},
		"not a namespace": {"10.20.0.5-32", "{cidr: 10.20.0.5/32, podNamespace: a.b, podName: web-0}", "podNamespace must be the name of a namespace"},
		"by a label":      {"10.20.0.5-32", "{cidr: 10.20.0.5/32, podNamespace: shop, podLabel: {key: vm.kubevirt.io/name, value: db}}", ""},
		"by both":         {"10.20.0.5-32", "{cidr: 10.20.0.5/32, podNamespace: shop, podName: web-0, podLabel: {key: app, value: db}}", "set one of nodeName, podName and podLabel"},
		"a label alone":   {"10.20.0.5-32", "{cidr: 10.20.0.5/32, podLabel: {key: app, value: db}}", "set podNamespace together with podName or podLabel"},
		"a block by one":  {"10.20.0.4-31", "{cidr: 10.20.0.4/31, podNamespace: shop, podLabel: {key: app, value: db}}", "end cidr with /32 or /128"},
		"not a key":       {"10.20.0.5-32", "{cidr: 10.20.0.5/32, podNamespace: shop, podLabel: {key: App_1, value: db}}", "key must be the key of a label, of lower case letters"},
		"no value":        {"10.20.0.5-32", "{cidr: 10.20.0.5/32, podNamespace: shop, podLabel: {key: app}}", "podLabel.value"},
		"not a value":     {"10.20.0.5-32", "{cidr: 10.20.0.5/32, podNamespace: shop, podLabel: {key: app, value: a_b}}", "value must be a value of the label"},
		"too long":        {"10.20.0.5-32", "{cidr: 10.20.0.5/32, podNamespace: shop, podName: " + strings.Repeat("w", 64) + "}", "may not be more than 63"},
	} {
		t.Run(name, func(t *testing.T) {
			o := object(t, "PodIPPin", test.name, test.spec)
			_, err := resource(t, "podippins").Create(t.Context(), o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			expect(t, err, test.want)
		})
	}
}

// A pin may name another Node later, and says whether it is ready.
func TestColumnsOfPins(t *testing.T) {
	client := resource(t, "podippins")
	pin := create(t, client, object(t, "PodIPPin", "10.20.0.32-27", pinSpec("10.20.0.32/27", "node-1")))
	setStatus(t, client, pin, `
conditions:
- {type: Ready, status: "False", reason: WaitsForNode, message: "there is no Node node-2 yet", lastTransitionTime: "2026-01-01T00:00:00Z"}`)
	kubectl(t, "patch", "podippin", "10.20.0.32-27", "--type=merge", "-p", `{"spec":{"nodeName":"node-2"}}`)
	for args, want := range map[string]string{
		"":                                       "10.20.0.32-27 10.20.0.32/27 node-2 False WaitsForNode AGE",
		"-o wide":                                "10.20.0.32-27 10.20.0.32/27 node-2 False WaitsForNode there is no Node node-2 yet AGE",
		"--field-selector spec.nodeName=node-2":  "10.20.0.32-27 10.20.0.32/27 node-2 False WaitsForNode AGE",
		"--field-selector spec.nodeName!=node-2": "",
	} {
		got := table(kubectl(t, append([]string{"get", "podippins"}, strings.Fields(args)...)...))
		if row := strings.Join(got[min(1, len(got)):], "; "); row != want {
			t.Errorf("%s: GOT %q, WANT %q", args, row, want)
		}
	}
}

func pinSpec(cidr, node string) string {
	return fmt.Sprintf("{cidr: '%s', nodeName: '%s'}", cidr, node)
}
