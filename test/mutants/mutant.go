package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// mutant is a fault that the operator's code could have.
type mutant struct {
	Name string `json:"name"`
	// Key says that the guard is one of those that everything rests on: what the
	// simulator is measured by.
	Key bool `json:"key"`
	// Rule is the number of the rule (docs/architecture.md) that the fault
	// breaks, or demand (nodes get what they need), idle (blocks come back),
	// or asked (what people set is kept to).
	Rule string `json:"rule"`
	// Fault says in a line what is wrong.
	Fault string `json:"fault"`
	// File is the mutated file, from the root of the repository.
	File string `json:"file"`

	edit
	// Also are further edits, of the same file or of another: of a fault that two
	// guards stand against.
	Also []edit `json:"also"`
}

// edit replaces a text that is there exactly once. Space between words is alike,
// be it a blank, a tab or a new line.
type edit struct {
	Old string `json:"old"`
	New string `json:"new"`
	// File is the edited file of a further edit, if not the mutant's.
	File string `json:"file"`
}

// parts are the mutant by file.
func (m mutant) parts() []mutant {
	first := m
	first.Also = nil
	parts := []mutant{first}
	for _, e := range m.Also {
		if e.File == "" {
			parts[0].Also = append(parts[0].Also, e)
			continue
		}
		other := m
		other.File, other.edit, other.Also = e.File, e, nil
		parts = append(parts, other)
	}
	return parts
}

// readMutants reads all of test/mutants/list.
func readMutants(root string) ([]mutant, error) {
	files, err := filepath.Glob(filepath.Join(root, "test", "mutants", "list", "*.yaml"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, errors.New("test/mutants/list is not here: run this from the root of the repository")
	}
	slices.Sort(files)
	var all []mutant
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var some []mutant
		if err := yaml.UnmarshalStrict(raw, &some); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, some...)
	}
	return all, nil
}

// plant returns the file of one part of a mutant, under root, with the fault in it.
func (m mutant) plant(root string) (string, error) {
	raw, err := os.ReadFile(filepath.Join(root, m.File))
	if err != nil {
		return "", err
	}
	src := string(raw)
	for _, e := range append([]edit{m.edit}, m.Also...) {
		at := e.pattern().FindAllStringIndex(src, -1)
		if len(at) != 1 {
			return "", fmt.Errorf("mutant %s: %s has the text to replace %d times, not once: %s", m.Name, m.File, len(at), e.Old)
		}
		src = src[:at[0][0]] + e.New + src[at[0][1]:]
	}
	return src, nil
}

func (e edit) pattern() *regexp.Regexp {
	words := strings.Fields(e.Old)
	for i := range words {
		words[i] = regexp.QuoteMeta(words[i])
	}
	return regexp.MustCompile(strings.Join(words, `\s+`))
}

// pkg is the mutated package, as go test takes it.
func (m mutant) pkg() string { return "./" + filepath.ToSlash(filepath.Dir(m.File)) }
