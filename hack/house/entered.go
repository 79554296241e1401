package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// enteredBy counts the files and functions of pkg that a test enters.
func enteredBy(pkg, test string) (files, functions int, err error) {
	dir, err := runCovered(pkg, "^"+test+"$")
	defer func() { _ = os.RemoveAll(dir) }()
	if err != nil {
		return 0, 0, err
	}
	entered, err := functionsIn(filepath.Join(dir, "test"))
	return filesOf(entered), len(entered), err
}

// drainFiles counts the files of pkg that one command "kubectl cilium-pool drain" enters: the
// command of drain.txtar that enters most. It leaves out the functions that every command
// enters.
func drainFiles() (int, error) {
	dir, err := runCovered("./test/plugin", "^TestScripts$/^drain$") // needs make controlplane
	defer func() { _ = os.RemoveAll(dir) }()
	if err != nil {
		return 0, err
	}
	meta, _ := filepath.Glob(filepath.Join(dir, "programs", "covmeta.*"))
	counters, _ := filepath.Glob(filepath.Join(dir, "programs", "covcounters.*")) // a file for each command
	var runs [][]string
	times := map[string]int{}
	for _, file := range counters {
		one := filepath.Join(dir, "command", filepath.Base(file))
		err := os.MkdirAll(one, 0o755)
		for _, f := range append(meta, file) {
			err = errors.Join(err, os.Link(f, filepath.Join(one, filepath.Base(f))))
		}
		entered, coverErr := functionsIn(one)
		if err := errors.Join(err, coverErr); err != nil {
			return 0, err
		}
		if !slices.ContainsFunc(entered, func(f string) bool { return strings.Contains(f, "/clusterview/") }) {
			continue // a wrong command line
		}
		for _, f := range entered {
			times[f]++
		}
		runs = append(runs, entered)
	}
	most := 0
	for _, entered := range runs {
		own := slices.DeleteFunc(entered, func(f string) bool { return times[f] == len(runs) })
		if slices.ContainsFunc(own, func(f string) bool { return strings.Contains(f, "/plugin/drain/") }) {
			most = max(most, filesOf(own))
		}
	}
	return most, nil
}

// runCovered runs a test and returns a folder with the code that was entered: by the test in
// "test", by the programs that it started in "programs".
func runCovered(pkg, test string) (string, error) {
	dir, err := os.MkdirTemp("", "house-")
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, "program")
	build := exec.Command("go", "test", "-c", "-cover", "-coverpkg=./pkg/...", "-o", program, pkg)
	run := exec.Command(program, "-test.run", test, "-test.gocoverdir", filepath.Join(dir, "test"))
	run.Dir, run.Env = pkg, append(os.Environ(), "GOCOVERDIR="+filepath.Join(dir, "programs"))
	err = errors.Join(os.Mkdir(filepath.Join(dir, "test"), 0o755), os.Mkdir(filepath.Join(dir, "programs"), 0o755))
	for _, cmd := range []*exec.Cmd{build, run} {
		if err == nil {
			var out []byte
			if out, err = cmd.CombinedOutput(); err != nil {
				err = fmt.Errorf("run %s: %w\n%s", cmd, err, out)
			}
		}
	}
	return dir, err
}

// functionsIn returns the functions that coverage data shows as entered, each with its file.
func functionsIn(dir string) ([]string, error) {
	out, err := exec.Command("go", "tool", "covdata", "func", "-i="+dir).Output()
	if err != nil {
		return nil, fmt.Errorf("read coverage: %w", err)
	}
	var entered []string
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) == 3 && strings.Contains(f[0], ".go:") && f[2] != "0.0%" {
			entered = append(entered, f[0]+" "+f[1])
		}
	}
	return entered, nil
}

func filesOf(functions []string) int {
	files := map[string]bool{}
	for _, f := range functions {
		file, _, _ := strings.Cut(f, ":")
		files[file] = true
	}
	return len(files)
}
