//go:build linux

package main

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

const (
	startPage = "docs/start.md"
	// startSection is where the page tells how Cilium and the operator are installed
	// together.
	startSection = "## On kind"
)

var codeBlock = regexp.MustCompile("(?ms)^ *```sh\n(.*?)^ *```")

// installing are the beginnings of commands that install something.
var installing = []string{"helm install ", "helm upgrade ", "kubectl apply "}

// installCommands are the documented commands, forced into what this machine can do.
func (b *bed) installCommands() ([]string, error) {
	page, err := os.ReadFile(filepath.Join(b.options.repository, startPage))
	if err != nil {
		return nil, err
	}
	documented := documentedCommands(string(page), startSection)
	if len(documented) == 0 {
		return nil, errors.New(startPage + " has no command that installs anything below " + startSection)
	}
	for i, line := range documented {
		if documented[i], err = b.force(line); err != nil {
			return nil, err
		}
	}
	return documented, nil
}

// documentedCommands gives the commands that install, each on one line, of a
// section of a page.
func documentedCommands(page, section string) []string {
	_, text, found := strings.Cut(page, "\n"+section+"\n")
	if !found {
		return nil
	}
	text, _, _ = strings.Cut(text, "\n## ")
	var commands []string
	for _, block := range codeBlock.FindAllStringSubmatch(text, -1) {
		joined := regexp.MustCompile(`\s*\\\n\s*`).ReplaceAllString(block[1], " ")
		for line := range strings.Lines(joined) {
			line = strings.TrimSpace(line)
			for _, beginning := range installing {
				if strings.HasPrefix(line, beginning) {
					commands = append(commands, line)
				}
			}
		}
	}
	return commands
}
