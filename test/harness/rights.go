package harness

import (
	"os"
	"path/filepath"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

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
