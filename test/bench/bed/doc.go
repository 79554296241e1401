// Package bed is what the benchmarks run on: worlds of Nodes, CiliumNodes, Pods and blocks
// kept on disk, a separate control plane for each run, processes whose CPU and memory are
// read from /proc, the API server's own counters, and a cheap watch that records when the
// expected objects have arrived.
//
// It measures and never judges.
package bed
