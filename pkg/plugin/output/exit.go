package output

import "fmt"

// Code is an exit code, as the error of a command that has already printed the problem.
type Code int

// Exit codes of all commands. docs/kubectl/README.md has the table.
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
