package controlplane

import (
	"context"
	"fmt"
	"io/fs"
	"slices"

	ciliumcrds "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/client/crds/v2"
	ciliumalphacrds "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/client/crds/v2alpha1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/yaml"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/crds"
)

// DefaultCRDs returns those of CiliumCRDs, and this project's own kinds.
func DefaultCRDs() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	cilium, err := CiliumCRDs()
	if err != nil {
		return nil, err
	}
	own, err := crds.All()
	if err != nil {
		return nil, err
	}
	return append(cilium, own...), nil
}

// CiliumCRDs returns Cilium's CiliumNode, CiliumNodeConfig, CiliumLoadBalancerIPPool and
// CiliumPodIPPool.
func CiliumCRDs() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	return AllCiliumCRDs("ciliumnodes.yaml", "ciliumnodeconfigs.yaml", "ciliumloadbalancerippools.yaml", "ciliumpodippools.yaml")
}

// AllCiliumCRDs returns Cilium's CRDs, as its Go module ships them: those of these files, or all.
func AllCiliumCRDs(only ...string) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	return CRDsIn([]fs.FS{ciliumcrds.EmbedFS, ciliumalphacrds.EmbedFS}, only...)
}

// CRDsIn returns the CRDs of these folders: those of these files, or all.
func CRDsIn(folders []fs.FS, only ...string) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	var all []*apiextensionsv1.CustomResourceDefinition
	for _, from := range folders {
		files, err := fs.Glob(from, "*.yaml")
		if err != nil {
			return nil, fmt.Errorf("read Cilium's CRDs: %w", err)
		}
		for _, file := range files {
			if len(only) > 0 && !slices.Contains(only, file) {
				continue
			}
			data, err := fs.ReadFile(from, file)
			if err != nil {
				return nil, fmt.Errorf("read Cilium's CRD: %w", err)
			}
			crd := &apiextensionsv1.CustomResourceDefinition{}
			if err := yaml.Unmarshal(data, crd); err != nil {
				return nil, fmt.Errorf("parse Cilium's CRD: %w", err)
			}
			all = append(all, crd)
		}
	}
	return all, nil
}

// InstallCRDs creates or updates the definitions and waits until the API
// server serves them.
func (c *Cluster) InstallCRDs(ctx context.Context, definitions ...*apiextensionsv1.CustomResourceDefinition) error {
	clients, err := clientset.NewForConfig(c.config)
	if err != nil {
		return fmt.Errorf("install CRDs: %w", err)
	}
	client := clients.ApiextensionsV1().CustomResourceDefinitions()
	for _, crd := range definitions {
		if err := applyCRD(ctx, client, crd); err != nil {
			return fmt.Errorf("install CRD %s: %w", crd.Name, err)
		}
	}
	for _, crd := range definitions {
		err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
			got, err := client.Get(ctx, crd.Name, metav1.GetOptions{})
			return err == nil && established(got) && served(ctx, clients.ApiextensionsV1().RESTClient(), crd), err
		})
		if err != nil {
			return fmt.Errorf("wait for CRD %s: %w", crd.Name, err)
		}
	}
	return nil
}

// served reports whether objects of every version can be listed. For some
// milliseconds an established CRD still answers "storage is (re)initializing",
// after which client-go waits a whole second.
func served(ctx context.Context, client rest.Interface, crd *apiextensionsv1.CustomResourceDefinition) bool {
	for _, version := range crd.Spec.Versions {
		path := []string{"/apis", crd.Spec.Group, version.Name, crd.Spec.Names.Plural}
		if version.Served && client.Get().AbsPath(path...).Param("limit", "1").MaxRetries(0).Do(ctx).Error() != nil {
			return false
		}
	}
	return true
}

func applyCRD(ctx context.Context, client apiextensionsclient.CustomResourceDefinitionInterface,
	crd *apiextensionsv1.CustomResourceDefinition,
) error {
	_, err := client.Create(ctx, crd, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		old, err := client.Get(ctx, crd.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		old.Spec = crd.Spec
		_, err = client.Update(ctx, old, metav1.UpdateOptions{})
		return err
	})
}

func established(crd *apiextensionsv1.CustomResourceDefinition) bool {
	for _, condition := range crd.Status.Conditions {
		if condition.Type == apiextensionsv1.Established {
			return condition.Status == apiextensionsv1.ConditionTrue
		}
	}
	return false
}
