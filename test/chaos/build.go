package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// builds returns the folder of operators built from other sources than this checkout.
func builds() string { return filepath.Join(harness.Root(), ".cache", "chaos") }

// plant builds the operators with the planted fault, if any.
func (c *chaos) plant(ctx context.Context) error {
	if c.Overlay == "" {
		return nil
	}
	program, err := c.buildOperator(ctx, harness.Root(), "planted-"+c.scenario.name, nil)
	for _, o := range c.operator {
		o.args[0], o.env = program, append(o.env, "MUTANT="+c.Mutant)
	}
	return err
}

// buildOperator calls buildProgram for the operator.
func (c *chaos) buildOperator(ctx context.Context, source, name string, files map[string][]byte) (string, error) {
	return c.buildProgram(ctx, operatorBinary, source, name, files)
}

// buildProgram builds a program from a source tree, as make builds it, with some of its files
// replaced or added. For this checkout it also applies the overlay. It returns the path of the
// program.
func (c *chaos) buildProgram(ctx context.Context, command, source, name string, files map[string][]byte) (string, error) {
	dir := filepath.Join(builds(), name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	replace, err := c.planted(source)
	if err != nil {
		return "", err
	}
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
	listing, program := filepath.Join(dir, "overlay.json"), filepath.Join(dir, command)
	if err := os.WriteFile(listing, overlay, 0o600); err != nil {
		return "", err
	}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-overlay", listing, "-o", program, "./cmd/"+command)
	build.Dir, build.Env = source, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s of %s: %w\n%s", command, name, err, out)
	}
	return program, nil
}

// planted returns the files of a source tree that the overlay replaces, with their
// replacements.
func (c *chaos) planted(source string) (map[string]string, error) {
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	if c.Overlay == "" || source != harness.Root() {
		return overlay.Replace, nil
	}
	text, err := os.ReadFile(c.Overlay)
	if err != nil {
		return nil, err
	}
	err = json.Unmarshal(text, &overlay)
	return overlay.Replace, err
}

// edited returns a file of the checkout with one text replaced, which must occur exactly once.
func (c *chaos) edited(file, old, text string) ([]byte, error) {
	replace, err := c.planted(harness.Root())
	if err != nil {
		return nil, err
	}
	at := filepath.Join(harness.Root(), file)
	source, err := os.ReadFile(cmp.Or(replace[at], at))
	if err != nil {
		return nil, err
	}
	if n := bytes.Count(source, []byte(old)); n != 1 {
		return nil, fmt.Errorf("%q is %d times in %s", old, n, file)
	}
	return bytes.ReplaceAll(source, []byte(old), []byte(text)), nil
}

// checkOut writes the sources of a commit into a folder, unless they are already there.
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
