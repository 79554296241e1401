package controlplane_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

func TestCRDsAreServed(t *testing.T) {
	c := shared.Cluster(t)
	want, err := controlplane.DefaultCRDs()
	if err != nil {
		t.Fatal(err)
	}
	definitions, err := clientset.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	objects, err := dynamic.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	for _, crd := range want {
		t.Run(crd.Name, func(t *testing.T) {
			got, err := definitions.ApiextensionsV1().CustomResourceDefinitions().Get(t.Context(), crd.Name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			conditions := map[apiextensionsv1.CustomResourceDefinitionConditionType]apiextensionsv1.ConditionStatus{}
			for _, condition := range got.Status.Conditions {
				conditions[condition.Type] = condition.Status
			}
			wantConditions := map[apiextensionsv1.CustomResourceDefinitionConditionType]apiextensionsv1.ConditionStatus{
				apiextensionsv1.NamesAccepted: apiextensionsv1.ConditionTrue,
				apiextensionsv1.Established:   apiextensionsv1.ConditionTrue,
			}
			if diff := cmp.Diff(wantConditions, conditions); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			version := crd.Spec.Versions[0].Name
			resource := schema.GroupVersionResource{Group: crd.Spec.Group, Version: version, Resource: crd.Spec.Names.Plural}
			if _, err := objects.Resource(resource).List(t.Context(), metav1.ListOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestInstallCRDsTwice(t *testing.T) {
	c := shared.Cluster(t)
	crds, err := controlplane.CiliumCRDs()
	if err != nil {
		t.Fatal(err)
	}
	harness.Must(t, c.InstallCRDs(t.Context(), crds...))
}

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

func TestTokenIsSubjectToRBAC(t *testing.T) {
	c := shared.Cluster(t)
	admin := clientFor(t, c.Config())
	namespace, name := metav1.NamespaceDefault, harness.UniqueName(t)
	if _, err := c.ConfigFor(t.Context(), namespace, name); !apierrors.IsNotFound(err) {
		t.Errorf("token of a missing ServiceAccount: %v, want not found", err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := admin.CoreV1().ServiceAccounts(namespace).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	cfg, err := c.ConfigFor(t.Context(), namespace, name)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.QPS >= 0 {
		t.Errorf("QPS %v: the client limits itself", cfg.QPS)
	}
	reader := clientFor(t, cfg)
	if err := listNodes(t.Context(), reader); !apierrors.IsForbidden(err) {
		t.Fatalf("before any grant: %v, want forbidden", err)
	}

	meta := metav1.ObjectMeta{Name: name}
	role := &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"list"},
	}}}
	if _, err := admin.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
	}
	if _, err := admin.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the grant takes effect", func() error { return listNodes(t.Context(), reader) })
	if _, err := reader.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("what was not granted: %v, want forbidden", err)
	}
}

func TestKubectl(t *testing.T) {
	c := shared.Cluster(t)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	harness.Must(t, c.WriteKubeconfig(path))
	for name, kubeconfig := range map[string]string{
		"written": path,
		"state":   filepath.Join(c.Dir(), "kubeconfig"),
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), filepath.Join(c.BinDir(), "kubectl"),
				"--kubeconfig", kubeconfig, "get", "namespaces", "default", "--output=name")
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if diff := cmp.Diff("namespace/default\n", string(out)); diff != "" {
				t.Errorf("kubectl's answer (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAuditLog(t *testing.T) {
	c := shared.Cluster(t)
	harness.Must(t, listNodes(t.Context(), clientFor(t, c.Config())))
	harness.Eventually(t, "the request is in the audit log", func() error { return audited(c, `"requestURI":"/api/v1/nodes"`) })
}

// audited returns an error unless the audit log contains a text.
func audited(c *controlplane.Cluster, text string) error {
	data, err := os.ReadFile(filepath.Join(c.Dir(), "audit.log"))
	if err == nil && !bytes.Contains(data, []byte(text)) {
		err = fmt.Errorf("no %s in %d bytes", text, len(data))
	}
	return err
}

func listNodes(ctx context.Context, client kubernetes.Interface) error {
	_, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	return err
}
