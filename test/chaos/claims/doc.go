// Package claims checks the history of every block with porcupine: is there
// one order of all requests, each between its arrival at the API server and its
// answer, in which no block is claimed, published, taken back or given up by a
// node that may not?
//
// The history comes from the API server's audit log, so it has the requests of
// all operators, agents and people, those that were refused, and those of which
// nobody knows what became of them.
//
// Only it judges what was asked, and not what came of it: it shares neither code nor
// exemptions with the checker that reads versions.
package claims
