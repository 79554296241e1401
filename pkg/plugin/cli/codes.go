package cli

import (
	"cmp"
	"fmt"
	"strings"
)

// Code is an exit code, as the error of a command that has already printed the problem.
type Code int

// Exit codes of all commands: ExitCodes has what they mean.
const (
	// Failed: the command failed, or its check found a problem.
	Failed Code = 1
	// Usage: the command line is wrong, and the command did not run.
	Usage Code = 2
	// NotReached: the requested state needs user action first.
	NotReached Code = 3
)

func (e Code) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// UsageError is an error in the command line.
type UsageError struct{ error }

func (e UsageError) Unwrap() error { return e.error }

// Usagef returns an error in the command line.
func Usagef(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// Exits is what the exit codes of a command mean. Codes without words mean the same as in the first row of ExitCodes.
type Exits struct {
	// Command is the command without "kubectl cilium-pool"; "": all others.
	Command                         string
	Done, Failed, Usage, NotReached string
}

// ExitCodes is the table of all exit codes. Help and docs/kubectl/README.md are made from it.
func ExitCodes() []Exits {
	return []Exits{
		{Done: "done", Failed: "it failed", Usage: "wrong command line"},
		{Command: "check", Done: "no findings; with --fail-on error, no error", Failed: "findings", Usage: "wrong command line, or the cluster could not be read"},
		{
			Command: "drain", Done: "every block cools down or is gone; with --to, the old range is gone",
			Failed:     "not by --timeout, or it failed; with --status, it is under way or has not begun",
			NotReached: "the other blocks need a user, as to restart an agent or to move a pod",
		},
		{Command: "import", Done: "written", Failed: "not written: the source could not be read, or has no pools", NotReached: "with --strict: written, and something could not be carried over"},
		{Command: "migrate abort", Done: "these nodes are back", Failed: "it failed: run it again", NotReached: "some are not back: the output names the next step"},
		{Command: "migrate finish", Done: "it is finished", Failed: "it failed: run it again", NotReached: "a node is not ready: the output says why"},
		{Command: "migrate plan", Done: "no obstacle", NotReached: "obstacles"},
		{Command: "migrate start", Done: "the blocks are there", NotReached: "a finding blocks it, and it wrote no block"},
		{Command: "migrate status", NotReached: "not all nodes have reached --until"},
		{Command: "observe report", Done: "shown", Failed: "the cluster could not be read, or not understood"},
		{Command: "status", Done: "an operator leads, or the watch ended", Failed: "none is known to lead, or it failed"},
		{Command: "version", Failed: "the operator's version is not known"},
		{Command: "whois", Failed: "it failed; with --at, the log does not cover the time"},
	}
}

// ExitsOf returns the exit codes of a command.
func ExitsOf(command string) Exits {
	table := ExitCodes()
	exits := table[0]
	for _, row := range table[1:] {
		if row.Command == command {
			exits = Exits{
				Command: command, Done: cmp.Or(row.Done, exits.Done), Failed: cmp.Or(row.Failed, exits.Failed),
				Usage: cmp.Or(row.Usage, exits.Usage), NotReached: row.NotReached,
			}
		}
	}
	return exits
}

// String is the paragraph of a command's help.
func (x Exits) String() string {
	lines := []string{"Exit codes:"}
	for code, meaning := range []string{x.Done, x.Failed, x.Usage, x.NotReached} {
		if meaning != "" {
			lines = append(lines, fmt.Sprintf("  %d  %s", code, meaning))
		}
	}
	return strings.Join(lines, "\n")
}
