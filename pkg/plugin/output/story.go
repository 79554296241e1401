package output

import (
	"fmt"
	"strings"
)

// Story gathers sentences, a line each.
type Story struct{ strings.Builder }

// Say adds a line.
func (s *Story) Say(format string, args ...any) { fmt.Fprintf(s, format+"\n", args...) }
