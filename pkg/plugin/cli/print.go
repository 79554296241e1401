package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"
)

// Flags is the flag -o of commands that show a table or text.
type Flags struct {
	// Format is wide or json; "": a table.
	Format string
}

// AddFlags adds -o.
func (o *Flags) AddFlags(cmd *cobra.Command) {
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
func (o *Flags) Readable() bool { return o.Format == "" || o.Format == "wide" }

// Table is the readable form of rows.
type Table struct {
	columns []metav1.TableColumnDefinition
	cells   [][]any
	empty   string // text in place of rows
}

// TableOf returns a table of rows. The name of a column that only -o wide shows ends in "+".
func TableOf[R any](what string, rows []R, cells func(*R) []any, columns ...string) Table {
	t := Table{empty: "No " + what + " found."}
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
func (t Table) print(w, errOut io.Writer, o *Flags) error {
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
func (e *Env) Print(o *Flags, rows any, t Table) error {
	if o.Readable() {
		return t.print(e.Out, e.ErrOut, o)
	}
	return WriteJSON(e.Out, rows)
}

// Describe writes v as data, or with describe as text.
func (e *Env) Describe(o *Flags, v any, describe func(*Text)) error {
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
