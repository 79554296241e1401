package harness

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/test/cluster/page"
)

// RoleOfPage returns the ClusterRole in a page of docs: its first block of YAML.
func RoleOfPage(t testing.TB, name string) *rbacv1.ClusterRole {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(Root(), "docs", name))
	Must(t, err)
	role := &rbacv1.ClusterRole{}
	Must(t, yaml.UnmarshalStrict([]byte(page.OfLanguage(string(text), "yaml")[0]), role))
	return role
}

// Bind returns a binding of a ClusterRole, of its name, to a subject.
func Bind(role string, to rbacv1.Subject) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{to},
	}
}

// OperatorRights returns the chart's rights of each mode's operator; its ServiceAccount in
// ChartNamespace has the name of the mode: accounts, roles, and the policies that limit its writes.
// Those let it set shortageTaint.
func OperatorRights(ctx context.Context, shortageTaint string) ([]*unstructured.Unstructured, error) {
	var rights []*unstructured.Unstructured
	for _, mode := range ciliumnode.Modes() {
		all, err := RenderChart(ctx, Helm4, "--set", fmt.Sprintf("fullnameOverride=%s,mode=%s,nodes.shortageTaint=%s,scheduling.enabled=%t,bgp.frrK8s.enabled=true,admissionPolicies.blocks.enabled=false",
			mode, mode, shortageTaint, mode != ciliumnode.Kubernetes))
		if err != nil {
			return nil, err
		}
		for _, o := range all {
			switch o.GetKind() {
			case "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding",
				"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding":
				rights = append(rights, o)
			}
		}
	}
	return rights, nil
}
