package plugin

import (
	"fmt"
	"testing"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/audit"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterread"
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterview"
	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/addressmap"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// BenchmarkScale measures commands behind their reading of the cluster. All values are per node: they stay the same if
// everything is linear.
func BenchmarkScale(b *testing.B) {
	for _, nodes := range []int{5_000, 20_000, 50_000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			objects := settled(nodes)
			settings := config.DefaultSettings()
			for b.Loop() {
				measure := func(name string, run func()) {
					begin := time.Now()
					run()
					b.ReportMetric(float64(time.Since(begin).Microseconds())/float64(nodes), name+"-µs/node")
				}
				measure("check", func() { audit.Check(objects, audit.Settings{Settings: settings}) })
				var cluster *clusterview.Cluster
				measure("view", func() { cluster = clusterview.New(objects, clusterread.Operator{Settings: settings}) })
				measure("decide", func() {
					for name := range cluster.Nodes {
						cluster.Decide(name)
					}
				})
				measure("map", func() {
					if _, err := addressmap.StillOf(cluster, "bench"); err != nil {
						b.Fatal(err)
					}
				})
			}
		})
	}
}

// settled returns the objects of a cluster where everything is as it should be.
func settled(nodes int) *clusterread.Objects {
	pool := fixtures.PodIPPool("p", 1, "10.0.0.0/8")
	pool.Spec.IPv4.BlockSize = 27
	objects := &clusterread.Objects{Time: fixtures.Noon(), Mode: ciliumnode.CRD}
	objects.Pools = append(objects.Pools, *pool)
	for n := range nodes {
		m := fixtures.NewMachine(n)
		blocks, pods := m.Settle(n)
		for i := range blocks {
			objects.Blocks = append(objects.Blocks, *blocks[i])
		}
		for i := range pods {
			objects.Pods = append(objects.Pods, *pods[i])
		}
		objects.Nodes = append(objects.Nodes, *m.Node)
		objects.Agents = append(objects.Agents, *m.Agent)
		objects.CiliumNodes = append(objects.CiliumNodes, clusterread.CiliumNode{View: ciliumnode.CRD.View(m.CiliumNode)})
	}
	return objects
}
