package plugin

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

var errNotConfirmed = errors.New("not confirmed: nothing was changed")

// confirm asks the user at a terminal. It fails for any answer but yes.
func (e *env) confirm(warning string) error {
	return confirm(e.In, e.ErrOut, isTerminal(e.In), warning)
}

func confirm(in io.Reader, out io.Writer, terminal bool, warning string) error {
	unasked := usagef("%s Standard input is no terminal to ask on: add --yes to go on", warning)
	if !terminal {
		return unasked
	}
	fmt.Fprintf(out, "%s Go on? (y/N): ", warning)
	answer, err := bufio.NewReader(in).ReadString('\n')
	switch {
	case errors.Is(err, io.EOF) && answer == "": // /dev/null looks like a terminal
		fmt.Fprintln(out)
		return unasked
	case err != nil && !errors.Is(err, io.EOF):
		return fmt.Errorf("reading the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return errNotConfirmed
}
