package bed

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/frrconfig"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane/gateway"
)

// populateWorkers is the number of concurrent writes.
const populateWorkers = 32

// populateCluster writes Nodes and pods into an empty API server: the first node's
// through it, then copies of them.
func (w World) populateCluster(ctx context.Context, st *Stage) error {
	if err := w.addNode(ctx, st.Client, 0); err != nil {
		return err
	}
	return w.replicate(ctx, st, gateway.Nodes, gateway.Pods)
}

// populate adds the objects that depend on the mode, in the same way: pools, CiliumNodes and blocks.
func (w World) populate(ctx context.Context, st *Stage) error {
	if w.Mode.Owned() {
		never := int32(0)
		pool := &v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: PoolName}}
		pool.Spec.IPv4 = &v1alpha1.IPv4Ranges{CIDRs: []v1alpha1.PoolCIDR{{CIDR: PoolCIDR}}, BlockSize: BlockBits}
		pool.Spec.Reclaim.ThresholdPercent = &never
		if err := st.Client.Create(ctx, pool); err != nil {
			return fmt.Errorf("create pool: %w", err)
		}
	}
	if w.Mode == ClusterPool {
		config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: ciliumconfig.Name}, Data: map[string]string{
			"ipam": string(ClusterPool), "cluster-pool-ipv4-cidr": PoolCIDR, "cluster-pool-ipv4-mask-size": strconv.Itoa(BlockBits),
		}}
		if err := st.Client.Create(ctx, config); err != nil {
			return fmt.Errorf("create Cilium's configuration: %w", err)
		}
	}
	if w.Routes {
		if err := addTemplate(ctx, st); err != nil {
			return err
		}
	}
	if err := w.addOfMode(ctx, st.Client, 0); err != nil {
		return err
	}
	return w.replicate(ctx, st, gateway.CiliumNodes, gateway.Blocks)
}

// addTemplate installs the kind FRRConfiguration, and a template for all nodes.
func addTemplate(ctx context.Context, st *Stage) error {
	body, err := os.ReadFile("test/integration/testdata/frrconfigurations.yaml")
	if err != nil {
		return err
	}
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(body, definition); err != nil {
		return err
	}
	if err := st.cluster.InstallCRDs(ctx, definition); err != nil {
		return err
	}
	obj := frrconfig.Empty(FRRNamespace, "template")
	const spec = `{nodeSelector: {matchLabels: {cilium-pool.io/template: ""}},
bgp: {routers: [{asn: 65001, neighbors: [{address: 192.0.2.1, asn: 65000, toAdvertise: {allowed: {mode: all}}}]}]}}`
	fields := map[string]any{}
	if err := yaml.Unmarshal([]byte(spec), &fields); err != nil {
		return err
	}
	obj.Object["spec"] = fields
	return st.Client.Create(ctx, obj)
}

// Join adds node i, which has neither a block nor a pod, to a world that runs.
func (s *Stage) Join(ctx context.Context, w World, i int) error {
	w = World{Mode: w.Mode}
	if err := w.addNode(ctx, s.Client, i); err != nil {
		return err
	}
	return w.addOfMode(ctx, s.Client, i)
}

// addNode creates node i and its pods.
func (w World) addNode(ctx context.Context, c client.Client, i int) error {
	node := w.node(i)
	if err := c.Create(ctx, node); err != nil {
		return fmt.Errorf("create node %s: %w", node.Name, err)
	}
	node.Status = nodeStatus(i)
	if err := c.Status().Update(ctx, node); err != nil {
		return fmt.Errorf("update node %s: %w", node.Name, err)
	}
	return w.addPods(ctx, c, i)
}

// addOfMode creates the CiliumNode and the blocks of node i.
func (w World) addOfMode(ctx context.Context, c client.Client, i int) error {
	node := &corev1.Node{}
	if err := c.Get(ctx, client.ObjectKey{Name: NodeName(i)}, node); err != nil {
		return fmt.Errorf("read node %s: %w", NodeName(i), err)
	}
	if err := w.addCiliumNode(ctx, c, i, node); err != nil {
		return err
	}
	return w.addBlocks(ctx, c, i, node)
}

// addCiliumNode creates a CiliumNode. Agents report usage only in crd mode: in multi-pool
// mode a report makes cilium-operator assume that the agent has not changed modes yet.
func (w World) addCiliumNode(ctx context.Context, c client.Client, i int, node *corev1.Node) error {
	if w.NoCiliumNodes {
		return nil
	}
	cn := w.ciliumNode(i, node)
	if err := c.Create(ctx, cn); err != nil {
		return fmt.Errorf("create CiliumNode %s: %w", cn.Name, err)
	}
	if w.Mode != CRD {
		return nil
	}
	if w.Used > 0 {
		cn.Status.IPAM.Used = w.Report(i, 0)
		if err := c.Status().Update(ctx, cn); err != nil {
			return fmt.Errorf("update CiliumNode %s: %w", cn.Name, err)
		}
	}
	if w.Blocks == 0 {
		return nil
	}
	// The operator published its blocks, and removed the managed fields with the first one.
	if err := c.Patch(ctx, cn, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"managedFields":[{}]}}`))); err != nil {
		return fmt.Errorf("patch CiliumNode %s: %w", cn.Name, err)
	}
	return nil
}

func (w World) addBlocks(ctx context.Context, c client.Client, i int, node *corev1.Node) error {
	if !w.Mode.Owned() {
		return nil
	}
	for j := range w.Blocks {
		b := crd.NewBlock(w.block(i, j), PoolName, node.Name, node.UID)
		if err := c.Create(ctx, b); err != nil {
			return fmt.Errorf("create block %s: %w", b.Name, err)
		}
		crd.SetBlockPublished(b, true, time.Now())
		if err := c.Status().Update(ctx, b); err != nil {
			return fmt.Errorf("update block %s: %w", b.Name, err)
		}
	}
	return nil
}

func (w World) addPods(ctx context.Context, c client.Client, i int) error {
	used := w.used(i)
	for k := range w.Pods {
		if err := createWithStatus(ctx, c, BoundPod(i, podName(i, k), used[k])); err != nil {
			return err
		}
	}
	if w.Agents {
		return createWithStatus(ctx, c, agentPod(i))
	}
	return nil
}

func createWithStatus(ctx context.Context, c client.Client, pod *corev1.Pod) error {
	status := pod.Status
	if err := c.Create(ctx, pod); err != nil {
		return fmt.Errorf("create pod %s: %w", pod.Name, err)
	}
	pod.Status = status
	if err := c.Status().Update(ctx, pod); err != nil {
		return fmt.Errorf("update pod %s: %w", pod.Name, err)
	}
	return nil
}
