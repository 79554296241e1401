package plugin

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	ciliumv2alpha1 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2alpha1"
	"github.com/rogpeppe/go-internal/testscript"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/apiclient"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// world is the cluster that scripts fill and the command reads.
type world struct {
	tb      testing.TB
	ctx     context.Context //nolint:containedctx // commands of scripts are passed none
	cluster *controlplane.Cluster
	client  client.Client
	// reader is a kubeconfig with the chart's rights for commands that read, changer one with those for
	// commands that change the cluster, too. The user importer has the rights in docs/import.md.
	reader, changer string
	// admin is a kubeconfig with all rights, and kubectl uses it.
	admin, kubectl string
	// bin is the folder with kubectl, sources is cmd/kubectl-cilium_pool.
	bin, sources string
}

func newWorld(t testing.TB) *world {
	t.Helper()
	cluster := planes.Cluster(t)
	s, err := apiclient.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	if err := scheme.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(cluster.Config(), client.Options{Scheme: s})
	if err != nil {
		t.Fatal(err)
	}
	sources, err := filepath.Abs(filepath.Join(root, "cmd", "kubectl-cilium_pool"))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{tb: t, ctx: t.Context(), cluster: cluster, client: c, bin: cluster.BinDir(), sources: sources}
	dir := t.TempDir()
	w.reader, w.changer, w.kubectl = filepath.Join(dir, "reader"), filepath.Join(dir, "changer"), filepath.Join(dir, "kubectl-as-admin")
	w.admin = filepath.Join(dir, "admin")
	if err := cluster.WriteKubeconfig(w.admin); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("#!/bin/sh\nKUBECONFIG=%s exec %s \"$@\"\n", w.admin, filepath.Join(w.bin, "kubectl"))
	if err := os.WriteFile(w.kubectl, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	imports := harness.RoleOfPage(t, "import.md")
	importer := harness.Bind(imports.Name, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: "importer"})
	for _, o := range append(pluginRights(t), imports, importer) {
		if err := c.Create(t.Context(), o); client.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err) // another test's world has created it
		}
	}
	for account, path := range map[string]string{"reader": w.reader, "changer": w.changer} {
		config, err := cluster.ConfigFor(t.Context(), "default", account)
		if err != nil {
			t.Fatal(err)
		}
		if err := controlplane.WriteKubeconfig(path, config); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// pluginRights returns the chart's roles for the plugin, and accounts with the first, or both.
func pluginRights(t testing.TB) []client.Object {
	t.Helper()
	rendered, err := harness.RenderChart(t.Context(), harness.Helm4)
	if err != nil {
		t.Fatal(err)
	}
	const view, admin = "cilium-pool-operator-plugin-view", "cilium-pool-operator-plugin-admin"
	var rights []client.Object
	for _, o := range rendered {
		if o.GetName() == view || o.GetName() == admin {
			rights = append(rights, o)
		}
	}
	if len(rights) != 3 {
		t.Fatalf("the chart has %d roles for the plugin, want two ClusterRoles and a Role", len(rights))
	}
	reader := rbacv1.Subject{Kind: "ServiceAccount", Namespace: "default", Name: "reader"}
	changer := rbacv1.Subject{Kind: "ServiceAccount", Namespace: "default", Name: "changer"}
	views := harness.Bind(view, reader)
	views.Subjects = append(views.Subjects, changer)
	restarts := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: admin},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: admin},
		Subjects:   []rbacv1.Subject{changer},
	}
	for _, name := range []string{"reader", "changer"} {
		rights = append(rights, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
	}
	return append(rights, views, harness.Bind(admin, changer), restarts)
}

// setup empties the cluster. Scripts start with the rights of a reader.
func (w *world) setup(e *testscript.Env) error {
	e.Values[worldKey{}] = w
	e.Setenv("KUBECONFIG", w.reader)
	e.Setenv("ADMIN", w.admin)
	e.Setenv("KUBECTL", w.kubectl)
	e.Setenv("PLUGIN", w.sources)
	e.Setenv("MUTANT", os.Getenv("MUTANT")) // of test/mutants
	// Under the race detector each command would sleep for a second on exit.
	e.Setenv("GORACE", "atexit_sleep_ms=0")
	return harness.Wipe(w.ctx, w.client,
		&corev1.PodList{}, &corev1.NodeList{}, &ciliumv2.CiliumNodeList{}, &v1alpha1.PodIPPoolList{},
		&v1alpha1.PodIPPinList{}, &v1alpha1.PodIPBlockList{}, &coordinationv1.LeaseList{},
		&policyv1.PodDisruptionBudgetList{}, &corev1.EventList{}, &ciliumv2alpha1.CiliumPodIPPoolList{},
	)
}

func (w *world) remove(o client.Object) error { return harness.Remove(w.ctx, w.client, o) }
