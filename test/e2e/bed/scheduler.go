//go:build linux

package bed

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

const schedulerName = "kube-scheduler"

// schedulerConfig lifts the limit of 50 requests per second. Everything else is as released.
const schedulerConfig = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {kubeconfig: %s, qps: 10000, burst: 10000}
`

// StartScheduler starts the real kube-scheduler. It binds pods to nodes that TakePods was
// called for.
func (b *Bed) StartScheduler() error {
	path := filepath.Join(b.opts.Logs, "scheduler.yaml")
	if err := os.WriteFile(path, fmt.Appendf(nil, schedulerConfig, b.kubeconfig), 0o600); err != nil {
		return fmt.Errorf("write scheduler's configuration: %w", err)
	}
	_, err := b.spawn(schedulerName, filepath.Join(b.opts.BinDir, schedulerName), "--config="+path, "--secure-port=0")
	return err
}

// TakePods reports, as a kubelet does, how many pods the node accepts, and removes the taint
// of a new node, as kube-controller-manager does.
func (n *Node) TakePods(ctx context.Context, most int) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
	patch := fmt.Appendf(nil, `{"status":{"capacity":{"pods":"%d"},"allocatable":{"pods":"%d"}}}`, most, most)
	if err := n.bed.Client.Status().Patch(ctx, node, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("write status of node %s: %w", n.Name, err)
	}
	if err := n.bed.Client.Patch(ctx, node, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"taints":null}}`))); err != nil {
		return fmt.Errorf("remove taint of node %s: %w", n.Name, err)
	}
	return nil
}

// CreateWaitingPod creates the Pod object for the scheduler to bind. It requests an IPv4
// address.
func (b *Bed) CreateWaitingPod(ctx context.Context, name string) error {
	one := corev1.ResourceList{v1alpha1.IPv4Resource: resource.MustParse("1")}
	object := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none", Resources: corev1.ResourceRequirements{Requests: one, Limits: one}}}},
	}
	if err := b.Client.Create(ctx, object); err != nil {
		return fmt.Errorf("create pod %s: %w", name, err)
	}
	return nil
}

// BoundPod returns a pod that the scheduler has bound to the node, and that has no network
// yet.
func (n *Node) BoundPod(object *corev1.Pod) *Pod {
	return n.newPod(object.Namespace, object.Name)
}
