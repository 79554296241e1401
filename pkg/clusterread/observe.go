package clusterread

import (
	"slices"
	"strings"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
)

// ObserveMode is the --mode of an operator that observes.
const ObserveMode = "observe"

// ModeOf returns the mode that assigns addresses in the cluster. It fails if the configuration does
// not say, names a mode that no CiliumNode shows, or differs between nodes.
func ModeOf(c *ciliumconfig.Config, namespace string) (ciliumnode.Mode, error) {
	place := "ConfigMap " + namespace + "/" + ciliumconfig.Name
	if c == nil {
		c = &ciliumconfig.Config{}
	}
	denied := slices.DeleteFunc(slices.Clone(c.Denied), func(obj string) bool { return strings.HasSuffix(obj, "/"+ciliumconfig.MasqAgentName) })
	if len(denied) > 0 {
		return "", unclear("cannot tell what assigns addresses: %s may not be read", strings.Join(denied, ", "))
	}
	if c.Data == nil {
		return "", unclear("cannot tell what assigns addresses: there is no %s. --cilium-namespace names another namespace", place)
	}
	configured := c.Mode(nil)
	chained := c.Setting(nil, "cni-chaining-mode")
	mode := ciliumnode.Mode(configured)
	if chained != "" && chained != "none" && chained != "portmap" {
		return "", unclear("%s says cni-chaining-mode: %s: another CNI plugin assigns the addresses, and CiliumNodes do not show them", place, chained)
	}
	if !slices.Contains([]ciliumnode.Mode{ciliumnode.CRD, ciliumnode.MultiPool, ciliumnode.Kubernetes, ciliumnode.ClusterPool}, mode) {
		return "", unclear("%s says ipam: %q, and CiliumNodes show which addresses a node has only in cluster-pool, multi-pool, kubernetes and crd mode", place, configured)
	}
	if c.Differs(configured) {
		return "", unclear("%s says ipam: %s, and a CiliumNodeConfig another mode: a migration is under way. Observe before it or after it", place, configured)
	}
	return mode, nil
}
