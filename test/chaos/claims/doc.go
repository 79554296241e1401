// Package claims checks the history of every block with porcupine: is there one order
// of all requests, each between its arrival at the API server and its answer, in which
// no block is claimed, published, withdrawn or released by a node that may not?
//
// The history comes from the API server's audit log, so it has the requests of all
// operators, agents and users, including those that were refused and those whose
// outcome is unknown.
//
// Only it judges requests rather than resulting versions: it shares neither code nor
// exemptions with the checker that reads versions.
package claims
