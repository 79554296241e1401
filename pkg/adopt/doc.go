// Package adopt plans the blocks that take over another IPAM's addresses on nodes, and reports
// obstacles and each node's progress.
//
// It never talks to Kubernetes, reads a clock, or logs: plain values in, a plan of blocks and
// findings out. Same input in any order, same plan.
package adopt
