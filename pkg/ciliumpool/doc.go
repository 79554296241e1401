// Package ciliumpool is the only code that reads or writes CiliumPodIPPools, the
// objects by which agents in multi-pool mode know which pools there are. It turns
// one into plain values, says what one that the operator keeps should be, and
// which of them a pod asks for.
//
// It never talks to Kubernetes. The kind is pkg/k8s/apis/cilium.io/v2alpha1 of
// Cilium v1.20.1.
package ciliumpool
