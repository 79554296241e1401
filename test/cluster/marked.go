//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// A page with several procedures gives each block a name, in a comment right above
// it: <!-- move: NAME --> for commands, <!-- file: NAME --> for a file of theirs.
var (
	markedBlock = regexp.MustCompile("(?ms)^<!-- (move|file): (\\S+) -->\n```\\w+\n(.*?)^```$")
	bareFile    = regexp.MustCompile(`-f ([a-z-]+\.yaml)\b`)
)

// markedPage is a page whose named blocks run.
type markedPage struct {
	*bed
	path   string
	blocks map[string]string
	// dir has the files of the page, and those that it leaves to the reader.
	dir string
}

func markedBlocks(page string) (commands, files map[string]string) {
	commands, files = map[string]string{}, map[string]string{}
	for _, m := range markedBlock.FindAllStringSubmatch(page, -1) {
		if m[1] == "file" {
			files[m[2]] = m[3]
		} else {
			commands[m[2]] = m[3]
		}
	}
	return commands, files
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
	var files map[string]string
	p.blocks, files = markedBlocks(string(text))
	for name, content := range files {
		if err := p.write(name, content); err != nil {
			return p, err
		}
	}
	return p, nil
}

func (p markedPage) write(name, content string) error {
	return os.WriteFile(filepath.Join(p.dir, name), []byte(content), 0o644)
}

// commands of a block, with what readers put in the place of words.
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
