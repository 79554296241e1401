//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"
)

// result is the outcome of a row of the table.
type result string

const (
	passed  result = "pass"
	failed  result = "FAIL"
	skipped result = "skipped"
	noted   result = "-" // a figure without pass or fail
)

// row is one line of the table.
type row struct {
	Scenario, What, Figure string
	Result                 result
}

func failure(scenario string, err error) row {
	return row{Scenario: scenario, What: "ran to its end", Figure: err.Error(), Result: failed}
}

func rowsFile(logs string) string { return filepath.Join(logs, "result.json") }

func writeRows(logs string, rows []row) error {
	data, err := json.MarshalIndent(rows, "", "  ")
	if err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	return os.WriteFile(rowsFile(logs), data, 0o644)
}

func readRows(logs string) ([]row, error) {
	data, err := os.ReadFile(rowsFile(logs))
	if err != nil {
		return nil, fmt.Errorf("read results: %w", err)
	}
	var rows []row
	if err := json.Unmarshal(data, &rows); err != nil {
		return nil, fmt.Errorf("read results: %w", err)
	}
	return rows, nil
}

func printTable(out io.Writer, rows []row) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nscenario\tmeasured\tfigure\tresult")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", r.Scenario, r.What, r.Figure, r.Result)
	}
	w.Flush()
}
