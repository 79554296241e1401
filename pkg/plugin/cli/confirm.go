package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/output"
)

var errNotConfirmed = errors.New("not confirmed: nothing was changed")

// Confirm asks the user at a terminal. It fails for any answer but yes.
func (e *Env) Confirm(warning string) error {
	return confirm(e.In, e.ErrOut, IsTerminal(e.In), warning)
}

func confirm(in io.Reader, out io.Writer, terminal bool, warning string) error {
	unasked := output.Usagef("%s Standard input is no terminal to ask on: add --yes to go on", warning)
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

// IsTerminal reports whether a stream is a character device.
func IsTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
