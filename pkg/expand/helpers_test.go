package expand

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// noon is the time of every table test.
var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func testPolicy() Policy {
	p := DefaultPolicy()
	p.MinFree, p.MaxBlocks, p.MaxAddresses = 2, 4, 100
	return p
}

// ips parses "10.0.0.1-10.0.0.3 10.0.0.9".
func ips(s string) []netip.Addr {
	var out []netip.Addr
	for _, field := range strings.Fields(s) {
		from, to, isRange := strings.Cut(field, "-")
		if !isRange {
			to = from
		}
		last := netip.MustParseAddr(to)
		for a := netip.MustParseAddr(from); a.Compare(last) <= 0; a = a.Next() {
			out = append(out, a)
		}
	}
	return out
}

// ranges is the inverse of ips.
func ranges(addrs []netip.Addr) string {
	var out []string
	for i := 0; i < len(addrs); {
		j := i
		for j+1 < len(addrs) && addrs[j].Next() == addrs[j+1] {
			j++
		}
		if i == j {
			out = append(out, addrs[i].String())
		} else {
			out = append(out, addrs[i].String()+"-"+addrs[j].String())
		}
		i = j + 1
	}
	return strings.Join(out, " ")
}

// node returns a settled node's state with a report, changed by edits.
func node(edits ...func(*State)) State {
	s := State{
		Node: "n1", AgentReady: true, AgentSettled: true,
		Pool: map[netip.Addr]string{}, Used: map[netip.Addr]string{}, Release: map[netip.Addr]ReleaseStatus{},
	}
	for _, edit := range edits {
		edit(&s)
	}
	slices.SortFunc(s.Blocks, func(a, b Block) int { return a.CIDR.Compare(b.CIDR) })
	return s
}

// inner returns the addresses of a block except the first and last.
func inner(c netip.Prefix) []netip.Addr {
	var out []netip.Addr
	for a := c.Addr().Next(); c.Contains(a.Next()); a = a.Next() {
		out = append(out, a)
	}
	return out
}

// lone adds a block that is not published.
func lone(cidr string, edits ...func(*Block)) func(*State) {
	return func(s *State) {
		c := netip.MustParsePrefix(cidr)
		b := Block{CIDR: c, Usable: inner(c)}
		for _, edit := range edits {
			edit(&b)
		}
		s.Blocks = append(s.Blocks, b)
	}
}

// full adds a block with all usable addresses published.
func full(cidr string, edits ...func(*Block)) func(*State) {
	return func(s *State) {
		lone(cidr, edits...)(s)
		for _, a := range inner(netip.MustParsePrefix(cidr)) {
			s.Pool[a] = ""
		}
		s.Blocks[len(s.Blocks)-1].Listed = true
	}
}

func draining(why Reason) func(*Block) {
	return func(b *Block) { b.Phase, b.Reason = ipalloc.Draining, why }
}

func cooling(why Reason, until time.Time) func(*Block) {
	return func(b *Block) { b.Phase, b.Reason, b.CooldownUntil = ipalloc.CoolingDown, why, until }
}

func request(why Reason) func(*Block) { return func(b *Block) { b.Request = why } }

func pinned(b *Block) { b.Pinned = true }

func missing(pins int) func(*State) { return func(s *State) { s.Pins = pins } }

func conflict(b *Block) { b.Conflict = true }

// remade sets when the node's CiliumNode was created.
func remade(at time.Time) func(*State) { return func(s *State) { s.Created = at } }

func orphaned(b *Block) { b.Orphaned, b.Request = true, PoolDeleted }

func leftover(b *Block) { b.Leftover = true }

func listed(b *Block) { b.Listed = true }

// reserved makes addresses unpublishable.
func reserved(s string) func(*Block) {
	return func(b *Block) {
		b.Usable = slices.DeleteFunc(b.Usable, func(a netip.Addr) bool { return slices.Contains(ips(s), a) })
	}
}

func published(s, owner string) func(*State) {
	return func(st *State) {
		for _, a := range ips(s) {
			st.Pool[a] = owner
		}
	}
}

// used reports each address as a pod's, "default/<address>".
func used(s string) func(*State) {
	return func(st *State) {
		for _, a := range ips(s) {
			st.Used[a] = "default/" + a.String()
		}
	}
}

func usedBy(s, owner string) func(*State) {
	return func(st *State) {
		for _, a := range ips(s) {
			st.Used[a] = owner
		}
	}
}

// pods adds n pods without an address.
func pods(n int) func(*State) {
	return func(s *State) {
		for i := range n {
			s.Pods = append(s.Pods, Pod{Name: fmt.Sprintf("default/new-%d", i)})
		}
	}
}

func came(name string, seen time.Time) func(*State) {
	return func(s *State) { s.Pods = append(s.Pods, Pod{Name: name, Seen: seen}) }
}

// accepted says when a pod's kubelet accepted it.
func accepted(name string, ago time.Duration) func(*State) {
	return func(s *State) {
		for i := range s.Pods {
			if s.Pods[i].Name == name {
				s.Pods[i].Accepted = noon.Add(ago)
			}
		}
	}
}

func pod(name, addrs string) func(*State) {
	return func(s *State) { s.Pods = append(s.Pods, Pod{Name: name, IPs: ips(addrs)}) }
}

func entries(s string, is ReleaseStatus) func(*State) {
	return func(st *State) {
		for _, a := range ips(s) {
			st.Release[a] = is
		}
	}
}

func own(s string) func(*State) { return func(st *State) { st.Own = append(st.Own, ips(s)...) } }

func maxPods(n int) func(*State) { return func(s *State) { s.MaxPods = n } }

func limits(l Limits) func(*State) { return func(s *State) { s.Limits = l } }

func unsettled(s *State) {
	s.AgentReady = false
	s.AgentSettled = false
}

func gone(s *State) { s.Gone = true }

func budget(reclaims int) *Budget { return &Budget{Reclaims: reclaims} }

func since(ago time.Duration, s string) map[netip.Addr]time.Time {
	out := map[netip.Addr]time.Time{}
	for _, a := range ips(s) {
		out[a] = noon.Add(-ago)
	}
	return out
}

// idle returns a Memory with k+1 blocks idle for ago[k].
func idle(ago ...time.Duration) Memory {
	var m Memory
	for _, d := range ago {
		m.IdleSince = append(m.IdleSince, noon.Add(-d))
	}
	return m
}

// describe returns the whole plan, one line per step.
func describe(p Plan) []string {
	out := []string{fmt.Sprintf("needs %d of %d", p.Demand, p.Capacity)}
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	list := func(verb string, addrs []netip.Addr) {
		if len(addrs) > 0 {
			add("%s %s", verb, ranges(addrs))
		}
	}
	for _, c := range p.Undrain {
		add("undrain %s", c)
	}
	for _, d := range p.Drain {
		add("drain %s %s", d.CIDR, d.Reason)
	}
	for _, c := range p.RecordClosed {
		if c.Agent == "" {
			add("open %s", c.CIDR)
			continue
		}
		mark := map[bool]string{true: ", inferred"}[c.Inferred]
		if c.Fruitless > 0 {
			mark += fmt.Sprintf(", %d fruitless", c.Fruitless)
		}
		add("close %s by %s since %s%s", c.CIDR, c.Agent, c.Since.Sub(noon), mark)
	}
	list("clear", p.Clear)
	list("mark", p.Mark)
	list("retire", p.Retire)
	if p.Probe {
		add("ask")
	}
	if p.Claim.Pins > 0 {
		add("claim %d pinned", p.Claim.Pins)
	}
	if p.Claim.Addresses > 0 {
		add("claim %d in %d blocks, room %d", p.Claim.Addresses, p.Claim.Blocks, p.Claim.Room)
	}
	list("publish", p.Publish)
	for _, c := range p.Assign {
		add("assign %s", c)
	}
	for _, c := range p.Close {
		add("close %s", c)
	}
	if p.Park.IsValid() {
		add("park %s", p.Park)
	}
	for _, c := range p.Unpark {
		add("unpark %s", c)
	}
	list("remove", p.Remove)
	if p.Forget {
		add("forget")
	}
	for _, f := range p.CoolDown {
		add("free %s %s", f.CIDR, f.Reason)
	}
	for _, c := range p.Delete {
		add("delete %s", c)
	}
	if p.Shortage != 0 {
		add("short of %d", p.Shortage)
	}
	for _, w := range p.Obstacles {
		if !w.Until.IsZero() {
			add("%s waits for %s until %s", w.CIDR, w.Reason, w.Until.Sub(noon))
			continue
		}
		add("%s", strings.TrimSpace(fmt.Sprintf("%s waits for %s %s", w.CIDR, w.Reason, strings.Join(w.By, " "))))
	}
	if !p.RequeueAt.IsZero() {
		add("again in %s", p.RequeueAt.Sub(noon))
	}
	return out
}

type decideCase struct {
	policy func(*Policy)
	state  State
	budget *Budget // nil: one reclaim
	memory Memory
	want   []string
	// remember is checked if it is set.
	remember *Memory
}

// runDecide decides each case twice: alone, and beside addresses of the other family, which must not matter. No decision
// changes its state or its memory.
func runDecide(t *testing.T, cases map[string]decideCase) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := testPolicy()
			if c.policy != nil {
				c.policy(&p)
			}
			if c.budget == nil {
				c.budget = budget(1)
			}
			for twin, state := range map[string]State{"alone": c.state, "beside the other family": withOtherFamily(c.state)} {
				inputs := fmt.Sprintf("%+v %+v %+v", state, state.BlockAssignment, c.memory)
				plan, memory := Decide(noon, p, state, *c.budget, c.memory)
				if diff := cmp.Diff(c.want, describe(plan)); diff != "" {
					t.Errorf("%s: plan (-want +got):\n%s", twin, diff)
				}
				if c.remember != nil {
					if diff := cmp.Diff(*c.remember, memory, addrKeys, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
						t.Errorf("%s: memory (-want +got):\n%s", twin, diff)
					}
				}
				if diff := cmp.Diff(inputs, fmt.Sprintf("%+v %+v %+v", state, state.BlockAssignment, c.memory)); diff != "" {
					t.Errorf("%s: it changed its inputs (-was +is):\n%s", twin, diff)
				}
			}
		})
	}
}

// withOtherFamily adds addresses of the other family to a state: used by a pod that has one of each family, the agent's
// own, free, and leaving.
func withOtherFamily(s State) State {
	other := ips("fd00:9::1-fd00:9::4")
	if s.Family == ipalloc.IPv6 {
		other = ips("10.9.0.1-10.9.0.4")
	}
	s.Pods = slices.Clone(s.Pods)
	used := map[netip.Addr]string{other[1]: "router"}
	for i, p := range s.Pods {
		if len(p.IPs) > 0 {
			s.Pods[i].IPs = append(slices.Clone(p.IPs), other[0])
			used[other[0]] = p.Name
			break
		}
	}
	maps.Copy(used, s.Used)
	s.Used = used
	s.Own = append(slices.Clone(s.Own), other[1])
	if s.BlockAssignment != nil {
		return s
	}
	pool := map[netip.Addr]string{}
	for _, addr := range other {
		pool[addr] = ""
	}
	maps.Copy(pool, s.Pool)
	s.Pool = pool
	release := map[netip.Addr]ReleaseStatus{other[3]: Marked}
	maps.Copy(release, s.Release)
	s.Release = release
	return s
}

func remembering(cidrs ...string) Memory {
	var m Memory
	for _, c := range cidrs {
		m.Assigned = append(m.Assigned, netip.MustParsePrefix(c))
	}
	return m
}

// relistedFor remembers addresses that a block was listed again for.
func relistedFor(addrs string, since time.Time) Memory {
	m := Memory{Restored: map[netip.Addr]time.Time{}}
	for _, a := range ips(addrs) {
		m.Restored[a] = since
	}
	return m
}

var addrKeys = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
