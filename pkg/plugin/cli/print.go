package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/printers"
)

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

// names returns the first cell of each row, each once.
func (t Table) names() []string {
	var names []string
	for _, cells := range t.cells {
		if name := fmt.Sprint(cells[0]); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
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
