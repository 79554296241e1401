package cli

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

	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cluster"
)

// Flags is the flag -o of commands that show a table.
type Flags struct {
	// Format is wide, json, yaml, name or jsonpath=TEMPLATE; "": a table.
	Format    string
	noHeaders bool
	// lists: rows have names. watch keeps printing the rows that change.
	lists, watch bool
}

// AddFlags adds -o and --no-headers.
func (o *Flags) AddFlags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.Format, "output", "o", "", "wide, json, yaml, name or jsonpath=TEMPLATE; empty: a table")
	cmd.Flags().BoolVar(&o.noHeaders, "no-headers", false, "leave out the first line of the table")
	cmd.PreRunE = func(*cobra.Command, []string) error { return o.valid() }
	CompleteFlag(cmd, "output", "wide", "json", "yaml", "name", "jsonpath=")
}

// AddListFlags adds the flags of commands that list objects: -o, with names, and -w.
func (o *Flags) AddListFlags(cmd *cobra.Command) {
	o.AddFlags(cmd)
	o.lists = true
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "after the list, print each row that changes, until interrupted; for tables")
}

// Readable reports whether the format is for users: a table or text.
func (o *Flags) Readable() bool { return o.Format == "" || o.Format == "wide" }

// valid rejects an unknown format before anything is read.
func (o *Flags) valid() error {
	template, isPath := strings.CutPrefix(o.Format, "jsonpath=")
	switch {
	case o.watch && !o.Readable():
		return Usagef("--watch goes with tables alone, not with -o %s", o.Format)
	case o.Readable() || o.Format == "json" || o.Format == "yaml" || o.Format == "name" && o.lists:
		return nil
	case isPath:
		_, err := parseJSONPath(template)
		return err
	case o.Format == "name":
		return Usagef("--output is name: what this command shows has no names")
	}
	return Usagef("--output is %s: must be wide, json, yaml, name or jsonpath=TEMPLATE", o.Format)
}

// Table is the readable form of rows.
type Table struct {
	// Kind is the prefix of the rows' names, which are in the first column, for -o name.
	Kind    string
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
	return printers.NewTablePrinter(printers.PrintOptions{Wide: o.Format == "wide", NoHeaders: o.noHeaders}).PrintObj(m, w)
}

// lines returns the rows as text.
func (t Table) lines() map[string]bool {
	lines := map[string]bool{}
	for _, cells := range t.cells {
		lines[t.line(cells)] = true
	}
	return lines
}

// line returns a row without ages, which always change.
func (t Table) line(cells []any) string {
	line := ""
	for i, cell := range cells {
		words := fmt.Sprint(cell)
		switch t.columns[i].Name {
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
	changed.cells = nil
	for _, cells := range t.cells {
		if !lines[t.line(cells)] {
			changed.cells = append(changed.cells, cells)
		}
	}
	return changed
}

// Print writes rows as data, or t as a table.
func (e *Env) Print(o *Flags, rows any, t Table) error {
	switch o.Format {
	case "json":
		return WriteJSON(e.Out, rows)
	case "yaml":
		body, err := yaml.Marshal(rows)
		if err != nil {
			return err
		}
		_, err = e.Out.Write(body)
		return err
	case "name":
		last := ""
		for _, cells := range t.cells {
			if name := fmt.Sprint(cells[0]); name != last {
				fmt.Fprintln(e.Out, t.Kind+name)
				last = name
			}
		}
		return nil
	case "", "wide":
		return t.print(e.Out, e.ErrOut, o)
	}
	return printJSONPath(e.Out, rows, strings.TrimPrefix(o.Format, "jsonpath="))
}

// Describe writes v as data, or with describe as text.
func (e *Env) Describe(o *Flags, v any, describe func(*Text)) error {
	if o.Readable() {
		return e.WriteText(describe)
	}
	return e.Print(o, v, Table{})
}

// List prints the result of list for the cluster; with -w it reads the cluster again and again, and
// prints the changes.
func (e *Env) List(ctx context.Context, o *Flags, list func(*cluster.Cluster) (rows any, t Table, err error)) error {
	return e.list(ctx, o, func() (any, Table, error) {
		c, err := e.Read(ctx)
		if err != nil {
			return nil, Table{}, err
		}
		return list(c)
	})
}

// watchEvery is the interval of -w's reads of the cluster.
const watchEvery = 2 * time.Second

func (e *Env) list(ctx context.Context, o *Flags, read func() (any, Table, error)) error {
	var printed map[string]bool                // nil: nothing yet
	aligned := printers.GetNewTabWriter(e.Out) // which remembers how wide columns were
	for more := true; more; more = e.Sleep(ctx, watchEvery) == nil {
		rows, t, err := read()
		if err != nil && printed != nil && ctx.Err() != nil {
			return nil //nolint:nilerr // interrupted: that is how it ends
		}
		if err != nil {
			return err
		}
		if !o.watch {
			return e.Print(o, rows, t)
		}
		changed := t.without(printed)
		if printed == nil || len(changed.cells) > 0 {
			if err := changed.print(aligned, e.ErrOut, &Flags{Format: o.Format, noHeaders: o.noHeaders || printed != nil}); err != nil {
				return err
			}
		}
		printed = t.lines()
		if err := aligned.Flush(); err != nil {
			return err
		}
	}
	return nil // interrupted, too
}

// WriteJSON writes v indented.
func WriteJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
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
