//go:build linux

package main

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// result is the outcome of a row of the table.
type result string

const (
	passed result = "pass"
	failed result = "FAIL"
	noted  result = "-" // a figure that is not judged
)

// row is one line of the table.
type row struct {
	scenario, what, value string
	result                result
}

func printTable(out io.Writer, rows []row) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nscenario\tmeasurement\tvalue\tpass")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", r.scenario, r.what, r.value, r.result)
	}
	w.Flush()
}
