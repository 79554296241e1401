package expand

import (
	"errors"
	"fmt"
	"time"
)

// Validate returns every fault of p, joined. Each error names the field, its value and valid ones.
// Decide needs a valid Policy. The bounds are those of a pool's spec, so that a pool's status can
// show every valid Policy.
func (p Policy) Validate() error {
	errs := []error{
		between("ExpandPercent", p.ExpandPercent, 1, 100),
		between("MinFree", p.MinFree, 0, 4096),
		between("MaxBlocks", p.MaxBlocks, 1, 1024),
		between("MaxAddresses", p.MaxAddresses, 1, MostAddresses),
		between("IdleFor", p.IdleFor, 0, 7*24*time.Hour),
		between("ReclaimPercent", p.ReclaimPercent, 0, 99),
		between("PressurePercent", p.PressurePercent, 0, 100),
		atLeast("AckHold", p.AckHold, 0),
	}
	if p.AckTimeout <= 0 {
		errs = append(errs, fmt.Errorf("AckTimeout is %s: set it above 0, well above the agent's update rate (15s by default), or every mark is withdrawn before it is answered", p.AckTimeout))
	}
	if p.MaxAddresses >= 1 && p.MinFree >= p.MaxAddresses {
		errs = append(errs, fmt.Errorf("MinFree is %d, which MaxAddresses (%d) never allows: set it below %d", p.MinFree, p.MaxAddresses, p.MaxAddresses))
	}
	if !p.ReclaimDisabled {
		errs = append(errs, p.validateReclaim())
	}
	return errors.Join(errs...)
}

func (p Policy) validateReclaim() error {
	if p.ReclaimPercent >= p.ExpandPercent {
		return fmt.Errorf("ReclaimPercent is %d, not below ExpandPercent (%d): lower the one or raise the other, or a node would grow and shrink in turn", p.ReclaimPercent, p.ExpandPercent)
	}
	return nil
}

func between[T int | time.Duration](field string, value, low, high T) error {
	if value < low || value > high {
		return fmt.Errorf("%s is %v: set it to %v to %v", field, value, low, high)
	}
	return nil
}

func atLeast[T int | time.Duration](field string, value, low T) error {
	if value < low {
		return fmt.Errorf("%s is %v: set it to %v or more", field, value, low)
	}
	return nil
}
