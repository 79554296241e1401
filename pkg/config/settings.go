// Package config has the operator's settings, their defaults, and their form on its Lease, so that
// tools decide as the operator does.
package config

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Settings are the controller configuration.
type Settings struct {
	// Mode is how blocks are assigned to agents.
	Mode ciliumnode.Mode
	// Defaults apply where a pool sets no value.
	Defaults crd.Defaults
	// Windows are Defaults.Maintenance.Windows in their original notation.
	Windows []v1alpha1.MaintenanceWindow
	// Paused stops all writes about nodes and blocks.
	Paused bool
	// SkipModeCheck accepts a Cilium configured with another IPAM mode.
	SkipModeCheck bool
	// Shadow: reports the plan without writing to nodes and blocks, beside an IPAM that
	// is still in service.
	Shadow bool
	// Observe: only counts the addresses that another IPAM assigns, in any mode, and writes nothing.
	Observe bool
	// KeepCiliumPools: in multi-pool mode, maintain the CiliumPodIPPools that agents
	// require.
	KeepCiliumPools bool
	// FRRNamespace is the namespace of frr-k8s, which announces the blocks of nodes by the operator's
	// FRRConfigurations; "": none are written.
	FRRNamespace string
	// ParkBlocks: in multi-pool mode, park blocks that drain, so that their agent
	// allocates none of their addresses to new pods.
	ParkBlocks bool
	// CompactBlocks: with ParkBlocks, also park blocks in use that their node can do without.
	CompactBlocks bool
	// KeepManagedFields keeps metadata.managedFields of CiliumNodes.
	KeepManagedFields bool
	// AgentNamespace and AgentSelector select the agents' pods.
	AgentNamespace string
	AgentSelector  labels.Selector
	// AgentSettle is the time for which an agent must be Ready to count as settled.
	AgentSettle time.Duration
	// ReclaimsPerMinute and ReclaimsPerMinutePerPool pace reclaims; 0: no limit.
	ReclaimsPerMinute, ReclaimsPerMinutePerPool int
	// NodeWorkers is the number of nodes that are reconciled concurrently.
	NodeWorkers int
	// IgnoreTaints are keys of taints of Nodes without Cilium.
	IgnoreTaints []string
	// StartupTaints are keys of taints. A Node with one has no final labels, and does not
	// get its first block.
	StartupTaints []string
	// ShortageTaint is put on a Node while its pods cannot get an address; "": none.
	ShortageTaint string
	// NodeCondition reports a shortage as a condition of the Node.
	NodeCondition bool
	// OfferFamilies are offered by Nodes to the scheduler, where the API server can make
	// pods request their addresses. Not in kubernetes mode.
	OfferFamilies []ipalloc.Family
	// Webhook is the namespace and the name of the webhook that makes pods request addresses, where
	// policies cannot, and WebhookAddress its address; zero: none.
	Webhook        types.NamespacedName
	WebhookAddress string
	// CiliumConfigEvery is the interval between two reads of Cilium's configuration.
	CiliumConfigEvery time.Duration
	// Version and Commit identify this build.
	Version, Commit string
	// CRDSchemas are the schemas of the CRDs that this build was made with, by name.
	CRDSchemas map[string]string
	// Registry registers the operator's metrics.
	Registry prometheus.Registerer
}

// DefaultSettings are the settings without flags.
func DefaultSettings() Settings {
	return Settings{
		Mode:           ciliumnode.CRD,
		Defaults:       crd.Defaults{Policy: expand.DefaultPolicy(), Cooldown: time.Minute, NodeGoneCooldown: 10 * time.Minute},
		AgentNamespace: "kube-system", AgentSelector: labels.SelectorFromSet(labels.Set{"k8s-app": "cilium"}), AgentSettle: time.Minute,
		ReclaimsPerMinute: 600, ReclaimsPerMinutePerPool: 300,
		StartupTaints: crd.DefaultStartupTaints(),
		NodeWorkers:   32, NodeCondition: true, KeepCiliumPools: true, WebhookAddress: ":9872",
		CiliumConfigEvery: 30 * time.Second,
	}
}

// FamiliesNamed returns the families among names, in order.
func FamiliesNamed(names []string) []ipalloc.Family {
	var families []ipalloc.Family
	for _, f := range ipalloc.Families() {
		if slices.Contains(names, f.String()) {
			families = append(families, f)
		}
	}
	return families
}
