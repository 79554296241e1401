//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/cilium-pool/cilium-pool-operator/test/cluster/page"
)

// A page with several procedures names each block in a comment right above it: <!-- move: NAME
// --> for commands, <!-- file: NAME --> for a file that they use.
var bareFile = regexp.MustCompile(`-f ([a-z-]+\.yaml)\b`)

// markedPage is a page with named blocks to run.
type markedPage struct {
	*bed
	path   string
	blocks map[string]string
	// dir is the folder of the page's files, and of the reader's own.
	dir string
}

// readMarked reads a page and writes its files.
func (b *bed) readMarked(path string) (markedPage, error) {
	p := markedPage{bed: b, path: path, dir: filepath.Join(b.options.dir, "files")}
	text, err := os.ReadFile(filepath.Join(b.options.repository, path))
	if err != nil {
		return p, err
	}
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		return p, err
	}
	p.blocks = page.Marked(string(text), "move")
	for name, content := range page.Marked(string(text), "file") {
		if err := p.write(name, content); err != nil {
			return p, err
		}
	}
	return p, nil
}

func (p markedPage) write(name, content string) error {
	return os.WriteFile(filepath.Join(p.dir, name), []byte(content), 0o644)
}

// commands returns the commands of a block, with words replaced as readers do.
func (p markedPage) commands(block string, replace ...string) ([]string, error) {
	if p.blocks[block] == "" {
		return nil, fmt.Errorf("%s has no commands below <!-- move: %s -->", p.path, block)
	}
	var commands []string
	for _, line := range commandLines(strings.NewReplacer(replace...).Replace(p.blocks[block])) {
		line, err := p.force(line)
		if err != nil {
			return nil, err
		}
		commands = append(commands, bareFile.ReplaceAllString(line, "-f "+p.dir+"/$1"))
	}
	return commands, nil
}
