package harness

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// BoundPod is a pod that a scheduler has bound to a node. Its name ends with a hyphen where the API
// server completes it.
func BoundPod(node, name string, labels map[string]string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name, Labels: labels},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "app", Image: "registry.example.com/app"}}},
	}
	if name[len(name)-1] == '-' {
		p.Name, p.GenerateName = "", name
	}
	return p
}

// JoinNode registers a Ready Node, as a kubelet does. It may be there already, as
// after an answer that was lost.
func JoinNode(ctx context.Context, c client.Client, name, address string, labels map[string]string) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	if err := c.Create(ctx, node); client.IgnoreAlreadyExists(err) != nil {
		return fmt.Errorf("join node %s: %w", name, err)
	}
	created := node.DeepCopy()
	node.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: address}, {Type: corev1.NodeHostName, Address: name},
	}
	node.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
		LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
	}}
	if err := c.Status().Patch(ctx, node, client.StrategicMergeFrom(created)); err != nil {
		return fmt.Errorf("join node %s: %w", name, err)
	}
	return nil
}
