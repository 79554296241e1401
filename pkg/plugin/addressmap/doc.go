// Package addressmap draws the address plan of a cluster: each pool's CIDRs as a map with a cell
// per block. It owns the look of the map, as an SVG and as a page that a browser shows live.
//
// It never talks to Kubernetes: its input is a Map.
package addressmap
