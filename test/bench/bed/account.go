package bed

import (
	"context"
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
)

const accountName = "bench"

// AccountKubeconfig returns the path of the ServiceAccount's kubeconfig, once MakeAccount
// has created it.
func (s *Stage) AccountKubeconfig() string {
	return filepath.Join(s.cluster.Dir(), "account.kubeconfig")
}

// MakeAccount creates a ServiceAccount that may do everything. The administrator is in
// system:masters, whose requests bypass RBAC and priority and fairness.
func (s *Stage) MakeAccount(ctx context.Context) error {
	clients, err := kubernetes.NewForConfig(s.Config())
	if err != nil {
		return err
	}
	meta := metav1.ObjectMeta{Name: accountName}
	account := &corev1.ServiceAccount{ObjectMeta: meta}
	if _, err := clients.CoreV1().ServiceAccounts(metav1.NamespaceSystem).Create(ctx, account, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make a ServiceAccount: %w", err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceSystem, Name: accountName}},
	}
	if _, err := clients.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make a ServiceAccount: %w", err)
	}
	config, err := s.cluster.ConfigFor(ctx, metav1.NamespaceSystem, accountName)
	if err != nil {
		return err
	}
	return controlplane.WriteKubeconfig(s.AccountKubeconfig(), config)
}
