//go:build linux

// Package bed runs a small cluster of real Cilium on one machine, without containers: the
// control plane of test/controlplane, and nodes that each consist of a network and a mount
// namespace, on one bridge, with a real cilium-agent.
//
// The process that uses it runs in its own process, mount and network namespaces (Sandbox).
// However it ends, the kernel then ends all other processes.
//
// Agents run with the configuration that Cilium's own chart renders from the values in
// examples/. values.yaml here turns features off.
//
// The bed acts as kubelet: it creates Pod objects, calls the real cilium-cni, and writes the
// status a kubelet would, for the agents' own pods too. It never writes a CiliumNode.
package bed
