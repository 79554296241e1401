// Package truth holds test/agent to Cilium's own allocator: cilium-ipam, a
// program in a module of its own, runs pkg/ipam of v1.20.1 in crd mode for one
// node; test/agent's Session runs beside it for another. Both get the same
// random edits of their CiliumNode on a real API server and the same requests,
// and must give the same answers.
//
// In multi-pool and kubernetes mode cilium-ipam runs Cilium's allocator against a
// CiliumNode or Node of the test, and test/agent's models run beside it.
//
// Only it finds a stand-in agent that differs from Cilium, which every other suite
// would then believe.
package truth
