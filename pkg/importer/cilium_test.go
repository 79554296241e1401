package importer

import (
	"strings"
	"testing"
)

func TestCilium(t *testing.T) {
	pool := func(name, spec string) string {
		return "apiVersion: cilium.io/v2alpha1\nkind: CiliumPodIPPool\nmetadata: {name: " + name + "}\nspec: {" + spec + "}"
	}
	config := func(data string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cilium-config, namespace: kube-system}\ndata: {" + data + "}"
	}
	const values = "ipam: {operator: {clusterPoolIPv4PodCIDRList: [10.42.0.0/16], clusterPoolIPv4MaskSize: 26}}"
	const v4 = "ipv4: {cidrs: [10.10.0.0/16, 10.20.0.0/24], maskSize: 27}"
	for name, test := range map[string]struct {
		docs  []string
		want  []string
		texts []string
	}{
		"multi-pool": {[]string{pool("default", v4+`, ipv6: {cidrs: ["fd00:100::/80"], maskSize: 120}, allowFirstIP: true`), pool("mars", "ipv4: {cidrs: [10.30.0.0/16], maskSize: 18}"), config("ipam: multi-pool")},
			[]string{"default 10.10.0.0/16 10.20.0.0/24 by /27 fd00:100::/80 by /120", "mars 10.30.0.0/16 by /24 in ciliumPoolName mars",
				"lost: CiliumPodIPPool mars: spec.ipv4.maskSize: a /18"}, []string{"in multi-pool mode; in other modes it serves no node"}},
		"reserved ranges": {[]string{strings.Replace(pool("default", "ipv4: {cidrs: [10.10.0.0/24, 10.11.0.0/24], maskSize: 27, pool: [{cidr: 10.10.0.0/24, reservedRanges: [{start: 10.10.0.0, end: 10.10.0.47}, {start: 10.10.0.250, end: 10.10.1.3}]}, "+
			"{cidr: 10.11.0.0/24, reservedRanges: [{start: 10.11.0.0, end: 10.11.0.255}, {start: 10.11.0.9, end: 10.11.0.1}]}]}"), "v2alpha1", "v2", 1)},
			[]string{"default 10.10.0.0/24 10.11.0.0/24 by /27 reserved 10.10.0.0/27,10.10.0.32/28,10.10.0.250/31,10.10.0.252/30,10.11.0.0/24",
				"lost: CiliumPodIPPool default: spec.ipv4.pool: 10.11.0.9-10.11.0.1"}, nil},
		"another default": {[]string{pool("mars", v4), config("ipam: multi-pool, ipam-default-ip-pool: mars, auto-create-cilium-pod-ip-pools: x")},
			[]string{"mars 10.10.0.0/16 10.20.0.0/24 by /27"}, []string{"Cilium makes CiliumPodIPPools of this"}},
		"selectors of pods": {[]string{pool("default", v4+", podSelector: {matchLabels: {a: b}}, new: 1")},
			[]string{"default 10.10.0.0/16 10.20.0.0/24 by /27", "lost: CiliumPodIPPool default: spec.new"},
			[]string{"podSelector, namespaceSelector", "Keep the CiliumPodIPPool"}},
		"twice": {[]string{pool("default", v4), pool("default", v4)},
			[]string{"default 10.10.0.0/16 10.20.0.0/24 by /27", "lost: CiliumPodIPPool default: spec"}, nil},
		"one that the operator keeps": {[]string{strings.Replace(pool("default", v4), "{name: default}", "{name: default, labels: {app.kubernetes.io/managed-by: cilium-pool-operator}}", 1)},
			nil, []string{"made it for agents to find"}},
		"no addresses":   {[]string{pool("default", "")}, []string{"lost: PodIPPool default: spec"}, []string{"left out"}},
		"cannot be read": {[]string{pool("default", "ipv4: 7")}, []string{"lost: CiliumPodIPPool default: spec"}, nil},
		"overlaps itself": {[]string{pool("default", "ipv4: {cidrs: [10.10.0.0/16, 10.10.1.0/24], maskSize: 27}")},
			[]string{"lost: PodIPPool default: spec"}, []string{"overlaps 10.10.0.0/16 of the same pool"}},

		"cluster-pool": {[]string{config(`ipam: cluster-pool, enable-ipv4: "true", enable-ipv6: "false", cluster-pool-ipv4-cidr: "10.0.0.0/8 100.64.0.0/16", cluster-pool-ipv4-mask-size: "25"`)},
			[]string{"cluster-pool 10.0.0.0/8 100.64.0.0/16 by /25"}, nil},
		"cluster-pool, dual stack": {[]string{config(`ipam: cluster-pool, enable-ipv6: "true", cluster-pool-ipv4-cidr: 10.0.0.0/8, cluster-pool-ipv6-cidr: "fd00::/104"`)},
			[]string{"cluster-pool 10.0.0.0/8 by /24 fd00::/104 by /120", "lost: ConfigMap cilium-config: data.cluster-pool-ipv6-mask-size: a /112"}, nil},
		"cluster-pool, IPv6 alone": {[]string{config(`ipam: cluster-pool, enable-ipv4: "false", enable-ipv6: "true", cluster-pool-ipv6-cidr: "fd00::/104", cluster-pool-ipv6-mask-size: "120"`)},
			[]string{"cluster-pool fd00::/104 by /120"}, nil},
		"no number": {[]string{config(`ipam: cluster-pool, cluster-pool-ipv4-cidr: 10.0.0.0/8, cluster-pool-ipv4-mask-size: many`)},
			[]string{"lost: ConfigMap cilium-config: data.cluster-pool-ipv4-mask-size: many"}, nil},
		"kubernetes": {[]string{config("ipam: kubernetes")}, []string{"lost: ConfigMap cilium-config: data.ipam: kubernetes"}, []string{"import --from kubeadm"}},
		"crd":        {[]string{config("ipam: crd")}, nil, []string{"it has no pools of its own"}},
		"cloud":      {[]string{config("ipam: eni")}, []string{"lost: ConfigMap cilium-config: data.ipam: eni"}, nil},

		"values, nothing said": {[]string{"ipam: {ciliumNodeUpdateRate: 15s}"}, []string{"cluster-pool 10.0.0.0/8 by /24"}, []string{"the chart's default was taken"}},
		"values": {[]string{"ipam: {mode: cluster-pool, operator: {clusterPoolIPv4PodCIDRList: [10.42.0.0/16], clusterPoolIPv4MaskSize: 26, clusterPoolIPv6MaskSize: 122}}\nipv6: {enabled: true}"},
			[]string{"cluster-pool 10.42.0.0/16 by /26 fd00::/104 by /122"}, []string{"clusterPoolIPv6PodCIDRList: is not set"}},
		"values, one string": {[]string{"ipam: {operator: {clusterPoolIPv4PodCIDRList: 10.42.0.0/16}}"}, []string{"cluster-pool 10.42.0.0/16 by /24"}, nil},
		"values, multi-pool": {[]string{"ipam: {mode: multi-pool, operator: {autoCreateCiliumPodIPPools: {default: {" + v4 + "}, other: {ipv4: {cidrs: [10.1.0.0/16], maskSize: 27}}}}}"},
			[]string{"default 10.10.0.0/16 10.20.0.0/24 by /27", "other 10.1.0.0/16 by /27 in ciliumPoolName other"}, nil},
		"values in a HelmChartConfig": {[]string{"apiVersion: helm.cattle.io/v1\nkind: HelmChartConfig\nmetadata: {name: rke2-cilium}\nspec:\n  valuesContent: |-\n    " + values},
			[]string{"cluster-pool 10.42.0.0/16 by /26"}, nil},
		"values in a HelmRelease, of an umbrella chart": {[]string{"apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {name: cni}\nspec: {values: {cilium: {" + values + "}}}"},
			[]string{"cluster-pool 10.42.0.0/16 by /26"}, nil},
		"values in an Application": {[]string{"apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: cni}\nspec: {source: {helm: {values: '" + values + "'}}}"},
			[]string{"cluster-pool 10.42.0.0/16 by /26"}, nil},
		"values in one of its sources": {[]string{"apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: cni}\nspec: {sources: [{ref: a}, {helm: {valuesObject: {" + values + "}}}]}"},
			[]string{"cluster-pool 10.42.0.0/16 by /26"}, nil},
		"values in an ApplicationSet": {[]string{"apiVersion: argoproj.io/v1alpha1\nkind: ApplicationSet\nmetadata: {name: cni}\nspec: {template: {spec: {source: {helm: {valuesObject: {" + values + "}}}}}}"},
			[]string{"cluster-pool 10.42.0.0/16 by /26"}, nil},
		"values of an umbrella chart": {[]string{"cilium: {" + values + "}\nother: {ipam: x}"}, []string{"cluster-pool 10.42.0.0/16 by /26"}, nil},
		"values of another kind's":    {[]string{"apiVersion: example.org/v1\nkind: HelmRelease\nmetadata: {name: cni}\nspec: {values: {" + values + "}}"}, nil, nil},
		"values that cannot be read":  {[]string{"ipam: {operator: 7}"}, []string{"lost: values: ipam"}, nil},
	} {
		t.Run(name, func(t *testing.T) { checkResult(t, imported(t, Cilium, test.docs...), test.want, test.texts...) })
	}
}
