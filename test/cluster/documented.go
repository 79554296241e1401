//go:build linux

package main

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/cilium-pool/cilium-pool-operator/test/cluster/page"
)

const (
	startPage = "docs/install.md"
	// The page marks the commands that install Cilium, the operator and pools.
	beginMark = "<!-- install: begin -->"
	endMark   = "<!-- install: end -->"
)

var continuation = regexp.MustCompile(`\s*\\\n\s*`)

// installCommands returns the documented commands, changed for this machine.
func (b *bed) installCommands() ([]string, error) {
	text, err := os.ReadFile(filepath.Join(b.options.repository, startPage))
	if err != nil {
		return nil, err
	}
	documented := documentedCommands(string(text))
	if len(documented) == 0 {
		return nil, errors.New(startPage + " has no commands between " + beginMark + " and " + endMark)
	}
	var commands []string
	for _, line := range documented {
		line, err := b.force(line)
		if err != nil {
			return nil, err
		}
		if line != "" {
			commands = append(commands, line)
		}
	}
	return commands, nil
}

// documentedCommands returns the marked commands of a page, each on one line.
func documentedCommands(text string) []string {
	_, text, _ = strings.Cut(text, beginMark)
	text, _, found := strings.Cut(text, endMark)
	if !found {
		return nil
	}
	var commands []string
	for _, code := range page.OfLanguage(text, "sh") {
		commands = append(commands, commandLines(code)...)
	}
	return commands
}

// commandLines returns the commands of a block, each on one line.
func commandLines(block string) []string {
	var commands []string
	for line := range strings.Lines(continuation.ReplaceAllString(block, " ")) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			commands = append(commands, line)
		}
	}
	return commands
}
