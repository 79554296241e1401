package plugin

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/yaml"
)

// output is the flag -o of commands that show a table.
type output struct {
	format    string
	noHeaders bool
}

func (o *output) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.format, "output", "o", "", "wide, json or yaml; empty: a table")
	cmd.Flags().BoolVar(&o.noHeaders, "no-headers", false, "leave out the first line of the table")
	formats := []string{"wide", "json", "yaml"}
	// It fails for an unknown flag only.
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

// column is one of a table; a wide one is shown with -o wide only.
type column struct {
	name string
	wide bool
}

// table is what people see of rows.
type table struct {
	columns []column
	cells   [][]any
	empty   string // what to say where there are no rows
}

// print writes rows as data, or t for people.
func (o *output) print(w, errOut io.Writer, rows any, t table) error {
	switch o.format {
	case "json":
		return writeJSON(w, rows)
	case "yaml":
		body, err := yaml.Marshal(rows)
		if err != nil {
			return err
		}
		_, err = w.Write(body)
		return err
	case "", "wide":
	default:
		return usagef("--output is %s: must be wide, json or yaml", o.format)
	}
	if len(t.cells) == 0 {
		_, err := fmt.Fprintln(errOut, t.empty)
		return err
	}
	m := &metav1.Table{}
	for _, c := range t.columns {
		d := metav1.TableColumnDefinition{Name: c.name, Type: "string"}
		if c.wide {
			d.Priority = 1
		}
		m.ColumnDefinitions = append(m.ColumnDefinitions, d)
	}
	for _, cells := range t.cells {
		m.Rows = append(m.Rows, metav1.TableRow{Cells: cells})
	}
	options := printers.PrintOptions{Wide: o.format == "wide", NoHeaders: o.noHeaders}
	return printers.NewTablePrinter(options).PrintObj(m, w)
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// age is how long ago t was, as kubectl writes it.
func age(now, t time.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(max(0, now.Sub(t)))
}

func count(n int, one string) string { return plural(n, one, one+"s") }

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// dash stands for nothing in a table.
func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
