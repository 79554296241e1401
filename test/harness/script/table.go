package script

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// The exit codes of a program that runs scenarios.
const (
	ExitFailed = 1
	ExitUsage  = 2
	// ExitCannot says that the machine cannot run all of them.
	ExitCannot = 4
)

// Scenario is one script on a bed.
type Scenario struct {
	Name string
	// CI is set for the scenarios of every change.
	CI bool
	// Apart is set for scenarios that "all" does not include.
	Apart bool
	// Alone is set for a scenario that loads the machine or measures time: no other runs at
	// the same time.
	Alone bool
	// File is the script's name, if it is not named after the scenario.
	File string
}

// Script returns the name of the scenario's script.
func (s Scenario) Script() string {
	if s.File != "" {
		return s.File + ".txtar"
	}
	return s.Name + ".txtar"
}

// Choose returns the scenarios, in their order, of a list of names separated by commas. A name
// is ci, all, a scenario's, or the part before a dash of several: docs includes docs-install.
func Choose(every []Scenario, list string) ([]Scenario, error) {
	chosen, known := map[string]bool{}, []string{"ci", "all"}
	for _, s := range every {
		known = append(known, s.Name)
	}
	for name := range strings.SplitSeq(list, ",") {
		exact, found := slices.Contains(known[2:], name), false
		for _, s := range every {
			if s.Name == name || name == "ci" && s.CI || name == "all" && !s.Apart || !exact && strings.HasPrefix(s.Name, name+"-") {
				chosen[s.Name], found = true, true
			}
		}
		if !found {
			return nil, fmt.Errorf("no scenario %q; there are: %s", name, strings.Join(known, ", "))
		}
	}
	return slices.DeleteFunc(slices.Clone(every), func(s Scenario) bool { return !chosen[s.Name] }), nil
}

// Result is the outcome of a row.
type Result string

// The results.
const (
	Passed  Result = "pass"
	Failed  Result = "FAIL"
	Skipped Result = "skipped"
	Noted   Result = "-" // a figure without pass or fail
)

// Row is one line of the table.
type Row struct {
	Scenario, What, Figure string
	Result                 Result
}

// Failure is the row of a scenario that ended with an error.
func Failure(scenario string, err error) Row {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return Row{scenario, "ran to its end", line, Failed}
}

// Table collects the rows of a scenario.
type Table struct {
	Scenario string
	Rows     []Row
	Logf     func(format string, args ...any)
}

// Note adds a figure that does not affect the result.
func (t *Table) Note(what, format string, args ...any) { t.add(Noted, what, format, args) }

// Check adds a judged figure.
func (t *Table) Check(ok bool, what, format string, args ...any) {
	result := Failed
	if ok {
		result = Passed
	}
	t.add(result, what, format, args)
}

func (t *Table) add(result Result, what, format string, args []any) {
	r := Row{t.Scenario, what, fmt.Sprintf(format, args...), result}
	t.Rows = append(t.Rows, r)
	t.Logf("%s: %s: %s", r.Result, r.What, r.Figure)
}

// Finish prints the rows, and returns the exit code.
func Finish(out io.Writer, rows []Row) int {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nscenario\tmeasured\tfigure\tresult")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", r.Scenario, r.What, r.Figure, r.Result)
	}
	w.Flush()
	has := func(result Result) bool {
		return slices.ContainsFunc(rows, func(r Row) bool { return r.Result == result })
	}
	switch {
	case has(Failed) || len(rows) == 0:
		return ExitFailed
	case has(Skipped):
		return ExitCannot
	}
	return 0
}

// Banner prints prominently that nothing was tried.
func Banner(out io.Writer, err error) {
	line := strings.Repeat("!", 72)
	fmt.Fprintf(out, "%s\n!! SKIPPED, not passed: %v\n%s\n", line, err, line)
}
