// Package agent stands in for cilium-agent: thousands fit in one process, each
// with its own CiliumNode on a real API server.
//
// [Store] is the part that decides in crd IPAM mode, without goroutines: what
// cilium/pkg/ipam/crd.go does, line by line, with the lines cited. In the modes
// in which agents are told whole blocks it is package multipool. [Agent] is a
// thin shell around it: start, restore, report, restart. [Hub] is the one
// watch all agents share. [Kubelet] runs pods on them.
//
// Left out: the ingress address, unreachable routes, the ten minutes after
// which an ADD that nobody completed is taken back, the queue of DELs that
// came while the agent was down (they fail and are tried again), and the watch
// of the Node ([Agent.SyncNode] takes its place).
//
// All file:line references are to github.com/cilium/cilium v1.20.1; file names
// without a folder are in pkg/ipam. Package test/truth holds Store to Cilium's
// own code.
//
// Its own tests alone find where the shell around Store is wrong, which every suite
// with agents stands on: starts, restores, pods, a CiliumNode that goes.
package agent
