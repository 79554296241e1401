// Package output has the tables, data formats and phrases that commands of kubectl
// cilium-pool print, and their exit codes.
package output

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"
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
