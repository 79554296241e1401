// Package invariant checks, on a running cluster and from outside, the rules
// that the operator promises to hold at every instant.
//
// It watches every version of every Node, Pod, CiliumNode, PodIPBlock and PodIPPool on a connection
// of its own, puts them into the API server's one order of storage (resourceVersions of one etcd
// are comparable across kinds), and judges each step on the state of all objects at that step. It
// never writes. It lags a moment behind: see Checker.Sync.
//
// It does not see writes without a change, which leave no version, and it cannot know the writer of
// a version: a test's own writes against the rules are reported too, unless the test says so: see
// Checker.Exempt.
//
// The rules, by number:
//
//  1. No IP stands in two nodes' pools. A block's object exists, for that node and not cooling
//     down, before its first IP is published, and goes only after its last IP left the pool and the
//     cooldown passed. Of two blocks that overlap no address of the later one is published. (A late
//     patch may publish a block that began to cool down meanwhile, while its CiliumNode has not
//     changed since.)
//  2. No IP leaves a pool while anything says that it is used, nor before its agent has answered
//     ready-for-release, save when its Node is gone, or the IP is marked and of a family that its
//     agent does not run, be it named as an address of the agent's own from when it ran it. The
//     CiliumNode of a Node that is there is not deleted while it has such an IP. An agent's
//     addresses are in its pool. No IP is published while its release entry stands, because its
//     agent would not use it.
//  3. podCIDRs lists the node's blocks with an IP in the pool, each once, in stable order, and
//     otherwise only foreign entries. (A patch that was decided on before a block was made of
//     published addresses does not list it.)
//  7. Foreign entries of pools and podCIDRs are never removed.
//  8. At rest there are no writes (Checker.Quiet).
//
// Only its own tests find an overlooked violation of a rule; every suite with an operator depends
// on it.
package invariant
