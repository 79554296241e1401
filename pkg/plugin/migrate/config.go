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

// ciliumConfig is how agents are configured when they next start.
type ciliumConfig struct {
	// all is the ConfigMap cilium-config; nil where it could not be read.
	all map[string]string
	// some are CiliumNodeConfigs, which change it for nodes with labels.
	some []nodeConfig
}

// nodeConfig is what is decided on of a CiliumNodeConfig (Cilium v1.20.1,
// pkg/k8s/apis/cilium.io/v2).
type nodeConfig struct {
	Spec struct {
		Defaults     map[string]string     `json:"defaults"`
		NodeSelector *metav1.LabelSelector `json:"nodeSelector"`
	} `json:"spec"`
}

// mode is the IPAM mode that the agent of a node starts in, "" where unknown.
func (c *ciliumConfig) mode(node *corev1.Node) string { return c.setting(node, "ipam") }

// defaultPool is the pool of Cilium's that pods are of which ask for none.
func (c *ciliumConfig) defaultPool(node *corev1.Node) string {
	return cmp.Or(c.setting(node, "ipam-default-ip-pool"), "default")
}

// setting is the value that a node's agent is configured with at start, "" if unknown.
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

// readCiliumConfig leaves out what may not be read or is not there.
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
