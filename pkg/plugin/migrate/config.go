package migrate

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
)

// ciliumConfig is how agents will be configured at their next start.
type ciliumConfig struct {
	// all is the ConfigMap cilium-config; nil: it could not be read.
	all map[string]string
	// some are CiliumNodeConfigs, which override it for nodes with certain labels.
	some []nodeConfig
}

// nodeConfig is the part of a CiliumNodeConfig that matters here (Cilium v1.20.1,
// pkg/k8s/apis/cilium.io/v2).
type nodeConfig struct {
	Spec struct {
		Defaults     map[string]string     `json:"defaults"`
		NodeSelector *metav1.LabelSelector `json:"nodeSelector"`
	} `json:"spec"`
}

// mode returns the IPAM mode in which the agent of a node starts next; "": unknown.
func (c *ciliumConfig) mode(node *corev1.Node) string { return c.setting(node, "ipam") }

// defaultPool returns the Cilium pool of pods that request none.
func (c *ciliumConfig) defaultPool(node *corev1.Node) string {
	return cmp.Or(c.setting(node, "ipam-default-ip-pool"), "default")
}

// setting returns the value that a node's agent gets at start; "": unknown.
func (c *ciliumConfig) setting(node *corev1.Node, key string) string {
	set := c.all[key]
	for _, n := range c.some {
		selector, err := metav1.LabelSelectorAsSelector(n.Spec.NodeSelector)
		if value, sets := n.Spec.Defaults[key]; sets && err == nil && selector.Matches(labels.Set(node.Labels)) {
			set = value
		}
	}
	return set
}

// readCiliumConfig omits what may not be read or does not exist.
func readCiliumConfig(ctx context.Context, e *cli.Env) (*ciliumConfig, error) {
	c, err := e.Client()
	if err != nil {
		return nil, err
	}
	out, found := &ciliumConfig{}, &corev1.ConfigMap{}
	err = c.Get(ctx, client.ObjectKey{Namespace: e.AgentNamespace, Name: "cilium-config"}, found)
	switch {
	case err == nil:
		out.all = found.Data
	case !notForUs(err):
		return nil, e.CannotRead(err)
	}
	for _, version := range []string{"v2", "v2alpha1"} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: "cilium.io", Version: version, Kind: "CiliumNodeConfigList"})
		err := c.List(ctx, list, client.InNamespace(e.AgentNamespace))
		if notForUs(err) {
			continue
		}
		if err != nil {
			return nil, e.CannotRead(err)
		}
		for _, item := range list.Items {
			n := nodeConfig{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, &n); err != nil {
				return nil, fmt.Errorf("CiliumNodeConfig %s cannot be read: %w", item.GetName(), err)
			}
			out.some = append(out.some, n)
		}
		break
	}
	return out, nil
}

func notForUs(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || meta.IsNoMatchError(err)
}
