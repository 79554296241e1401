package config

import (
	"fmt"
	"time"
)

// Problems collects the errors of a command line. Each names the flag, its value and the allowed
// values.
type Problems []error

// Bad adds an error.
func (p *Problems) Bad(flag string, value any, want string) {
	*p = append(*p, fmt.Errorf("--%s is %v: %s", flag, value, want))
}

// Between adds an error if d is outside the range.
func (p *Problems) Between(flag string, d, low, high time.Duration) {
	if d < low || d > high {
		p.Bad(flag, d, fmt.Sprintf("must be between %s and %s", low, high))
	}
}
