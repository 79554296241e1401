//go:build linux

package bed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/test/invariant/budgets"
)

const dbgName = "cilium-dbg"

// Configs returns the configuration that the cluster began with, and the one that Cilium's chart
// renders from the example values for the mode that it moves to.
func (b *Bed) Configs() (before, moved map[string]string) { return b.config, b.moved }

// EditConfig writes the ConfigMap cilium-config as a Helm upgrade does. Agents and
// Cilium's operator read it at their next start.
func (b *Bed) EditConfig(ctx context.Context, config map[string]string) error {
	object := &corev1.ConfigMap{ObjectMeta: configKey(), Data: config}
	// The API server creates its own namespaces shortly after its start.
	return b.Eventually(ctx, "the ConfigMap "+configName+" is written", func(ctx context.Context) error {
		err := b.Client.Create(ctx, object.DeepCopy())
		if apierrors.IsAlreadyExists(err) {
			return b.Client.Update(ctx, object.DeepCopy())
		}
		return err
	})
}

func (b *Bed) readConfig(ctx context.Context) (map[string]string, error) {
	object := &corev1.ConfigMap{ObjectMeta: configKey()}
	if err := b.Client.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
		return nil, fmt.Errorf("read ConfigMap %s: %w", configName, err)
	}
	return object.Data, nil
}

func configKey() metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: configName}
}

// configDir returns the folder of the node's own configuration.
func (n *Node) configDir() string {
	if !n.bed.moves() {
		return n.bed.configDir()
	}
	return filepath.Join(n.dir, "config")
}

// resolveConfig acts as the first init container of an agent's pod if the configuration is in
// the API server, with the same program.
func (n *Node) resolveConfig(ctx context.Context) error {
	if !n.bed.moves() {
		return nil
	}
	if err := os.RemoveAll(n.configDir()); err != nil {
		return fmt.Errorf("resolve the configuration of %s: %w", n.Name, err)
	}
	return run(ctx, n.enter("env", "K8S_NODE_NAME="+n.Name, "CILIUM_K8S_NAMESPACE="+metav1.NamespaceSystem,
		filepath.Join(n.bed.opts.CiliumDir, dbgName), "build-config",
		"--node-name="+n.Name, "--dest="+n.configDir(), "--k8s-kubeconfig-path="+n.bed.kubeconfig)...)
}

// Mode returns the IPAM mode that the node's agent was last started in.
func (n *Node) Mode() (string, error) {
	mode, err := os.ReadFile(filepath.Join(n.configDir(), "ipam"))
	if err != nil {
		return "", fmt.Errorf("read the mode of %s: %w", n.Name, err)
	}
	return string(mode), nil
}

// Downtime is the time from an agent's SIGTERM until it was healthy again.
type Downtime struct{ From, Until time.Time }

// RollAgent waits until the agent's Pod is deleted, stops the agent and restarts it with the
// current configuration in a new pod, as kubelet and DaemonSet do. It waits until that pod is
// Ready. The agent's pins in bpffs stay.
func (n *Node) RollAgent(ctx context.Context) (d Downtime, err error) {
	pod := &corev1.Pod{}
	err = n.bed.Eventually(ctx, "the pod of the agent of "+n.Name+" is deleted", func(ctx context.Context) error {
		if err := n.bed.Client.Get(ctx, n.agentPodKey(), pod); err != nil || pod.DeletionTimestamp != nil {
			return err
		}
		return errors.New("it is there")
	})
	if err != nil {
		return d, err
	}
	d.From = time.Now()
	if err := n.StopAgent(ctx); err != nil {
		return d, err
	}
	if err := n.bed.Client.Delete(ctx, pod, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
		return d, fmt.Errorf("delete pod of agent: %w", err)
	}
	if err := n.StartAgent(ctx); err != nil {
		return d, err
	}
	err = n.WaitAgent(ctx)
	d.Until = time.Now()
	if err != nil {
		return d, err
	}
	return d, n.bed.Eventually(ctx, "the pod of the agent of "+n.Name+" is Ready", func(ctx context.Context) error {
		pod := &corev1.Pod{}
		if err := n.bed.Client.Get(ctx, n.agentPodKey(), pod); err != nil {
			return err
		}
		if !budgets.HasCondition(pod, corev1.PodReady) {
			return fmt.Errorf("conditions %v", pod.Status.Conditions)
		}
		return nil
	})
}

func (n *Node) agentPodKey() client.ObjectKey {
	return client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: n.agentPod().Name}
}
