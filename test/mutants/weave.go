package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// planted is the environment variable that names the mutant to run.
const planted = "MUTANT"

// weave writes to dir the files of one program with all mutants, with one of them active at a time.
// It returns Go's overlay file.
//
// A function that mutants change is written once unchanged, once for each mutant,
// and once more under its own name, to choose between them:
//
//	func (l *Ledger) InCache(a0 types.UID) bool {
//		switch mutantPlanted {
//		case "own-write-counts": return l.InCache__own_write_counts(a0)
//		}
//		return l.InCache__original(a0)
//	}
func weave(root, dir string, c *code, mutants []mutant) (string, error) {
	variants := map[*function][]mutant{}
	for _, m := range mutants {
		for f := range m.functions {
			variants[f] = append(variants[f], m)
		}
	}
	byFile := map[string][]*function{}
	for f := range variants {
		byFile[f.file] = append(byFile[f.file], f)
	}
	replace := map[string]string{}
	add := func(file, src string) error {
		at, err := filepath.Abs(filepath.Join(root, file))
		if err != nil {
			return err
		}
		replace[at] = filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		return os.WriteFile(replace[at], []byte(src), 0o600)
	}
	for file, changed := range byFile {
		src, err := weaveFile(file, c.sources[file], changed, variants)
		if err != nil {
			return "", err
		}
		chooser := fmt.Sprintf("package %s\n\nimport \"os\"\n\nvar mutantPlanted = os.Getenv(%q)\n", changed[0].pkg, planted)
		if err := add(file, src); err != nil {
			return "", err
		}
		if err := add(filepath.Join(filepath.Dir(file), "mutant_planted.go"), chooser); err != nil {
			return "", err
		}
	}
	raw, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, raw, 0o600)
}

// weaveFile returns a file with all variants of its functions in it.
func weaveFile(file, src string, changed []*function, variants map[*function][]mutant) (string, error) {
	// Start at the end of the file, so that earlier offsets stay valid.
	slices.SortFunc(changed, func(a, b *function) int { return b.offset - a.offset })
	var more []string
	for _, f := range changed {
		var names []string
		for _, m := range variants[f] {
			names = append(names, m.Name)
			more = append(more, renamed(m.functions[f], f, variant(f, m.Name)))
		}
		slices.Sort(names)
		more = append(more, f.chooser(names))
		src = src[:f.offset] + renamed(f.text, f, variant(f, "original")) + src[f.offset+len(f.text):]
	}
	slices.Sort(more)
	src += "\n" + strings.Join(more, "\n\n") + "\n"
	if _, err := parser.ParseFile(token.NewFileSet(), file, src, parser.SkipObjectResolution); err != nil {
		return "", fmt.Errorf("what comes out is not Go: %w", err)
	}
	return src, nil
}

// variant names a variant of a function. It is not exported, as tests that look at the exported
// methods of a type know of no variants.
func variant(f *function, name string) string {
	return "variant_" + f.decl.Name.Name + "__" + strings.ReplaceAll(name, "-", "_")
}

// renamed returns a function's text, possibly with a fault in it, under another name.
func renamed(text string, f *function, name string) string {
	at := f.decl.Name.Pos() - f.decl.Pos()
	return text[:at] + name + text[int(at)+len(f.decl.Name.Name):]
}

// chooser returns the function that calls the active variant, or else the original.
func (f *function) chooser(names []string) string {
	t := f.decl.Type
	var params, args, results, types string
	on, recv := "", ""
	if f.decl.Recv != nil {
		on, recv = "recv.", "(recv "+f.slice(f.decl.Recv.List[0].Type)+") "
	}
	n := 0
	for _, field := range t.Params.List {
		for range max(1, len(field.Names)) {
			params += fmt.Sprintf("a%d %s, ", n, f.slice(field.Type))
			args += fmt.Sprintf("a%d", n)
			if _, variadic := field.Type.(*ast.Ellipsis); variadic {
				args += "..."
			}
			args += ", "
			n++
		}
	}
	if t.TypeParams != nil {
		types = f.slice(t.TypeParams)
	}
	giveBack, end := "", "; return"
	if t.Results != nil {
		results, giveBack, end = " "+f.slice(t.Results), "return ", ""
	}
	body := ""
	for _, name := range names {
		body += fmt.Sprintf("\tcase %q:\n\t\t%s%s%s(%s)%s\n", name, giveBack, on, variant(f, name), args, end)
	}
	return fmt.Sprintf("func %s%s%s(%s)%s {\n\tswitch mutantPlanted {\n%s\t}\n\t%s%s%s(%s)\n}",
		recv, f.decl.Name.Name, types, params, results, body, giveBack, on, variant(f, "original"), args)
}
