// Package adopt plans the blocks that take over what another IPAM has given to nodes,
// and reports what stands in the way, and how far a node has come.
//
// It never talks to Kubernetes, reads a clock, or logs: plain values in, a plan of
// blocks and findings out. Same input, same plan, in whatever order it comes.
package adopt
