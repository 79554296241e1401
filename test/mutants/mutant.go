package main

import (
	"errors"
	"fmt"
	"maps"
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
	// Key marks the guards that everything depends on. They measure the simulator.
	Key bool `json:"key"`
	// Protocol marks the faults of the address protocol: claim, publish, handshake, cooldown
	// and fence. They measure the mapping of the code onto the model.
	Protocol bool `json:"protocol"`
	// Rule is the number of the rule (docs/contributing/architecture.md) that the fault breaks, or
	// demand (nodes get the addresses they need), idle (blocks are returned), or asked (settings
	// are obeyed).
	Rule string `json:"rule"`
	// Fault describes the fault in one line.
	Fault string `json:"fault"`

	edit
	// Also are further edits, for a fault that two guards prevent.
	Also []edit `json:"also"`

	functions map[*function]string // with the fault in them
	first     *function            // of the first edit
}

// edit replaces a text that occurs exactly once in a function. Any white space
// between words matches any other. The function is found by its name, so it may move
// to another file or package.
type edit struct {
	// In is Function or Type.Method, prefixed with the package's name if several packages have
	// such a function. A further edit without it applies to the mutant's own function.
	In  string `json:"in"`
	Old string `json:"old"`
	New string `json:"new"`
}

// readMutants reads all mutants in test/mutants/list, and finds their places in the code.
func readMutants(root string, c *code) ([]mutant, error) {
	files, err := filepath.Glob(filepath.Join(root, "test", "mutants", "list", "*.yaml"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, errors.New("test/mutants/list is not here: run this from the root of the repository")
	}
	slices.Sort(files)
	var all []mutant
	var wrong []error
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var some []mutant
		if err := yaml.UnmarshalStrict(raw, &some); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for i := range some {
			if err := some[i].plant(c); err != nil {
				wrong = append(wrong, fmt.Errorf("%s: mutant %s: %w", file, some[i].Name, err))
			}
		}
		all = append(all, some...)
	}
	return all, errors.Join(wrong...)
}

// plant records the functions that the mutant changes, with the fault in them.
func (m *mutant) plant(c *code) error {
	m.functions = map[*function]string{}
	for _, e := range append([]edit{m.edit}, m.Also...) {
		if e.In == "" {
			e.In = m.In
		}
		f, err := c.find(e.In)
		if err != nil {
			return err
		}
		if m.first == nil {
			m.first = f
		}
		text, ok := m.functions[f]
		if !ok {
			text = f.text
		}
		if m.functions[f], err = e.apply(text); err != nil {
			return err
		}
	}
	return nil
}

func (e edit) apply(text string) (string, error) {
	at := e.pattern().FindAllStringIndex(text, -1)
	if len(at) != 1 {
		return "", fmt.Errorf("%s has the text to replace %d times, not once: %s", e.In, len(at), e.Old)
	}
	return text[:at[0][0]] + e.New + text[at[0][1]:], nil
}

func (e edit) pattern() *regexp.Regexp {
	words := strings.Fields(e.Old)
	for i := range words {
		words[i] = regexp.QuoteMeta(words[i])
	}
	return regexp.MustCompile(strings.Join(words, `\s+`))
}

// files returns the files that the mutant changes.
func (m mutant) files() []string {
	files := map[string]bool{}
	for f := range m.functions {
		files[f.file] = true
	}
	return slices.Sorted(maps.Keys(files))
}

// pkg returns the package of the first edit, as go test takes it.
func (m mutant) pkg() string { return "./" + filepath.ToSlash(filepath.Dir(m.first.file)) }
