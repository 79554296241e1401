package expand

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestValidate(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*Policy)
		want []string // one to an error
	}{
		"default":         {func(*Policy) {}, nil},
		"no reclaim":      {func(p *Policy) { p.ReclaimDisabled, p.ReclaimPercent = true, 99 }, nil},
		"expand of 0":     {func(p *Policy) { p.ExpandPercent, p.ReclaimDisabled = 0, true }, []string{"ExpandPercent is 0: set it to 1 to 100"}},
		"expand of 101":   {func(p *Policy) { p.ExpandPercent = 101 }, []string{"ExpandPercent is 101: set it to 1 to 100"}},
		"reclaim of -1":   {func(p *Policy) { p.ReclaimPercent = -1 }, []string{"ReclaimPercent is -1: set it to 0 to 99"}},
		"negative free":   {func(p *Policy) { p.MinFree = -1 }, []string{"MinFree is -1: set it to 0 to 4096"}},
		"no blocks":       {func(p *Policy) { p.MaxBlocks = 0 }, []string{"MaxBlocks is 0: set it to 1 to 1024"}},
		"no addresses":    {func(p *Policy) { p.MaxAddresses = 0 }, []string{"MaxAddresses is 0: set it to 1 to 8192"}},
		"too large":       {func(p *Policy) { p.MaxAddresses = 8193 }, []string{"MaxAddresses is 8193: set it to 1 to 8192"}},
		"idle in past":    {func(p *Policy) { p.IdleFor = -time.Second }, []string{"IdleFor is -1s: set it to 0s to 168h0m0s"}},
		"pressure of 101": {func(p *Policy) { p.PressurePercent = 101 }, []string{"PressurePercent is 101: set it to 0 to 100"}},
		"hold in past":    {func(p *Policy) { p.AckHold = -time.Second }, []string{"AckHold is -1s: set it to 0s or more"}},
		"no ack timeout":  {func(p *Policy) { p.AckTimeout = 0 }, []string{"AckTimeout is 0s: set it above 0"}},
		"unreachable":     {func(p *Policy) { p.MinFree, p.MaxAddresses = 9, 9 }, []string{"MinFree is 9, which MaxAddresses (9) never allows: set it below 9"}},
		"reclaim at grow": {func(p *Policy) { p.ReclaimPercent = 80 }, []string{"ReclaimPercent is 80, not below ExpandPercent (80): lower the one or raise the other"}},
		"all at once":     {func(p *Policy) { *p = Policy{MinFree: -1, ReclaimDisabled: true} }, []string{"ExpandPercent is 0", "MinFree is -1", "MaxBlocks is 0", "MaxAddresses is 0", "AckTimeout is 0s"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := DefaultPolicy()
			c.edit(&p)
			err := p.Validate()
			if (err == nil) != (len(c.want) == 0) {
				t.Fatalf("Validate() = %v, want %q", err, c.want)
			}
			if err == nil {
				return
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) != len(c.want) {
				t.Fatalf("got %d errors, want %d:\n%s", len(lines), len(c.want), err)
			}
			for i, line := range lines {
				if !strings.HasPrefix(line, c.want[i]) {
					t.Errorf("error %d is %q, want it to begin with %q", i, line, c.want[i])
				}
			}
		})
	}
}

func TestPlanString(t *testing.T) {
	block := netip.MustParsePrefix("10.0.0.0/29")
	for name, c := range map[string]struct {
		plan  Plan
		empty bool
		want  string
	}{
		"nothing": {Plan{Node: "n1", Demand: 3, Capacity: 14}, true, "n1 ipv4: needs 3 of 14: nothing to do"},
		"waits write nothing": {
			Plan{Node: "n1", Family: 1, Shortage: 2, RequeueAt: noon, Obstacles: []Obstacle{{CIDR: block, Reason: WaitPods, By: []string{"a/1", "a/2", "a/3", "a/4"}}}}, true,
			"n1 ipv6: needs 0 of 0: nothing to do; short of 2; 10.0.0.0/29 waits for Pods a/1, a/2, a/3 and 1 more",
		},
		"everything": {
			Plan{
				Node: "n1", Undrain: []netip.Prefix{block}, Drain: []Drain{{block, Deleted}}, Clear: ips("10.0.0.1"), Mark: ips("10.0.0.1-10.0.0.5"),
				Claim: Claim{1, 2, 3, 4}, Publish: ips("10.0.0.1"), Remove: ips("10.0.0.1"), CoolDown: []CoolDown{{block, Returned}}, Delete: []netip.Prefix{block},
			}, false,
			"n1 ipv4: needs 0 of 0: undrain 10.0.0.0/29; drain 10.0.0.0/29 (Deleted); clear 10.0.0.1; mark 10.0.0.1, 10.0.0.2, 10.0.0.3 and 2 more; " +
				"claim 1 addresses (at most 2 blocks, 3 published); claim 4 pinned blocks; publish 10.0.0.1; remove 10.0.0.1; free 10.0.0.0/29 (Returned); delete 10.0.0.0/29",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, c.plan.String()); diff != "" {
				t.Error(diff)
			}
			if c.plan.Empty() != c.empty {
				t.Errorf("Empty() = %v", !c.empty)
			}
		})
	}
}
