//go:build linux

package main

import (
	"context"
	"slices"
)

// dualValues let agents have IPv6 beside IPv4.
const dualValues = "cilium-values-dual-stack.yaml"

// families is how many families of addresses pods have.
func (e *env) families() int {
	if slices.Contains(e.options.Values, dualValues) {
		return 2
	}
	return 1
}

// dual is the life of a node whose pods have an address of each family.
func dual(ctx context.Context, e *env) error {
	e.options.Values = []string{dualValues}
	n, probe, err := e.startIPv6(ctx, true)
	if err != nil {
		return err
	}
	e.check(len(probe.Addresses) == 2, "addresses of a pod", "%v", probe.Addresses)
	return e.life(ctx, n, probe)
}

// ipv6 is the life of a node whose agent has IPv6 alone. Its tunnel is carried
// by IPv6, and so is its Node's address; only the API server has IPv4.
func ipv6(ctx context.Context, e *env) error {
	e.options.Values = []string{"cilium-values-ipv6.yaml"}
	n, probe, err := e.startIPv6(ctx, false)
	if err != nil {
		return err
	}
	e.check(len(probe.Addresses) == 1 && probe.Address.Is6(), "addresses of a pod", "%v", probe.Addresses)
	return e.life(ctx, n, probe)
}

// native is the life of a node of two families whose blocks the others know by
// routes over the network they share, as the examples have it.
func native(ctx context.Context, e *env) error {
	e.options.Native = true
	e.options.Values = []string{dualValues}
	n, probe, err := e.startIPv6(ctx, true)
	if err != nil {
		return err
	}
	return e.life(ctx, n, probe)
}
