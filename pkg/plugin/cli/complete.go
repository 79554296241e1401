package cli

import (
	"context"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// CompleteNodes completes names of Nodes.
func (e *Env) CompleteNodes(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return e.names(cmd.Context(), corev1.SchemeGroupVersion.WithKind("NodeList"))
}

// CompletePools completes names of PodIPPools.
func (e *Env) CompletePools(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return e.names(cmd.Context(), v1alpha1.GroupVersion.WithKind("PodIPPoolList"))
}

// names returns the names of all objects of a kind, without reading their content. Completion
// reports no error to the shell.
func (e *Env) names(ctx context.Context, kind schema.GroupVersionKind) ([]string, cobra.ShellCompDirective) {
	c, err := e.Client()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind)
	if err := c.List(ctx, list, client.Limit(1000)); err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	names := make([]string, 0, len(list.Items))
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
