package ciliumconfig

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// Read reads the configuration from Cilium's namespace. It omits sources that do not exist. For
// sources that it cannot read, it keeps the content of last, which may be nil. The error names the
// latter, except Denied.
func Read(ctx context.Context, c client.Reader, namespace string, last *Config) (*Config, error) {
	out := &Config{}
	if last != nil {
		out.Data = last.Data
		out.Known = last.Known
		out.Overrides = last.Overrides
		out.NonMasquerade = last.NonMasquerade
	}
	data, read, err := out.configMap(ctx, c, namespace, Name)
	if read {
		out.Data = data
		out.Known = true
	}
	if out.Data["enable-ip-masq-agent"] != "true" {
		out.NonMasquerade = nil
	} else if data, read, failed := out.configMap(ctx, c, namespace, MasqAgentName); read {
		out.NonMasquerade = nonMasquerade(data["config"])
	} else {
		err = errors.Join(err, failed)
	}
	return out, errors.Join(err, out.readOverrides(ctx, c, namespace))
}

// configMap returns the data of a ConfigMap, nil if it does not exist, and whether it could be
// read.
func (c *Config) configMap(ctx context.Context, reader client.Reader, namespace, name string) (data map[string]string, read bool, err error) {
	found := &corev1.ConfigMap{}
	subject := "ConfigMap " + namespace + "/" + name
	err = reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, found)
	if apierrors.IsNotFound(err) {
		return nil, true, nil
	}
	if apierrors.IsForbidden(err) {
		c.Denied = append(c.Denied, subject)
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("reading %s: %w", subject, err)
	}
	if found.Data == nil {
		found.Data = map[string]string{}
	}
	return found.Data, true, nil
}

// nonMasquerade parses the configuration of ip-masq-agent (pkg/ipmasq/ipmasq.go): an empty one
// stands for the default CIDRs, an unreadable one for none.
func nonMasquerade(config string) []netip.Prefix {
	parsed := struct {
		CIDRs []string `json:"nonMasqueradeCIDRs"`
	}{}
	if config == "" {
		parsed.CIDRs = []string{
			"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24",
			"192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
		}
	} else if err := yaml.Unmarshal([]byte(config), &parsed); err != nil {
		return []netip.Prefix{}
	}
	out := make([]netip.Prefix, 0, len(parsed.CIDRs))
	for _, s := range parsed.CIDRs {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return []netip.Prefix{}
		}
		out = append(out, p.Masked())
	}
	return out
}

func (c *Config) readOverrides(ctx context.Context, reader client.Reader, namespace string) error {
	for _, version := range []string{"v2", "v2alpha1"} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: "cilium.io", Version: version, Kind: "CiliumNodeConfigList"})
		err := reader.List(ctx, list, client.InNamespace(namespace))
		if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
			continue
		}
		if apierrors.IsForbidden(err) {
			c.Denied = append(c.Denied, "CiliumNodeConfigs of namespace "+namespace)
			return nil
		}
		if err != nil {
			return fmt.Errorf("listing CiliumNodeConfigs of namespace %s: %w", namespace, err)
		}
		c.Overrides = nil
		for _, item := range list.Items {
			o := struct {
				Spec Override `json:"spec"`
			}{}
			// An agent cannot apply a malformed one either, and does not start.
			if runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, &o) == nil {
				c.Overrides = append(c.Overrides, o.Spec)
			}
		}
		return nil
	}
	c.Overrides = nil // no version of the kind is served
	return nil
}
