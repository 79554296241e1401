// Package live reads snapshots of a cluster for package audit, and looks again
// before it believes what it has found. It only lists.
package live
