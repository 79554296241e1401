package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/printers"
)

// Output is the flag -o of commands that show a table or text.
type Output struct {
	// Format is wide or json; "": a table.
	Format string
}

// AddFlags adds -o.
func (o *Output) AddFlags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.Format, "output", "o", "", "wide or json; empty: a table")
	cmd.PreRunE = func(*cobra.Command, []string) error { // before anything is read
		if !o.Readable() && o.Format != "json" {
			return Usagef("--output is %s: must be wide or json", o.Format)
		}
		return nil
	}
	CompleteFlag(cmd, "output", "wide", "json")
}

// Readable reports whether the format is for users: a table or text.
func (o *Output) Readable() bool { return o.Format == "" || o.Format == "wide" }

// Table is the readable form of rows.
type Table struct {
	columns []metav1.TableColumnDefinition
	cells   [][]any
	empty   string // text in place of rows
}

// TableOf returns a table of rows. The name of a column that only -o wide shows ends in "+".
func TableOf[R any](noun string, rows []R, cells func(*R) []any, columns ...string) Table {
	t := Table{empty: "No " + noun + " found."}
	for _, name := range columns {
		name, wide := strings.CutSuffix(name, "+")
		c := metav1.TableColumnDefinition{Name: name, Type: "string"}
		if wide {
			c.Priority = 1
		}
		t.columns = append(t.columns, c)
	}
	for i := range rows {
		t.cells = append(t.cells, cells(&rows[i]))
	}
	return t
}

// print writes a table, or a message to errOut if it has no rows.
func (t Table) print(w, errOut io.Writer, o *Output) error {
	if len(t.cells) == 0 {
		_, err := fmt.Fprintln(errOut, t.empty)
		return err
	}
	m := &metav1.Table{ColumnDefinitions: t.columns}
	for _, cells := range t.cells {
		m.Rows = append(m.Rows, metav1.TableRow{Cells: cells})
	}
	return printers.NewTablePrinter(printers.PrintOptions{Wide: o.Format == "wide"}).PrintObj(m, w)
}

// Print writes rows as data, or t as a table.
func (e *Env) Print(o *Output, rows any, t Table) error {
	if o.Readable() {
		return t.print(e.Out, e.ErrOut, o)
	}
	return WriteJSON(e.Out, rows)
}

// Describe writes v as data, or with describe as text.
func (e *Env) Describe(o *Output, v any, describe func(*Text)) error {
	if o.Readable() {
		return e.WriteText(describe)
	}
	return WriteJSON(e.Out, v)
}

// WriteJSON writes v indented.
func WriteJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// Age returns the time since t, as kubectl writes it: also that t is in the future.
func Age(now, t time.Time) string {
	age := now.Sub(t)
	if t.IsZero() {
		return "<unknown>"
	}
	if age < 0 && age > -time.Minute {
		age = 0
	}
	return duration.HumanDuration(age)
}

// Dash returns "-" in place of an empty cell.
func Dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// Fraction returns part/whole.
func Fraction(part, whole int) string { return fmt.Sprintf("%d/%d", part, whole) }

// Percent returns part of whole, rounded up; "-" if whole is 0.
func Percent(part, whole int) string {
	if whole == 0 {
		return "-"
	}
	return fmt.Sprintf("%d%%", int(math.Ceil(100*float64(part)/float64(whole))))
}

// Duration formats a duration without parts that are zero: 10m, not 10m0s.
func Duration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// Many formats large counts, such as IPv6's, as powers of two.
func Many(n uint64) string {
	if n < 1<<20 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("2^%d", int(math.Log2(float64(n))))
}

// Text collects lines for users.
type Text struct{ lines strings.Builder }

// Line adds a line.
func (t *Text) Line(format string, args ...any) { fmt.Fprintf(&t.lines, format+"\n", args...) }

// Table adds a table, formatted according to the flags.
func (t *Text) Table(o *Output, rows Table) {
	_ = rows.print(&t.lines, &t.lines, o) // a strings.Builder takes all
}

// String returns all lines.
func (t *Text) String() string { return t.lines.String() }

// WriteText writes the text that describe builds.
func (e *Env) WriteText(describe func(*Text)) error {
	var t Text
	describe(&t)
	_, err := e.Out.Write([]byte(t.String()))
	return err
}

// Code is an exit code, as the error of a command that has already printed the problem.
type Code int

// Exit codes of all commands. docs/kubectl/README.md has the table.
const (
	// Failed: the command failed, or its check found a problem.
	Failed Code = 1
	// Usage: the command line is wrong, and the command did not run.
	Usage Code = 2
	// NotReached: the requested state needs user action first.
	NotReached Code = 3
)

func (e Code) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// UsageError is an error in the command line.
type UsageError struct{ error }

func (e UsageError) Unwrap() error { return e.error }

// Usagef returns an error in the command line.
func Usagef(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }
