// Package truth compares test/agent with Cilium's own allocator: cilium-ipam, a program with Cilium's
// dependencies, runs pkg/ipam of v1.20.2 in crd mode for one node; test/agent's Session runs for
// another one. Both get the same random edits of their CiliumNode on a real API server and the same
// requests, and must answer alike. One process of Cilium can have one node in crd mode, so its
// allocator cannot take the place of test/agent's.
//
// In multi-pool and kubernetes mode cilium-ipam runs Cilium's allocator against a CiliumNode
// or Node of the test, and test/agent's models run along with it.
//
// Only this suite finds a simulated agent that differs from Cilium, which every other suite
// would then believe.
package truth
