package output

import (
	"fmt"
	"io"
	"strings"
)

// Text gathers what people read, a line each.
type Text struct{ lines strings.Builder }

// Line adds a line.
func (t *Text) Line(format string, args ...any) { fmt.Fprintf(&t.lines, format+"\n", args...) }

// Table adds a table, as the flags say.
func (t *Text) Table(o *Flags, rows Table) {
	_ = o.printTable(&t.lines, &t.lines, rows) // a strings.Builder takes all
}

// String is all lines.
func (t *Text) String() string { return t.lines.String() }

// WriteText writes what describe adds to a text.
func WriteText(w io.Writer, describe func(*Text)) error {
	var t Text
	describe(&t)
	_, err := io.WriteString(w, t.String())
	return err
}
