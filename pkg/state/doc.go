// Package state holds everything known about the cluster: blocks, CiliumNodes,
// pools, pods and agents, as watches or lists show them, and this process's own
// writes that no watch has shown yet. The operator, the kubectl plugin
// and the audit derive the input of expand.Decide from it with the same code.
//
// It never calls the API server, keeps no clock, and makes no decision.
package state
