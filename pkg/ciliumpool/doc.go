// Package ciliumpool is the only code that reads or writes CiliumPodIPPools, which define the pools
// for agents in multi-pool mode. It turns them into plain values, derives the pools that the
// operator maintains, and determines the pool that a pod requests.
//
// It never talks to Kubernetes. The kind is pkg/k8s/apis/cilium.io/v2alpha1 of
// Cilium v1.20.1.
package ciliumpool
