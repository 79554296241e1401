package importer

import "testing"

func TestKubernetes(t *testing.T) {
	kubeadm := func(rest string) string {
		return "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n" + rest
	}
	manager := func(flags string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata: {name: kube-controller-manager-a, namespace: kube-system}\nspec: {containers: [{name: x, command: [other]}, {name: kube-controller-manager, command: [/bin/kube-controller-manager, " + flags + "]}]}"
	}
	clusterCIDR := func(name, spec string) string {
		return "apiVersion: networking.k8s.io/v1alpha1\nkind: ClusterCIDR\nmetadata: {name: " + name + "}\nspec: {" + spec + "}"
	}
	for name, test := range map[string]struct {
		docs  []string
		want  []string
		texts []string
	}{
		"pod subnet": {[]string{kubeadm("networking: {podSubnet: 10.244.0.0/16, serviceSubnet: 10.96.0.0/12}")}, []string{"cluster-cidr 10.244.0.0/16 by /24"}, nil},
		"dual stack": {[]string{kubeadm("networking: {podSubnet: '10.244.0.0/16,2001:db8:42:0::/56'}")},
			[]string{"cluster-cidr 10.244.0.0/16 by /24 2001:db8:42::/56 by /120", "lost: ClusterConfiguration: --node-cidr-mask-size-ipv6: a /64"}, nil},
		"masks, v1beta4": {[]string{kubeadm("networking: {podSubnet: '10.244.0.0/16,2001:db8:42:0::/56'}\ncontrollerManager: {extraArgs: [{name: node-cidr-mask-size-ipv4, value: '25'}, {name: node-cidr-mask-size-ipv6, value: '120'}]}")},
			[]string{"cluster-cidr 10.244.0.0/16 by /25 2001:db8:42::/56 by /120"}, nil},
		"mask, v1beta3": {[]string{kubeadm("networking: {podSubnet: 10.244.0.0/16}\ncontrollerManager: {extraArgs: {node-cidr-mask-size: '18', allocate-node-cidrs: 'false'}}")},
			[]string{"cluster-cidr 10.244.0.0/16 by /24", "lost: ClusterConfiguration: --node-cidr-mask-size: a /18"}, []string{"gives Nodes no podCIDRs"}},
		"no number": {[]string{kubeadm("networking: {podSubnet: 10.244.0.0/16}\ncontrollerManager: {extraArgs: {node-cidr-mask-size: many}}")},
			[]string{"lost: ClusterConfiguration: --node-cidr-mask-size", "lost: PodIPPool cluster-cidr: spec"}, nil},
		"as kubeadm keeps it": {[]string{"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: kubeadm-config}\ndata:\n  ClusterConfiguration: |\n    networking:\n      podSubnet: 10.244.0.0/16\n"},
			[]string{"cluster-cidr 10.244.0.0/16 by /24"}, nil},
		"kept badly": {[]string{"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: kubeadm-config}\ndata: {ClusterConfiguration: 'a: b: c'}"},
			[]string{"lost: ConfigMap kubeadm-config: data.ClusterConfiguration"}, nil},
		"flags": {[]string{manager("--allocate-node-cidrs=true, --cluster-cidr=10.1.0.0/16, --node-cidr-mask-size=26")}, []string{"cluster-cidr 10.1.0.0/16 by /26"}, nil},
		"flags first": {[]string{kubeadm("networking: {podSubnet: 10.244.0.0/16}"), manager("--cluster-cidr=10.1.0.0/16"), manager("--cluster-cidr=10.1.0.0/16")},
			[]string{"cluster-cidr 10.1.0.0/16 by /24", "lost: ClusterConfiguration: networking.podSubnet: 10.244.0.0/16"}, []string{"Pod kube-controller-manager-a says 10.1.0.0/16, and was taken"}},
		"nothing": {[]string{kubeadm("networking: {}"), manager("--leader-elect=true"), "apiVersion: v1\nkind: Pod\nmetadata: {name: x}"}, nil, nil},

		"ClusterCIDRs": {[]string{
			clusterCIDR("rack", "perNodeHostBits: 6, ipv4: 10.5.0.0/16, nodeSelector: {nodeSelectorTerms: [{matchExpressions: [{key: node, operator: In, values: [n1]}, {key: rack, operator: In, values: [r1]}]}]}"),
			clusterCIDR("node", "perNodeHostBits: 4, ipv4: 192.168.64.0/20, ipv6: 'fd00:1::/64', nodeSelector: {nodeSelectorTerms: [{matchExpressions: [{key: node, operator: In, values: [n1]}]}, {matchExpressions: [{key: node, operator: In, values: [n2]}]}]}"),
			clusterCIDR("all", "perNodeHostBits: 14, ipv4: 10.16.0.0/12")},
			[]string{"rack 10.5.0.0/16 by /26 for node=n1,rack=r1 priority 2", "node 192.168.64.0/20 by /28 fd00:1::/64 by /124 for node in (n1,n2) priority 1",
				"all 10.16.0.0/12 by /24", "lost: ClusterCIDR all: spec.perNodeHostBits: a /18"}, nil},
		"ClusterCIDRs alike": {[]string{clusterCIDR("a", "perNodeHostBits: 8, ipv4: 10.1.0.0/16"), clusterCIDR("b", "perNodeHostBits: 8, ipv4: 10.2.0.0/16")},
			[]string{"a 10.1.0.0/16 by /24", "b 10.2.0.0/16 by /24"}, []string{"ClusterCIDRs a, b: spec.nodeSelector: they name as many labels"}},
		"a union of nodes": {[]string{clusterCIDR("a", "perNodeHostBits: 8, ipv4: 10.1.0.0/16, nodeSelector: {nodeSelectorTerms: [{matchExpressions: [{key: node, operator: Exists}]}, {matchExpressions: [{key: cores, operator: Gt, values: ['8']}]}]}, new: 1")},
			[]string{"a 10.1.0.0/16 by /24 for cilium-pool.io/import=a", "lost: ClusterCIDR a: spec.new", "lost: ClusterCIDR a: spec.nodeSelector"}, []string{`cannot say "cores Gt 8"`}},
		"made of the flags": {[]string{clusterCIDR("default-cluster-cidr", "perNodeHostBits: 8, ipv4: 10.1.0.0/16"), manager("--cluster-cidr=10.1.0.0/16")},
			[]string{"default-cluster-cidr 10.1.0.0/16 by /24"}, []string{"a ClusterCIDR says the same"}},
		"twice":          {[]string{clusterCIDR("a", "perNodeHostBits: 8, ipv4: 10.1.0.0/16"), clusterCIDR("a", "perNodeHostBits: 8, ipv4: 10.1.0.0/16")}, []string{"a 10.1.0.0/16 by /24", "lost: ClusterCIDR a: metadata.name"}, nil},
		"cannot be read": {[]string{clusterCIDR("a", "perNodeHostBits: many")}, []string{"lost: ClusterCIDR a: spec"}, nil},
		"wrong family":   {[]string{clusterCIDR("a", "perNodeHostBits: 8, ipv4: 'fd00::/64'")}, []string{"lost: PodIPPool a: spec"}, []string{"is not ipv4"}},
	} {
		t.Run(name, func(t *testing.T) { checkResult(t, imported(t, Kubernetes, test.docs...), test.want, test.texts...) })
	}
}
