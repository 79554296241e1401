//go:build linux

package main

import (
	"context"
	"slices"
)

// dualValues enable IPv6 in addition to IPv4.
const dualValues = "cilium-values-dual-stack.yaml"

// families returns how many address families pods have.
func (e *env) families() int {
	if slices.Contains(e.options.Values, dualValues) {
		return 2
	}
	return 1
}

// dual runs life on a node whose pods have an address in each family.
func dual(ctx context.Context, e *env) error {
	e.options.Values = []string{dualValues}
	n, probe, err := e.startIPv6(ctx, true)
	if err != nil {
		return err
	}
	e.check(len(probe.Addresses) == 2, "addresses of a pod", "%v", probe.Addresses)
	return e.life(ctx, n, probe)
}

// ipv6 runs life on a node whose agent runs IPv6 only. The tunnel runs over IPv6, and the
// Node's address is IPv6; only the API server has IPv4.
func ipv6(ctx context.Context, e *env) error {
	e.options.Values = []string{"cilium-values-ipv6.yaml"}
	n, probe, err := e.startIPv6(ctx, false)
	if err != nil {
		return err
	}
	e.check(len(probe.Addresses) == 1 && probe.Address.Is6(), "addresses of a pod", "%v", probe.Addresses)
	return e.life(ctx, n, probe)
}

// native runs life on a dual-stack node with native routing: the other nodes reach its
// blocks by routes over the network they share, as in the examples.
func native(ctx context.Context, e *env) error {
	e.options.Native = true
	e.options.Values = []string{dualValues}
	n, probe, err := e.startIPv6(ctx, true)
	if err != nil {
		return err
	}
	return e.life(ctx, n, probe)
}
