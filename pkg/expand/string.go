package expand

import (
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// Empty reports whether the plan writes no object. Obstacles and RequeueAt may still be set.
func (p Plan) Empty() bool {
	return len(p.Undrain) == 0 && len(p.Drain) == 0 && len(p.Clear) == 0 && len(p.Mark) == 0 && len(p.Retire) == 0 && !p.Probe &&
		p.Claim == Claim{} && len(p.RecordClosed)+len(p.Close)+len(p.Unpark) == 0 && !p.Park.IsValid() && len(p.Publish)+len(p.Assign) == 0 && len(p.Remove) == 0 &&
		!p.Forget && len(p.CoolDown) == 0 && len(p.Delete) == 0
}

// String is the plan in one line, for people.
func (p Plan) String() string {
	var steps []string
	add := func(format string, args ...any) { steps = append(steps, fmt.Sprintf(format, args...)) }
	list := func(verb string, addrs []netip.Addr) {
		if len(addrs) > 0 {
			add("%s %s", verb, few(addrs))
		}
	}
	each := func(verb string, blocks []netip.Prefix) {
		for _, c := range blocks {
			add("%s %s", verb, c)
		}
	}

	each("undrain", p.Undrain)
	for _, b := range p.Drain {
		add("drain %s (%s)", b.CIDR, b.Reason)
	}
	for _, b := range p.RecordClosed {
		if b.Agent == "" {
			add("open %s", b.CIDR)
		} else {
			add("close %s", b.CIDR)
		}
	}
	list("clear", p.Clear)
	list("mark", p.Mark)
	list("retire", p.Retire)
	if p.Probe {
		add("ask for a report")
	}
	if p.Claim.Addresses > 0 {
		add("claim %d addresses (at most %d blocks, %d published)", p.Claim.Addresses, p.Claim.Blocks, p.Claim.Room)
	}
	if p.Claim.Pins > 0 {
		add("claim %d pinned blocks", p.Claim.Pins)
	}
	list("publish", p.Publish)
	each("assign", p.Assign)
	each("close", p.Close)
	if p.Park.IsValid() {
		add("park %s", p.Park)
	}
	each("unpark", p.Unpark)
	list("remove", p.Remove)
	if p.Forget {
		add("have returned CIDRs forgotten")
	}
	for _, b := range p.CoolDown {
		add("free %s (%s)", b.CIDR, b.Reason)
	}
	each("delete", p.Delete)
	if len(steps) == 0 {
		add("nothing to do")
	}
	if p.Shortage > 0 {
		add("short of %d", p.Shortage)
	}
	for _, obstacle := range p.Obstacles {
		add("%s", obstacle)
	}
	return fmt.Sprintf("%s %s: needs %d of %d: %s", p.Node, p.Family, p.Demand, p.Capacity, strings.Join(steps, "; "))
}

// String is the obstacle in a few words.
func (o Obstacle) String() string {
	if !o.Until.IsZero() {
		return fmt.Sprintf("%s waits for %s until %s", o.CIDR, o.Reason, o.Until.UTC().Format(time.RFC3339))
	}
	if len(o.By) == 0 {
		return fmt.Sprintf("%s waits for %s", o.CIDR, o.Reason)
	}
	return fmt.Sprintf("%s waits for %s %s", o.CIDR, o.Reason, few(o.By))
}

// few names the first three of a list, and counts the rest.
func few[T any](list []T) string {
	var names []string
	for _, one := range list[:min(len(list), 3)] {
		names = append(names, fmt.Sprint(one))
	}
	s := strings.Join(names, ", ")
	if rest := len(list) - len(names); rest > 0 {
		return fmt.Sprintf("%s and %d more", s, rest)
	}
	return s
}
