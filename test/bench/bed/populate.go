package bed

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// populateWorkers is how many objects are written at once.
const populateWorkers = 32

// populate writes the world into an empty API server.
func (w World) populate(ctx context.Context, c client.Client) error {
	if w.Mode == CRD || w.Mode == OwnMultiPool {
		if err := c.Create(ctx, w.pool()); err != nil {
			return fmt.Errorf("create pool: %w", err)
		}
	}
	return harness.Parallel(ctx, w.Nodes, populateWorkers, func(ctx context.Context, i int) error {
		node, err := w.addNode(ctx, c, i)
		if err != nil {
			return err
		}
		if err := w.addBlocks(ctx, c, i, node); err != nil {
			return err
		}
		return w.addPods(ctx, c, i)
	})
}

func (w World) addNode(ctx context.Context, c client.Client, i int) (*corev1.Node, error) {
	node := w.node(i)
	if err := c.Create(ctx, node); err != nil {
		return nil, fmt.Errorf("create node %s: %w", node.Name, err)
	}
	node.Status = nodeStatus(i)
	if err := c.Status().Update(ctx, node); err != nil {
		return nil, fmt.Errorf("update node %s: %w", node.Name, err)
	}
	if w.NoCiliumNodes {
		return node, nil
	}
	cn := w.ciliumNode(i, node)
	if err := c.Create(ctx, cn); err != nil {
		return nil, fmt.Errorf("create CiliumNode %s: %w", cn.Name, err)
	}
	if w.Used == 0 {
		return node, nil
	}
	cn.Status.IPAM.Used = w.Report(i, 0)
	if err := c.Status().Update(ctx, cn); err != nil {
		return nil, fmt.Errorf("update CiliumNode %s: %w", cn.Name, err)
	}
	return node, nil
}

func (w World) addBlocks(ctx context.Context, c client.Client, i int, node *corev1.Node) error {
	if w.Mode != CRD {
		return nil
	}
	for j := range w.Blocks {
		b := crd.NewBlock(Block(BlockOf(i, j, w.Blocks)), PoolName, node.Name, node.UID)
		if err := c.Create(ctx, b); err != nil {
			return fmt.Errorf("create block %s: %w", b.Name, err)
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
