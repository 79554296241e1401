//go:build linux

package bed

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/test/agent"
)

// writeAgentPod writes the agent's Pod object as its DaemonSet and kubelet would for this run
// of its container: running while run is n.agent, else ended.
func (n *Node) writeAgentPod(ctx context.Context, run *agentRun, ready bool) error {
	pod := &corev1.Pod{
		ObjectMeta: n.agentPod(),
		Spec: corev1.PodSpec{
			NodeName: n.Name, HostNetwork: true,
			Containers: []corev1.Container{{Name: agentName, Image: "cilium"}},
		},
	}
	if err := n.bed.Client.Create(ctx, pod); apierrors.IsAlreadyExists(err) {
		if err := n.bed.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return fmt.Errorf("write pod of agent: %w", err)
		}
	} else if err != nil {
		return fmt.Errorf("write pod of agent: %w", err)
	}
	base := pod.DeepCopy()
	pod.Status.Phase = corev1.PodRunning
	agent.SetConditions(pod, ready)
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{n.container(run, ready)}
	if err := n.bed.Client.Status().Patch(ctx, pod, client.MergeFrom(base)); err != nil {
		return fmt.Errorf("write pod of agent: %w", err)
	}
	return nil
}

func (n *Node) agentPod() metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: metav1.NamespaceSystem, Name: "cilium-" + n.Name, Labels: map[string]string{"k8s-app": "cilium"},
	}
}

func (n *Node) container(run *agentRun, ready bool) corev1.ContainerStatus {
	status := corev1.ContainerStatus{
		Name: agentName, Image: "cilium", Ready: ready, Started: &ready,
		ContainerID: n.containerID(run.number), RestartCount: int32(run.number - 1),
	}
	started := metav1.NewTime(run.started)
	if n.agent == run {
		status.State.Running = &corev1.ContainerStateRunning{StartedAt: started}
	} else {
		status.State.Terminated = &corev1.ContainerStateTerminated{
			StartedAt: started, FinishedAt: metav1.Now(), ExitCode: run.code, Reason: "Error", ContainerID: status.ContainerID,
		}
	}
	return status
}

// Container returns the ID of the agent's last container.
func (n *Node) Container() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.containerID(n.runs)
}

func (n *Node) containerID(run int) string { return fmt.Sprintf("containerd://%s-%d", n.Name, run) }
