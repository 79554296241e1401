package plugin

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"
)

// output is the flag -o of commands that show a table.
type output struct {
	format    string
	noHeaders bool
	// watch keeps printing the rows that change.
	watch bool
	// names are what -o name prints; nil: rows have no names of their own.
	names func() []string
}

func (o *output) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.format, "output", "o", "", "wide, json, yaml, name or jsonpath=TEMPLATE; empty: a table")
	cmd.Flags().BoolVar(&o.noHeaders, "no-headers", false, "leave out the first line of the table")
	cmd.PreRunE = func(*cobra.Command, []string) error { return o.valid() }
	formats := []string{"wide", "json", "yaml", "name", "jsonpath="}
	// It fails for an unknown flag only.
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

// column is one of a table; a wide one is shown with -o wide only.
type column struct {
	name string
	wide bool
}

// columns are those of a table. A name that ends in "+" is that of a wide one.
func columns(names ...string) []column {
	out := make([]column, 0, len(names))
	for _, name := range names {
		name, wide := strings.CutSuffix(name, "+")
		out = append(out, column{name, wide})
	}
	return out
}

// table is the readable form of rows.
type table struct {
	columns []column
	cells   [][]any
	empty   string // what to say where there are no rows
}

// print writes rows as data, or t as a table.
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
	case "name":
		return o.printNames(w)
	case "", "wide":
	default:
		if template, ok := strings.CutPrefix(o.format, "jsonpath="); ok {
			return printJSONPath(w, rows, template)
		}
		return o.valid()
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

// readable reports whether the format is one for people: a table or text.
func (o *output) readable() bool { return o.format == "" || o.format == "wide" }

// valid refuses a format that there is not, before anything is read.
func (o *output) valid() error {
	switch {
	case o.readable() || o.format == "json" || o.format == "yaml":
		return nil
	case strings.HasPrefix(o.format, "jsonpath="):
		_, err := parseJSONPath(strings.TrimPrefix(o.format, "jsonpath="))
		return err
	case o.format == "name" && o.names == nil:
		return usagef("--output is name: what this command shows has no names")
	case o.format == "name":
		return nil
	}
	return usagef("--output is %s: must be wide, json, yaml, name or jsonpath=TEMPLATE", o.format)
}

// printNames writes each name once.
func (o *output) printNames(w io.Writer) error {
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

func parseJSONPath(template string) (*jsonpath.JSONPath, error) {
	if !strings.Contains(template, "{") {
		template = "{" + template + "}"
	}
	path := jsonpath.New("output").AllowMissingKeys(true)
	if err := path.Parse(template); err != nil {
		return nil, usagef("--output is jsonpath=%s: %w", template, err)
	}
	return path, nil
}

// printJSONPath fills in a template as kubectl does: a list is in .items.
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
