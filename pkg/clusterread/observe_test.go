package clusterread_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterread"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/importer"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

func TestModeOf(t *testing.T) {
	config := func(settings ...string) *ciliumconfig.Config {
		c := &ciliumconfig.Config{Known: true, Data: map[string]string{"ipam": "cluster-pool"}}
		for i := 0; i < len(settings); i += 2 {
			c.Data[settings[i]] = settings[i+1]
		}
		return c
	}
	denied := func(what string) *ciliumconfig.Config {
		c := config()
		c.Denied = []string{what}
		return c
	}
	for _, tt := range []struct {
		name   string
		config *ciliumconfig.Config
		fails  bool
	}{
		{"its mode", config(), false},
		{"no configuration", nil, true},
		{"a mode of a cloud", config("ipam", "eni"), true},
		{"chained to a plugin that assigns", config("cni-chaining-mode", "aws-cni"), true},
		{"chained to one that does not", config("cni-chaining-mode", "portmap"), false},
		{"no right to ip-masq-agent", denied("ConfigMap kube-system/ip-masq-agent"), false},
		{"no right to CiliumNodeConfigs", denied("CiliumNodeConfigs of namespace kube-system"), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if mode, err := clusterread.ModeOf(tt.config, "kube-system"); (err != nil) != tt.fails {
				t.Errorf("got %s, %v", mode, err)
			}
		})
	}
}

func TestDescribe(t *testing.T) {
	hostNetwork := fixtures.Pod("etcd", "1", "a", "192.168.0.1")
	hostNetwork.Spec.HostNetwork = true
	ended := fixtures.Pod("job", "2", "a", "10.99.0.1")
	ended.Status.Phase = corev1.PodSucceeded
	pooled := func(name string, cidrs ...string) *ciliumv2.CiliumNode {
		cn := fixtures.Pooled(8, cidrs...)
		cn.Name = name
		return cn
	}
	left := fixtures.BlockObject("10.0.0.0/27", ipalloc.InService)
	left.Spec.NodeName = "a"
	config := map[string]any{"cluster-pool-ipv4-cidr": "10.0.0.0/16", "cluster-pool-ipv4-mask-size": "24"}
	for _, tt := range []struct {
		name   string
		mode   ciliumnode.Mode
		nodes  []*ciliumv2.CiliumNode
		blocks []v1alpha1.PodIPBlock
		pods   []*corev1.Pod
		want   []string
		fails  bool
	}{
		{
			name: "pods without an address of their own", mode: ciliumnode.ClusterPool, nodes: []*ciliumv2.CiliumNode{fixtures.CiliumNode("a", "1", "10.0.1.0/24")},
			pods: []*corev1.Pod{hostNetwork, ended}, want: []string{"pool cluster-pool", "10.0.1.0/24 of cluster-pool on a"},
		},
		{
			name: "a pod with another mode's address", mode: ciliumnode.ClusterPool, nodes: []*ciliumv2.CiliumNode{fixtures.CiliumNode("a", "1", "10.0.1.0/24")},
			pods: []*corev1.Pod{fixtures.Pod("web", "3", "a", "10.99.0.1")}, fails: true,
		},
		{
			name: "a range of another size outside the known ones", mode: ciliumnode.ClusterPool,
			nodes: []*ciliumv2.CiliumNode{fixtures.CiliumNode("a", "1", "10.0.1.0/24"), fixtures.CiliumNode("b", "1", "10.9.0.0/26")},
			want:  []string{"pool cluster-pool", "pool cluster-pool-other", "10.0.1.0/24 of cluster-pool on a", "10.9.0.0/26 of cluster-pool-other on b"},
		},
		{
			name: "a block left from a trial", mode: ciliumnode.MultiPool, nodes: []*ciliumv2.CiliumNode{pooled("a", "10.0.0.0/27"), pooled("b", "10.0.0.32/27")},
			blocks: []v1alpha1.PodIPBlock{*left}, want: []string{"pool default", "10.0.0.0/27 of default on a", "10.0.0.32/27 of default on b"},
		},
		{
			name: "blocks on all nodes", mode: ciliumnode.MultiPool, nodes: []*ciliumv2.CiliumNode{pooled("a", "10.0.0.0/27")},
			blocks: []v1alpha1.PodIPBlock{*left}, want: []string{"10.0.0.0/27 of " + left.Spec.PoolName + " on a"},
		},
		{
			name: "single addresses", mode: ciliumnode.CRD, nodes: []*ciliumv2.CiliumNode{fixtures.Joined("a", "10.5.0.1", "10.5.0.2", "10.5.0.3")},
			want: []string{"pool crd", "10.5.0.1/32 of crd on a", "10.5.0.2/31 of crd on a"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &clusterread.Objects{Mode: tt.mode, Blocks: tt.blocks}
			config["ipam"] = tt.mode.String()
			for _, cn := range tt.nodes {
				s.CiliumNodes = append(s.CiliumNodes, clusterread.CiliumNode{View: tt.mode.View(cn)})
			}
			for _, p := range tt.pods {
				s.Pods = append(s.Pods, *p)
			}
			err := clusterread.ReplaceByForeign(s, importer.FromContent("the cluster", map[string]any{
				"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": ciliumconfig.Name}, "data": config,
			}))
			if (err != nil) != tt.fails {
				t.Fatal(err)
			}
			if tt.fails {
				return
			}
			var got []string
			for i := range s.Pools {
				if _, err := crd.PoolFrom(&s.Pools[i], fixtures.Defaults()); err != nil {
					t.Error(err)
				}
				got = append(got, "pool "+s.Pools[i].Name)
			}
			for _, b := range s.Blocks {
				got = append(got, fmt.Sprintf("%s of %s on %s", b.Spec.CIDR, b.Spec.PoolName, b.Spec.NodeName))
			}
			slices.Sort(got[len(s.Pools):])
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
