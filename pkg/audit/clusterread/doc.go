// Package clusterread reads snapshots of a cluster for package audit, and reads again to
// confirm findings. It only reads.
package clusterread
