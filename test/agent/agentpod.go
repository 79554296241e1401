package agent

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	agentNamespace = metav1.NamespaceSystem
	agentContainer = "cilium-agent"
	agentImage     = "quay.io/cilium/cilium:v1.20.1"
)

// containerRun is one run of the agent's container.
type containerRun struct {
	id       string
	restarts uint64
	started  time.Time
	// after is the previous run, if it failed.
	after *corev1.ContainerStateTerminated
}

func (a *Agent) containerID(run uint64) string {
	return fmt.Sprintf("containerd://%s-%d", a.opts.NodeName, run)
}

// PodName is the name of the agent's Pod object, in kube-system.
func (a *Agent) PodName() string { return "cilium-" + a.opts.NodeName }

// writePod writes the agent's Pod object as its DaemonSet and kubelet would,
// trying until it is written or ctx ends.
func (a *Agent) writePod(ctx context.Context, run containerRun, ready bool) {
	if !a.opts.Pod {
		return
	}
	for a.writePodOnce(ctx, run, ready) != nil {
		if !sleep(ctx, time.Second) {
			return
		}
	}
}

func (a *Agent) writePodOnce(ctx context.Context, run containerRun, ready bool) error {
	pod := a.agentPod()
	if err := a.client.Create(ctx, pod); apierrors.IsAlreadyExists(err) {
		if err := a.client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	base := pod.DeepCopy()
	pod.Status.Phase = corev1.PodRunning
	SetConditions(pod, ready)
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name:         agentContainer,
		Image:        agentImage,
		ContainerID:  run.id,
		RestartCount: int32(run.restarts),
		Ready:        ready,
		Started:      &ready,
		State: corev1.ContainerState{
			Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(run.started)},
		},
		LastTerminationState: corev1.ContainerState{Terminated: run.after},
	}}
	return a.client.Status().Patch(ctx, pod, client.MergeFrom(base))
}

func (a *Agent) agentPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: agentNamespace,
			Name:      a.PodName(),
			Labels:    map[string]string{"k8s-app": "cilium"},
		},
		Spec: corev1.PodSpec{
			NodeName:    a.opts.NodeName,
			HostNetwork: true,
			Containers:  []corev1.Container{{Name: agentContainer, Image: agentImage}},
		},
	}
}

// SetConditions sets kubelet's conditions, with a value for Ready, and keeps the time of unchanged
// ones.
func SetConditions(pod *corev1.Pod, ready bool) {
	before := map[corev1.PodConditionType]corev1.PodCondition{}
	for _, condition := range pod.Status.Conditions {
		before[condition.Type] = condition
	}
	pod.Status.Conditions = nil
	for _, kind := range []corev1.PodConditionType{
		corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady,
	} {
		condition := corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}
		if !ready && (kind == corev1.PodReady || kind == corev1.ContainersReady) {
			condition.Status = corev1.ConditionFalse
		}
		if before[kind].Status == condition.Status {
			condition.LastTransitionTime = before[kind].LastTransitionTime
		}
		pod.Status.Conditions = append(pod.Status.Conditions, condition)
	}
}
