// Package madeup has a cluster that does not exist, for pictures and tests of the report.
package madeup

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterread"
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterview"
	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/importer"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// Cluster returns a cluster of 48 nodes with a /24 each, which Cilium assigns in cluster-pool mode, the same
// each time.
func Cluster() (*clusterview.Cluster, error) {
	settings := map[string]string{"ipam": "cluster-pool", "cluster-pool-ipv4-cidr": "10.20.0.0/18", "cluster-pool-ipv4-mask-size": "24"}
	s := &clusterread.Objects{
		Time: time.Date(2026, 11, 20, 14, 5, 0, 0, time.UTC), Mode: ciliumnode.ClusterPool,
		CiliumConfig: &ciliumconfig.Config{Known: true, Data: settings},
	}
	draw := rand.New(rand.NewPCG(1, 2))
	for i := range 48 {
		name := fmt.Sprintf("rack-%d-%02d", 1+i/12, 1+i%12)
		cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 20, byte(i + i/12), 0}), 24)
		node := fixtures.Node()
		node.Name = name
		s.Nodes = append(s.Nodes, *node)
		s.CiliumNodes = append(s.CiliumNodes, clusterread.CiliumNode{View: s.Mode.View(fixtures.CiliumNode(name, "1", cidr.String()))})
		s.Pods = append(s.Pods, podsOf(name, cidr, pods(draw))...)
	}
	values := map[string]any{}
	for name, value := range settings {
		values[name] = value
	}
	data := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": ciliumconfig.Name}, "data": values}
	if err := clusterread.ReplaceByForeign(s, importer.FromContent("the cluster", data)); err != nil {
		return nil, err
	}
	return clusterview.New(s, clusterread.Operator{
		Mode: s.Mode, Observe: true, ModeSource: "ConfigMap kube-system/cilium-config", Settings: config.DefaultSettings(),
	}), nil
}

// pods returns a number of pods: most nodes have few, some are nearly full.
func pods(draw *rand.Rand) int {
	if draw.IntN(12) == 0 {
		return 200 + draw.IntN(50)
	}
	return 8 + draw.IntN(60)
}

func podsOf(node string, cidr netip.Prefix, n int) []corev1.Pod {
	var pods []corev1.Pod
	addr := cidr.Addr()
	for i := range n {
		addr = addr.Next()
		name := fmt.Sprintf("web-%s-%d", node, i)
		pods = append(pods, *fixtures.Pod(name, name, node, addr.String()))
	}
	return pods
}
