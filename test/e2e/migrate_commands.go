//go:build linux

package main

import "strings"

// The commands in docs/migration.md. The scenarios run these lines unchanged, with NODE, MODE
// and BLOCK filled in.
const (
	cmdPools      = "kubectl apply -f pools.yaml"
	cmdPlan       = "kubectl cilium-pool migrate plan"
	cmdStart      = "kubectl cilium-pool migrate start --all"
	cmdStatus     = "kubectl cilium-pool migrate status"
	cmdHold       = "kubectl label node --all cilium-pool.io/old-ipam=true"
	cmdHoldConfig = "kubectl apply -f old-ipam.yaml"
	cmdPublished  = "kubectl cilium-pool migrate status --until published --timeout 2m"

	cmdLetGo       = "kubectl label node NODE cilium-pool.io/old-ipam-"
	cmdDeleteAgent = "kubectl -n kube-system delete pod -l k8s-app=cilium --field-selector spec.nodeName=NODE"
	cmdMoved       = "kubectl cilium-pool migrate status --node NODE --until moved --timeout 5m"
	cmdSettled     = "kubectl cilium-pool migrate status --until settled --timeout 5m"
	cmdFinish      = "kubectl cilium-pool migrate finish"
	cmdTidy        = "kubectl -n kube-system delete ciliumnodeconfig old-ipam"

	cmdAbort    = "kubectl cilium-pool migrate abort --all"
	cmdAbortOne = "kubectl cilium-pool migrate abort --node NODE"
	cmdHoldOne  = "kubectl label node NODE cilium-pool.io/old-ipam=true"
	cmdFree     = "kubectl label node --all cilium-pool.io/old-ipam-"

	cmdAdopted = "kubectl get podipblocks -L cilium-pool.io/adopted-from"
	cmdDrain   = "kubectl cilium-pool drain BLOCK --wait=false"
)

// migrateCommands returns all of these lines.
func migrateCommands() []string {
	return []string{
		cmdPools, cmdPlan, cmdStart, cmdStatus, cmdHold, cmdHoldConfig, cmdPublished,
		cmdLetGo, cmdDeleteAgent, cmdMoved, cmdSettled, cmdFinish, cmdTidy,
		cmdAbort, cmdAbortOne, cmdHoldOne, cmdFree, cmdAdopted, cmdDrain,
	}
}

// on fills in a name.
func on(line, what, name string) string { return strings.Replace(line, what, name, 1) }

// holdConfig returns the configuration that keeps agents in their old mode while the ConfigMap
// already says crd: the old values of the keys that the move changes.
func holdConfig(mode string, endpointRoutes bool) map[string]string {
	keys := map[string]string{"ipam": mode, "ipv4-range": "auto", "ipv6-range": "auto", "enable-endpoint-routes": "false"}
	if endpointRoutes {
		keys["enable-endpoint-routes"] = "true"
	}
	return keys
}
