package plugin

import (
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/audit"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
)

// The operator's own defaults. Its flags cannot be read from the cluster; a test
// holds these to its --help.
const (
	agentNamespace   = "kube-system"
	agentSelector    = "k8s-app=cilium"
	agentSettle      = time.Minute
	cooldown         = time.Minute
	nodeGoneCooldown = 10 * time.Minute
	leaseNamespace   = "kube-system"
	leaseName        = "cilium-pool-operator"
)

func poolDefaults(mode ciliumnode.Mode) crd.Defaults {
	return crd.Defaults{
		Policy: expand.DefaultPolicy(), Cooldown: cooldown, NodeGoneCooldown: nodeGoneCooldown, WholeBlocks: mode.WholeBlocks(), CiliumPools: mode.ManyPools(),
	}
}

func auditSettings() audit.Settings {
	return audit.Settings{
		Cooldown: cooldown, NodeGoneCooldown: nodeGoneCooldown,
		MaxAddresses: expand.DefaultPolicy().MaxAddresses, StuckAfter: 5 * time.Minute,
	}
}
