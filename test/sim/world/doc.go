// Package world is the operator's surroundings as one value without time or threads of its own: a
// small API server with resourceVersions and watches, operators that run the real code of
// pkg/controller, agents, pods, people, and a clock.
//
// No action happens by itself. [World.Enabled] lists the possible actions, and [World.Do] lets one
// of it happen: an operator's next call to the API server goes through, or is lost; a watch shows
// the next version; an agent reports; time passes. So a seeded random source or a list of actions
// can drive it, and the same actions lead to the same world.
//
// A [World] is the cluster, and its parts hold the state: the clock, the processes and the Lease,
// the workload, users, a migration, and the rules. The rules of package invariant judge stored
// objects. The rules here also know the operators' reads and the pods' real addresses.
//
// A reconcile is a coroutine that hands over at each call to the API server, so that anything can
// happen between two calls of one reconcile.
package world
