package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// code holds the product's functions by symbol: Function or Type.Method, also with the
// package's name as a prefix.
type code struct {
	bySymbol map[string][]*function
	sources  map[string]string // by file
}

// function is the text of a function, and the positions of it and its parts.
type function struct {
	file   string // relative to the root of the repository
	pkg    string
	symbol string
	text   string
	decl   *ast.FuncDecl
	offset int // of the text in the file
}

func (f *function) slice(n ast.Node) string {
	return f.text[n.Pos()-f.decl.Pos() : n.End()-f.decl.Pos()]
}

// readCode reads the code that mutants may change: all of pkg and cmd except tests.
func readCode(root string) (*code, error) {
	c := &code{map[string][]*function{}, map[string]string{}}
	for _, dir := range []string{"pkg", "cmd"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			src, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			return c.add(file, string(src))
		})
		if err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *code) add(file, src string) error {
	files := token.NewFileSet()
	tree, err := parser.ParseFile(files, file, src, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	c.sources[file] = src
	for _, d := range tree.Decls {
		decl, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		from, to := int(decl.Pos()-tree.FileStart), int(decl.End()-tree.FileStart)
		f := &function{file: file, pkg: tree.Name.Name, symbol: symbol(decl), text: src[from:to], decl: decl, offset: from}
		c.bySymbol[f.symbol] = append(c.bySymbol[f.symbol], f)
		qualified := f.pkg + "." + f.symbol
		c.bySymbol[qualified] = append(c.bySymbol[qualified], f)
	}
	return nil
}

// symbol returns the symbol of a declaration: Function or Type.Method.
func symbol(decl *ast.FuncDecl) string {
	if decl.Recv == nil {
		return decl.Name.Name
	}
	t := decl.Recv.List[0].Type
	for {
		switch of := t.(type) {
		case *ast.StarExpr:
			t = of.X
		case *ast.IndexExpr:
			t = of.X
		case *ast.IndexListExpr:
			t = of.X
		case *ast.Ident:
			return of.Name + "." + decl.Name.Name
		default:
			return decl.Name.Name
		}
	}
}

// find returns the only function with a symbol.
func (c *code) find(symbol string) (*function, error) {
	found := c.bySymbol[symbol]
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("no function is called %s: was it renamed?", symbol)
	case 1:
		return found[0], nil
	}
	var names []string
	for _, f := range found {
		names = append(names, f.pkg+"."+f.symbol+" in "+f.file)
	}
	slices.Sort(names)
	return nil, fmt.Errorf("%s is ambiguous: %s", symbol, strings.Join(names, ", "))
}
