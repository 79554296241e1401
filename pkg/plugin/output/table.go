package output

import (
	"fmt"
	"strings"
)

// Column is a column of a table; wide ones are shown only with -o wide.
type Column struct {
	name string
	wide bool
}

// Columns returns the columns of a table. A name that ends in "+" is that of a wide one.
func Columns(names ...string) []Column {
	out := make([]Column, 0, len(names))
	for _, name := range names {
		name, wide := strings.CutSuffix(name, "+")
		out = append(out, Column{name, wide})
	}
	return out
}

// Table is the readable form of rows.
type Table struct {
	Columns []Column
	Cells   [][]any
	Empty   string // text in place of rows
}

// lines returns the rows as text.
func (t Table) lines() map[string]bool {
	lines := map[string]bool{}
	for _, cells := range t.Cells {
		lines[t.line(cells)] = true
	}
	return lines
}

// line returns a row without ages, which always change.
func (t Table) line(cells []any) string {
	line := ""
	for i, cell := range cells {
		words := fmt.Sprint(cell)
		switch t.Columns[i].name {
		case "Age":
			continue
		case "Phase": // and its duration
			words, _, _ = strings.Cut(words, " ")
		}
		line += words + "\x00"
	}
	return line
}

// without returns the table without the rows in lines.
func (t Table) without(lines map[string]bool) Table {
	changed := t
	changed.Cells = nil
	for _, cells := range t.Cells {
		if !lines[t.line(cells)] {
			changed.Cells = append(changed.Cells, cells)
		}
	}
	return changed
}
