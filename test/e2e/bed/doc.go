//go:build linux

// Package bed is a small cluster of real Cilium on one machine, without
// containers: the control plane of test/controlplane, and nodes that are a
// network and a mount namespace each, on one bridge, with a real cilium-agent.
//
// The process that uses it runs in namespaces of its own (Sandbox): of
// processes, mounts and networks. When it ends, in whatever way, the kernel
// ends all the rest and nothing is left behind.
//
// Agents run with the configuration that Cilium's own chart makes of the values
// in examples/, less what values.yaml here turns off.
//
// The bed plays kubelet: it makes Pod objects, calls the real cilium-cni, and
// writes the status a kubelet would, for the agents' own pods too. It never
// writes a CiliumNode.
package bed
