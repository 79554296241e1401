package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// builds is where operators other than that of this checkout are kept.
func builds() string { return filepath.Join(harness.Root(), ".cache", "chaos") }

// buildOperator builds the operator of a source tree, as make builds it, with some of its
// files replaced or added. It returns the program.
func buildOperator(ctx context.Context, source, name string, files map[string][]byte) (string, error) {
	dir := filepath.Join(builds(), name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	replace := map[string]string{}
	for file, text := range files {
		at := filepath.Join(dir, filepath.Base(file))
		if err := os.WriteFile(at, text, 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(source, file)] = at
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	listing, program := filepath.Join(dir, "overlay.json"), filepath.Join(dir, operatorBinary)
	if err := os.WriteFile(listing, overlay, 0o600); err != nil {
		return "", err
	}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-overlay", listing, "-o", program, "./cmd/"+operatorBinary)
	build.Dir, build.Env = source, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the operator %s: %w\n%s", name, err, out)
	}
	return program, nil
}

// edited returns a file of the checkout with one text in it replaced, which is there once.
func edited(file, old, text string) ([]byte, error) {
	source, err := os.ReadFile(filepath.Join(harness.Root(), file))
	if err != nil {
		return nil, err
	}
	if n := bytes.Count(source, []byte(old)); n != 1 {
		return nil, fmt.Errorf("%q is %d times in %s", old, n, file)
	}
	return bytes.ReplaceAll(source, []byte(old), []byte(text)), nil
}

// checkOut puts the sources of a commit into a folder, unless they are there.
func checkOut(ctx context.Context, commit string) (string, error) {
	dir := filepath.Join(builds(), commit+"-source")
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	next := dir + ".next"
	if err := os.RemoveAll(next); err != nil {
		return "", err
	}
	if err := os.MkdirAll(next, 0o755); err != nil {
		return "", err
	}
	tree := exec.CommandContext(ctx, "bash", "-c", `set -o pipefail; git archive "$0" cmd pkg go.mod go.sum | tar -x -C "$1"`, commit, next)
	tree.Dir = harness.Root()
	if out, err := tree.CombinedOutput(); err != nil {
		return "", fmt.Errorf("read commit %s, which a shallow clone lacks: %w\n%s", commit, err, out)
	}
	return dir, os.Rename(next, dir)
}
