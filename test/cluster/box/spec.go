//go:build linux

// Package box runs programs in their own namespaces, as a container runtime would, and ends
// them without a trace.
//
// A box has a first process (this program again) that supervises the box's services and reaps
// orphans. Killing it ends everything in the box: the kernel removes processes, mounts and
// network devices together with the namespaces. Kill removes the rest, cgroup folders and the
// pid file. Both are found by name alone, so a later process can clean up after a killed one.
//
// The package does not know Kubernetes.
package box

import (
	"path/filepath"
)

// Spec specifies a box's services and its view of the machine.
type Spec struct {
	// Name is the name of the box, which is also its hostname and the name of its cgroup
	// folders.
	Name string
	// Disk, if set, makes the box a machine of its own: it gets its own /run, /sys, cgroups
	// and BPF file system, and private copies of the folders that a node writes to, which are
	// kept in Disk. If empty, the box sees the machine's files.
	Disk string
	// Services are started in this order, and restarted when they exit.
	Services []Service
	// ForwardTo is an address in the box. It gets the connections to the listener passed to
	// Start. Empty: none.
	ForwardTo string
	// Leashed boxes end with the process that started them.
	Leashed bool
	// Programs is a folder that services search for programs before the machine's.
	Programs string
	// Hold is the folder of files that keep a service of the same name stopped.
	Hold string
}

// Service is a program that runs in a box.
type Service struct {
	Name string
	Argv []string
	Log  string
	// Socket must exist before the next service starts. Empty: no wait.
	Socket string
}

// State is the folder of pid files of one cluster's boxes.
type State struct {
	Dir string
	// Group is the name of the cgroup folder that holds all boxes' folders.
	Group string
}

func (s State) pidFile(name string) string { return filepath.Join(s.Dir, name+".pid") }
