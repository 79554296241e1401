package cli

import (
	"errors"
	"io"
	"strings"
	"testing"
)

// Only a user's yes confirms; without a terminal, --yes is required.
func TestConfirm(t *testing.T) {
	usage := Usagef("")
	for name, test := range map[string]struct {
		answer   string
		terminal bool
		want     error
	}{
		"y":               {"y\n", true, nil},
		"YES, no newline": {"YES", true, nil},
		"n":               {"n\n", true, errNotConfirmed},
		"return":          {"\n", true, errNotConfirmed},
		"yesterday":       {"yesterday\n", true, errNotConfirmed},
		"/dev/null":       {"", true, usage},
		"a pipe":          {"y\n", false, usage},
	} {
		t.Run(name, func(t *testing.T) {
			err := confirm(strings.NewReader(test.answer), io.Discard, test.terminal, "It deletes 2 blocks.")
			if errors.As(test.want, &UsageError{}) {
				if !errors.As(err, &UsageError{}) || !strings.Contains(err.Error(), "--yes") {
					t.Errorf("%v, want a usage error that names --yes", err)
				}
			} else if !errors.Is(err, test.want) {
				t.Errorf("%v, want %v", err, test.want)
			}
		})
	}
}
