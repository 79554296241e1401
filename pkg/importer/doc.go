// Package importer turns other sources of pod addresses (Calico's IPPools, Cilium's pools and
// settings, Kubernetes' node CIDRs) into PodIPPools. For each setting that it could not carry over,
// it names the object, the field, the reason and the remedy.
//
// It is pure: bytes or objects in, pools and remarks out. It neither reads nor changes a cluster.
package importer
