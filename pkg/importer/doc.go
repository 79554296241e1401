// Package importer turns what says where pod addresses come from elsewhere
// (Calico's IPPools, Cilium's pools and settings, Kubernetes' node CIDRs) into
// PodIPPools, and says of everything that it could not carry over which field of
// which object that was, why, and what to do.
//
// It is pure: bytes or objects in, pools and remarks out. It reads no cluster
// and applies nothing.
package importer
