// Package output has the tables, data formats and phrases that commands of kubectl
// cilium-pool print, and their exit codes.
package output

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"
)

// Flags is the flag -o of commands that show a table.
type Flags struct {
	// Format is wide, json, yaml, name or jsonpath=TEMPLATE; "": a table.
	Format    string
	noHeaders bool
	// watch keeps printing the rows that change.
	watch bool
	// names returns the output of -o name; nil: rows have no names of their own.
	names func() []string
}

// AddFlags adds -o and --no-headers.
func (o *Flags) AddFlags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.Format, "output", "o", "", "wide, json, yaml, name or jsonpath=TEMPLATE; empty: a table")
	cmd.Flags().BoolVar(&o.noHeaders, "no-headers", false, "leave out the first line of the table")
	cmd.PreRunE = func(*cobra.Command, []string) error { return o.valid() }
	formats := []string{"wide", "json", "yaml", "name", "jsonpath="}
	// It fails for an unknown flag only.
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

// AddListFlags adds the flags of commands that list objects: -o, with names, and -w.
func (o *Flags) AddListFlags(cmd *cobra.Command) {
	o.AddFlags(cmd)
	o.names = func() []string { return nil }
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "after the list, print each row that changes, until interrupted; for tables")
}

// Print writes rows as data, or t as a table.
func (o *Flags) Print(w, errOut io.Writer, rows any, t Table) error {
	switch o.Format {
	case "json":
		return WriteJSON(w, rows)
	case "yaml":
		body, err := yaml.Marshal(rows)
		if err != nil {
			return err
		}
		_, err = w.Write(body)
		return err
	case "name":
		return o.printNames(w)
	case "", "wide":
	default:
		if template, ok := strings.CutPrefix(o.Format, "jsonpath="); ok {
			return printJSONPath(w, rows, template)
		}
		return o.valid()
	}
	return o.printTable(w, errOut, t)
}

// printTable writes a table, or a message to errOut if it has no rows.
func (o *Flags) printTable(w, errOut io.Writer, t Table) error {
	if len(t.Cells) == 0 {
		_, err := fmt.Fprintln(errOut, t.Empty)
		return err
	}
	m := &metav1.Table{}
	for _, c := range t.Columns {
		d := metav1.TableColumnDefinition{Name: c.name, Type: "string"}
		if c.wide {
			d.Priority = 1
		}
		m.ColumnDefinitions = append(m.ColumnDefinitions, d)
	}
	for _, cells := range t.Cells {
		m.Rows = append(m.Rows, metav1.TableRow{Cells: cells})
	}
	options := printers.PrintOptions{Wide: o.Format == "wide", NoHeaders: o.noHeaders}
	return printers.NewTablePrinter(options).PrintObj(m, w)
}

// Readable reports whether the format is for users: a table or text.
func (o *Flags) Readable() bool { return o.Format == "" || o.Format == "wide" }

// valid rejects an unknown format before anything is read.
func (o *Flags) valid() error {
	switch {
	case o.Readable() || o.Format == "json" || o.Format == "yaml":
		return nil
	case strings.HasPrefix(o.Format, "jsonpath="):
		_, err := parseJSONPath(strings.TrimPrefix(o.Format, "jsonpath="))
		return err
	case o.Format == "name" && o.names == nil:
		return Usagef("--output is name: what this command shows has no names")
	case o.Format == "name":
		return nil
	}
	return Usagef("--output is %s: must be wide, json, yaml, name or jsonpath=TEMPLATE", o.Format)
}

// printNames writes each name once.
func (o *Flags) printNames(w io.Writer) error {
	printed := map[string]bool{}
	for _, name := range o.names() {
		if printed[name] {
			continue
		}
		printed[name] = true
		if _, err := fmt.Fprintln(w, name); err != nil {
			return err
		}
	}
	return nil
}

// WriteJSON writes v indented.
func WriteJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// watchEvery is the interval of -w's reads of the cluster.
const watchEvery = 2 * time.Second

// Listed is the list of a command at one moment.
type Listed struct {
	Rows  any
	Names []string // of the rows, for -o name
	Table Table
}

// PrintList prints the result of read. With -w it continues until sleep fails, as it does when ctx
// ends, and prints the rows that have changed.
func (o *Flags) PrintList(ctx context.Context, w, errOut io.Writer, sleep func(context.Context, time.Duration) error, read func() (Listed, error)) error {
	if o.watch && !o.Readable() {
		return Usagef("--watch goes with tables alone, not with -o %s", o.Format)
	}
	now, err := read()
	if err != nil {
		return err
	}
	o.names = func() []string { return now.Names }
	if !o.watch {
		return o.Print(w, errOut, now.Rows, now.Table)
	}
	aligned := printers.GetNewTabWriter(w) // which remembers how wide columns were
	if err := o.printTable(aligned, errOut, now.Table); err != nil {
		return err
	}
	return o.printChanges(ctx, aligned, errOut, now.Table.lines(), sleep, read)
}

// flusher is the writer that aligns columns.
type flusher interface {
	io.Writer
	Flush() error
}

// printChanges prints the rows that have not been printed yet, until sleep fails.
func (o *Flags) printChanges(ctx context.Context, w flusher, errOut io.Writer, printed map[string]bool, sleep func(context.Context, time.Duration) error, read func() (Listed, error)) error {
	changes := Flags{Format: o.Format, noHeaders: true}
	for {
		if err := w.Flush(); err != nil {
			return err
		}
		if err := sleep(ctx, watchEvery); err != nil {
			return nil //nolint:nilerr // interrupted: that is how it ends
		}
		now, err := read()
		if err != nil {
			if ctx.Err() != nil {
				return nil //nolint:nilerr // interrupted, too
			}
			return err
		}
		changed := now.Table.without(printed)
		printed = now.Table.lines()
		if len(changed.Cells) > 0 {
			if err := changes.printTable(w, errOut, changed); err != nil {
				return err
			}
		}
	}
}

// NamesOf returns the names of rows as kubectl writes them with -o name.
func NamesOf[R any](kind string, rows []R, name func(R) string) []string {
	out := make([]string, 0, len(rows))
	for _, r := range rows {
		out = append(out, kind+name(r))
	}
	return out
}

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

func parseJSONPath(template string) (*jsonpath.JSONPath, error) {
	if !strings.Contains(template, "{") {
		template = "{" + template + "}"
	}
	path := jsonpath.New("output").AllowMissingKeys(true)
	if err := path.Parse(template); err != nil {
		return nil, Usagef("--output is jsonpath=%s: %w", template, err)
	}
	return path, nil
}

// printJSONPath executes a template as kubectl does: a list is in .items.
func printJSONPath(w io.Writer, rows any, template string) error {
	path, err := parseJSONPath(template)
	if err != nil {
		return err
	}
	body, err := json.Marshal(rows)
	if err != nil {
		return err
	}
	var data any
	if err := json.Unmarshal(body, &data); err != nil {
		return err
	}
	if list, ok := data.([]any); ok {
		data = map[string]any{"items": list}
	}
	return path.Execute(w, data)
}
