package output

import (
	"fmt"
	"io"
	"strings"
)

// Text collects lines for users.
type Text struct{ lines strings.Builder }

// Line adds a line.
func (t *Text) Line(format string, args ...any) { fmt.Fprintf(&t.lines, format+"\n", args...) }

// Table adds a table, formatted according to the flags.
func (t *Text) Table(o *Flags, rows Table) {
	_ = o.printTable(&t.lines, &t.lines, rows) // a strings.Builder takes all
}

// String returns all lines.
func (t *Text) String() string { return t.lines.String() }

// WriteText writes the text that describe builds.
func WriteText(w io.Writer, describe func(*Text)) error {
	var t Text
	describe(&t)
	_, err := io.WriteString(w, t.String())
	return err
}
