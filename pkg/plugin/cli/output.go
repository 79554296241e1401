package cli

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
)

// OutputVersion is the apiVersion of what -o json and -o yaml print: rows of a command, not objects of the API server.
const OutputVersion = "plugin.cilium-pool.io/v1alpha1"

// Output is the flag -o of commands that show a table or text.
type Output struct {
	// Format is the flag's value; "": a table or text.
	Format string
	// Kind names what json, yaml and templates print.
	Kind string
	// Named is the kind of the rows' objects, for -o name. Zero: the command has no such rows.
	Named schema.GroupVersionKind

	printer printers.ResourcePrinter // nil: a table or text
}

// AddFlags adds -o.
func (o *Output) AddFlags(cmd *cobra.Command) {
	formats := []string{"wide", "json", "yaml", "jsonpath=TEMPLATE", "go-template=TEMPLATE"}
	complete := []string{"wide", "json", "yaml"}
	if !o.Named.Empty() {
		formats = append(formats, "name")
		complete = append(complete, "name")
	}
	usage := strings.Join(formats[:len(formats)-1], ", ") + " or " + formats[len(formats)-1]
	cmd.Flags().StringVarP(&o.Format, "output", "o", "", usage+"; empty: a table or text")
	cmd.PreRunE = func(*cobra.Command, []string) error { // before anything is read
		if o.Readable() {
			return nil
		}
		var err error
		if o.printer, err = o.newPrinter(); err != nil {
			return Usagef("--output is %s: must be %s: %w", o.Format, usage, err)
		}
		return nil
	}
	CompleteFlag(cmd, "output", complete...)
}

func (o *Output) newPrinter() (printers.ResourcePrinter, error) {
	if o.Format == "name" && !o.Named.Empty() {
		return genericclioptions.NewNamePrintFlags("").ToPrinter(o.Format)
	}
	printer, err := genericclioptions.NewJSONYamlPrintFlags().ToPrinter(o.Format)
	if genericclioptions.IsNoCompatiblePrinterError(err) {
		printer, err = genericclioptions.NewKubeTemplatePrintFlags().ToPrinter(o.Format)
	}
	if genericclioptions.IsNoCompatiblePrinterError(err) {
		return nil, fmt.Errorf("there is no such format")
	}
	return printer, err
}

// Readable reports whether the format is for users: a table or text.
func (o *Output) Readable() bool { return o.Format == "" || o.Format == "wide" }

// Print writes rows as data, in a list, or t as a table.
func (e *Env) Print(o *Output, rows any, t Table) error {
	if o.Readable() {
		return t.print(e.Out, e.ErrOut, o)
	}
	if o.Format == "name" {
		for _, name := range t.names() {
			named := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}}
			named.SetGroupVersionKind(o.Named)
			if err := o.printer.PrintObj(named, e.Out); err != nil {
				return err
			}
		}
		return nil
	}
	return e.printData(o, map[string]any{"items": rows})
}

// Describe writes v as data, or with describe as text.
func (e *Env) Describe(o *Output, v any, describe func(*Text)) error {
	if o.Readable() {
		return e.WriteText(describe)
	}
	return e.printData(o, v)
}

func (e *Env) printData(o *Output, v any) error {
	obj, err := object(o.Kind, v)
	if err != nil {
		return err
	}
	return o.printer.PrintObj(obj, e.Out)
}

// object returns a value as the printers of kubectl take it.
func object(kind string, v any) (runtime.Object, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	content := map[string]any{}
	if err := utiljson.Unmarshal(data, &content); err != nil {
		return nil, err
	}
	content["apiVersion"] = OutputVersion
	content["kind"] = kind
	return &unstructured.Unstructured{Object: content}, nil
}
