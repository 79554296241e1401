package invariant

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Exemption names what a test breaks by hand: one rule, about one subject, in one way.
type Exemption struct {
	Rule int
	// Subject is that of the violation, such as "CiliumNode n1".
	Subject string
	// Text is a part of that of the violation.
	Text string
}

// errStaleExemption: an exemption excused nothing.
var errStaleExemption = errors.New("an exemption excused nothing")

// exempt is an exemption in force.
type exempt struct {
	Exemption
	used bool
}

// Exempt excuses what e names in what is written from now until end is called. Both wait
// until what was written before has been judged, or ctx ends. end fails where nothing was
// excused: then the test did not break what it says.
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

// excused says that an exemption in force names a violation. c.mu is held.
func (c *Checker) excused(v Violation) bool {
	any := false
	for _, e := range c.exemptions {
		if e.Rule == v.Rule && e.Subject == v.Subject && strings.Contains(v.Text, e.Text) {
			e.used, any = true, true
		}
	}
	return any
}
