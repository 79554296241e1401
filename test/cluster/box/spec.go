//go:build linux

// Package box runs programs in namespaces of their own, as a container runtime
// would, and ends them without a trace.
//
// A box has a first process (this program again) that supervises the box's
// services and reaps what they leave. Killing it ends everything in the box: the
// kernel takes processes, mounts and network devices down with the namespaces.
// What is left, folders of cgroups and the pid file, Kill removes. Both are found
// by name alone, so a later process can clean up after one that was killed.
//
// The package knows nothing of Kubernetes.
package box

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Spec says what runs in a box and what it sees of the machine.
type Spec struct {
	// Name of the box, its hostname and its folder of cgroups.
	Name string
	// Disk, if given, makes the box a machine of its own: it gets its own /run,
	// /sys, cgroups and BPF file system, and private copies of the folders that
	// a node writes to, which are kept in Disk. Empty: it sees the machine's files.
	Disk string
	// Services run in this order, and again after they end.
	Services []Service
	// ForwardTo is an address in the box to which connections of the listener
	// given to Start go. Empty: none.
	ForwardTo string
	// Leashed boxes end with the process that started them.
	Leashed bool
	// Programs is a folder in which services find programs before those of the
	// machine.
	Programs string
	// Hold is the folder of files that keep a service of the same name stopped.
	Hold string
}

// Service is a program of a box.
type Service struct {
	Name string
	Argv []string
	Log  string
	// Socket is waited for before the next service starts. Empty: not waited.
	Socket string
}

// State is the folder of pid files and specs of one cluster's boxes.
type State struct {
	Dir string
	// Group is the name of the folder of cgroups that holds those of all boxes.
	Group string
}

func (s State) specFile(name string) string { return filepath.Join(s.Dir, name+".json") }
func (s State) pidFile(name string) string  { return filepath.Join(s.Dir, name+".pid") }

func (s State) writeSpec(spec Spec) error {
	data, err := json.MarshalIndent(spec, "", "  ")
	if err != nil {
		return fmt.Errorf("write what runs in %s: %w", spec.Name, err)
	}
	return os.WriteFile(s.specFile(spec.Name), data, 0o600)
}

func readSpec(path string) (Spec, error) {
	var spec Spec
	data, err := os.ReadFile(path)
	if err != nil {
		return spec, err
	}
	return spec, json.Unmarshal(data, &spec)
}
