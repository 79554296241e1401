package controlplane_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// The API server filters pods for the operator with this selector.
func TestPodFieldSelector(t *testing.T) {
	const selector = "spec.nodeName!=,spec.hostNetwork=false,status.phase!=Succeeded,status.phase!=Failed"
	c, namespace := clientFor(t, shared.Cluster(t).Config()).CoreV1(), harness.UniqueName(t)
	if _, err := c.Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pods := c.Pods(namespace)
	for name, p := range map[string]struct {
		node        string
		hostNetwork bool
		phase       corev1.PodPhase
	}{
		"bound":     {node: "a"},
		"running":   {node: "a", phase: corev1.PodRunning},
		"unbound":   {},
		"host":      {node: "a", hostNetwork: true},
		"succeeded": {node: "a", phase: corev1.PodSucceeded},
		"failed":    {node: "a", phase: corev1.PodFailed},
	} {
		pod, err := pods.Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PodSpec{
				NodeName:    p.node,
				HostNetwork: p.hostNetwork,
				Containers:  []corev1.Container{{Name: "c", Image: "i"}},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if p.phase == "" {
			continue
		}
		pod.Status.Phase = p.phase
		if _, err := pods.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := pods.List(t.Context(), metav1.ListOptions{FieldSelector: selector})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, pod := range list.Items {
		got = append(got, pod.Name)
	}
	if diff := cmp.Diff([]string{"bound", "running"}, got); diff != "" {
		t.Errorf("selected pods (-want +got):\n%s", diff)
	}

	w, err := pods.Watch(t.Context(), metav1.ListOptions{FieldSelector: selector, ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	done := list.Items[1].DeepCopy()
	done.Status.Phase = corev1.PodSucceeded
	if _, err := pods.UpdateStatus(t.Context(), done, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	select {
	case event := <-w.ResultChan():
		if event.Type != "DELETED" {
			t.Errorf("a pod that succeeds leaves the watch by %s, want DELETED", event.Type)
		}
	case <-t.Context().Done():
		t.Fatal("no event for a pod that succeeds")
	}
}
