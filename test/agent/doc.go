// Package agent stands in for cilium-agent: thousands fit in one process, each
// with its own CiliumNode on a real API server.
//
// [Store] makes the decisions in crd IPAM mode, without goroutines: it follows
// cilium/pkg/ipam/crd.go line by line, with the lines cited. In the modes with whole blocks,
// packages multipool and hostscope take its place. [Agent] is a thin shell around it: start, restore, report,
// restart. [Hub] is the one watch all agents share. [Kubelet] runs pods on them.
//
// Left out: the ingress address, unreachable routes, the end of an ADD that was not completed
// within ten minutes, the queue of DELs that came while the agent was down (they fail and are
// retried), and the watch of the Node.
//
// All file:line references are to github.com/cilium/cilium v1.20.1; file names
// without a folder are in pkg/ipam. Package test/truth compares Store with Cilium's
// own code.
//
// Only its own tests cover the shell around Store, which every suite with agents
// depends on: starts, restores, pods, a CiliumNode that is deleted.
package agent
