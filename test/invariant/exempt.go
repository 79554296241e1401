package invariant

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Exemption names a deliberate violation of a test: one rule, for one subject, in one way.
type Exemption struct {
	Rule int
	// Subject is the violation's subject, such as "CiliumNode n1".
	Subject string
	// Text is a part of the violation's text.
	Text string
}

// errStaleExemption means that an exemption excused no violation.
var errStaleExemption = errors.New("an exemption excused nothing")

// exempt is an active exemption.
type exempt struct {
	Exemption
	used bool
}

// Exempt excuses the violations that e names in versions written from now until end is called. Both
// wait until earlier versions have been judged, or ctx ends. end fails if no violation was excused:
// then the test did not break the rule it claims to.
func (c *Checker) Exempt(ctx context.Context, e Exemption) (end func(context.Context) error, err error) {
	if e.Rule == 0 || e.Subject == "" || e.Text == "" {
		return nil, fmt.Errorf("an exemption without a bound: %+v", e)
	}
	if err := c.Sync(ctx); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	in := &exempt{Exemption: e}
	c.exemptions = append(c.exemptions, in)
	return func(ctx context.Context) error { return c.endExemption(ctx, in) }, nil
}

func (c *Checker) endExemption(ctx context.Context, e *exempt) error {
	err := c.Sync(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.exemptions = slices.DeleteFunc(c.exemptions, func(o *exempt) bool { return o == e })
	if err == nil && !e.used {
		err = fmt.Errorf("%w: %+v", errStaleExemption, e.Exemption)
	}
	return err
}

// excused reports whether an active exemption names a violation. The caller holds c.mu.
func (c *Checker) excused(v Violation) bool {
	any := false
	for _, e := range c.exemptions {
		if e.Rule == v.Rule && e.Subject == v.Subject && strings.Contains(v.Text, e.Text) {
			e.used, any = true, true
		}
	}
	return any
}
