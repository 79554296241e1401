// Package claims checks the history of every block with porcupine: is there an order of all
// requests, each between its arrival at the API server and its response, in which no block is
// claimed, published, withdrawn or released by a node that may not do so?
//
// The history comes from the API server's audit log, so it has the requests of all operators,
// agents and users, including those that were refused and those whose outcome is unknown.
//
// Only this package judges requests rather than the resulting versions: it shares neither code
// nor exemptions with the checker that reads versions.
package claims
