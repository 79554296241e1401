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

// weave writes, in dir, what lets Go build with all mutants in one program, of
// which one at a time comes to life. It returns Go's overlay file.
//
// A function that mutants change is there once as it is, once for each of them,
// and once more, under its own name, to choose:
//
//	func (l *Ledger) Shown(a0 types.UID) bool {
//		switch mutantPlanted {
//		case "own-write-counts": return l.Shown__own_write_counts(a0)
//		}
//		return l.Shown__original(a0)
//	}
func weave(root, dir string, mutants []mutant) (string, error) {
	byFile := map[string][]mutant{}
	for _, m := range mutants {
		for _, part := range m.parts() {
			byFile[part.File] = append(byFile[part.File], part)
		}
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
	for file, some := range byFile {
		src, pkg, err := weaveFile(root, some)
		if err != nil {
			return "", err
		}
		chooser := fmt.Sprintf("package %s\n\nimport \"os\"\n\nvar mutantPlanted = os.Getenv(%q)\n", pkg, planted)
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

// function is a function's text, and where in it its parts are.
type function struct {
	text string
	decl *ast.FuncDecl
	from token.Pos // of the text
}

func (f function) slice(n ast.Node) string { return f.text[n.Pos()-f.from : n.End()-f.from] }

// functions are those of a file, by receiver and name.
func functions(name, src string) (*ast.File, map[string]function, error) {
	files := token.NewFileSet()
	tree, err := parser.ParseFile(files, name, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, nil, fmt.Errorf("what comes out is not Go: %w", err)
	}
	out := map[string]function{}
	for _, d := range tree.Decls {
		if decl, ok := d.(*ast.FuncDecl); ok {
			f := function{src[decl.Pos()-tree.FileStart : decl.End()-tree.FileStart], decl, decl.Pos()}
			key := decl.Name.Name
			if decl.Recv != nil {
				key = f.slice(decl.Recv.List[0].Type) + " " + key
			}
			out[key] = f
		}
	}
	return tree, out, nil
}

// weaveFile returns a file with all its mutants in it, and its package's name.
func weaveFile(root string, mutants []mutant) (src, pkg string, err error) {
	raw, err := os.ReadFile(filepath.Join(root, mutants[0].File))
	if err != nil {
		return "", "", err
	}
	tree, original, err := functions(mutants[0].File, string(raw))
	if err != nil {
		return "", "", err
	}
	variants := map[string][]string{} // names of mutants, by function
	var more []string
	for _, m := range mutants {
		changed, err := m.changed(root, original)
		if err != nil {
			return "", "", fmt.Errorf("mutant %s: %w", m.Name, err)
		}
		for key, f := range changed {
			variants[key] = append(variants[key], m.Name)
			more = append(more, f.renamed(variant(f.decl, m.Name)))
		}
	}
	src = string(raw)
	for key, names := range variants {
		f := original[key]
		at := strings.Index(src, f.text)
		src = src[:at] + f.renamed(variant(f.decl, "original")) + src[at+len(f.text):]
		slices.Sort(names)
		more = append(more, f.chooser(names))
	}
	slices.Sort(more)
	return src + "\n" + strings.Join(more, "\n\n") + "\n", tree.Name.Name, nil
}

// changed are the functions that the mutant changes, with the fault in them.
func (m mutant) changed(root string, original map[string]function) (map[string]function, error) {
	src, err := m.plant(root)
	if err != nil {
		return nil, err
	}
	_, mutated, err := functions(m.File, src)
	if err != nil {
		return nil, err
	}
	changed := map[string]function{}
	for key, f := range mutated {
		if f.text != original[key].text {
			changed[key] = f
		}
	}
	if len(changed) == 0 {
		return nil, fmt.Errorf("it changes no function of %s", m.File)
	}
	return changed, nil
}

func variant(decl *ast.FuncDecl, name string) string {
	return decl.Name.Name + "__" + strings.ReplaceAll(name, "-", "_")
}

// renamed is the function under another name.
func (f function) renamed(name string) string {
	at := f.decl.Name.Pos() - f.from
	return f.text[:at] + name + f.text[int(at)+len(f.decl.Name.Name):]
}

// chooser is the function that calls the variant that is planted, else the
// original.
func (f function) chooser(names []string) string {
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
		body += fmt.Sprintf("\tcase %q:\n\t\t%s%s%s(%s)%s\n", name, giveBack, on, variant(f.decl, name), args, end)
	}
	return fmt.Sprintf("func %s%s%s(%s)%s {\n\tswitch mutantPlanted {\n%s\t}\n\t%s%s%s(%s)\n}",
		recv, f.decl.Name.Name, types, params, results, body, giveBack, on, variant(f.decl, "original"), args)
}
