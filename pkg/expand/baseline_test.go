//go:build baseline

package expand

import (
	"crypto/sha256"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// TestPlansAsRecorded prints hashes of the plans of 100,000 random states, a line per thousand,
// for hack/baseline/run.sh. With PLANS=N it prints the plans of the N-th thousand in full.
//
// It belongs to no run of the tests. Refactoring may rename the fields that it sets, but must keep
// the order of its dice.
func TestPlansAsRecorded(t *testing.T) {
	only, _ := strconv.Atoi(os.Getenv("PLANS"))
	for thousand := 1; thousand <= 100; thousand++ {
		if only != 0 && thousand != only {
			continue
		}
		kind, hash := "addresses", sha256.New()
		if thousand%2 == 0 {
			kind = "blocks"
		}
		for i := range 1000 {
			plans := plansOf(seeded(uint64(1000*thousand+i)), kind == "blocks")
			hash.Write([]byte(plans))
			if only != 0 {
				fmt.Printf("plans %s", strings.ReplaceAll(plans, "\n", "\nplans "))
				fmt.Println("end of state", i)
			}
		}
		fmt.Printf("plans %d %s %.16x\n", thousand, kind, hash.Sum(nil))
	}
}

// plansOf returns three plans of a random state, each with the memory of the one before.
func plansOf(d dice, wholeBlocks bool) string {
	var out strings.Builder
	policy, s := d.policy(), d.state()
	policy.PressurePercent = oneOf(d, 0, 50, 90)
	d.options(&s)
	m := d.memory(s)
	if wholeBlocks {
		d.wholeBlocks(&s)
		m = d.memoryOfBlocks(s)
	} else {
		s.Fresh, s.FamilyDisabled, s.Adopting = d.percent(10), d.percent(10), d.percent(5)
		if s.FamilyDisabled && d.percent(30) {
			s.Release[ReportAddress(s.Family, s.Pool)] = oneOf(d, Marked, DoNotRelease)
		}
	}
	for _, after := range []time.Duration{0, 20 * time.Second, 5 * time.Minute} {
		var p Plan
		p, m = Decide(noon.Add(after), policy, s, m)
		fmt.Fprintln(&out, p, p.Empty(), p.ServedElsewhere, p.RequeueAt)
		// Plan.String names only the first of many.
		fmt.Fprintln(&out, p.Clear, p.Mark, p.Retire, p.Publish, p.Remove)
		if wholeBlocks {
			fmt.Fprintln(&out, s.HasFree())
		} else {
			fmt.Fprintln(&out, Offer(s, p), RoomOf(noon, policy, s), Releasable(noon, policy, s))
		}
		for _, c := range p.Close {
			fmt.Fprintln(&out, c.CIDR, c.Agent, c.Since)
		}
		for _, w := range p.Waits {
			fmt.Fprintln(&out, w.CIDR, w.By, w.Until)
		}
	}
	return out.String()
}

// options sets the options that d.state leaves open, of nodes of both kinds.
func (d dice) options(s *State) {
	delay := func(percent int) Delay {
		if !d.percent(percent) {
			return Delay{}
		}
		return Delay{For: oneOf(d, WaitWindow, WaitTurn, WaitNodes, WaitMode), Until: oneOf(d, time.Time{}, noon.Add(d.seconds(600)))}
	}
	ago := func() time.Time { return oneOf(d, time.Time{}, noon.Add(-d.seconds(900))) }
	s.Created, s.MaxPods = ago(), oneOf(d, 0, 0, 0, d(30))
	s.Cordoned, s.PoolTaken, s.ReclaimDelay = d.percent(15), d(101), delay(15)
	s.OtherFamilyFull = d.percent(10)
	for i := range s.Blocks {
		b := &s.Blocks[i]
		b.Created, b.Delay = ago(), delay(30)
		b.Orphaned = d.percent(4)
		if b.Phase == ipalloc.Draining && d.percent(10) {
			b.Reason = oneOf(d, PoolDeleted, NodeUnselected, PoolChanged, PoolChanged)
		}
	}
	for i := range s.Pods {
		s.Pods[i].Created = ago()
		switch d(20) {
		case 0: // its status names none yet
			s.Pods[i].IPs = nil
		case 1, 2:
			a := slot(1-s.Family, d(8))
			s.Pods[i].IPs, s.Used[a] = append(s.Pods[i].IPs, a), s.Pods[i].Name
		}
		if d.percent(10) {
			s.Ended = append(s.Ended, s.Pods[i].Name)
		}
	}
}

// wholeBlocks makes a node's agent one with whole blocks.
func (d dice) wholeBlocks(s *State) {
	demand := &BlockAssignment{Reported: d.percent(80), Requested: oneOf(d, 0, d(8), d(80)), NoPreallocation: d.percent(15), SingleBlock: d.percent(15)}
	s.Pool = nil
	if d.percent(80) {
		s.Release = nil
	}
	s.Agent, s.MayPark, s.Replaceable = oneOf(d, "", "a", "b"), d.percent(50), d.percent(70)
	for _, a := range sortedAddrs(s.Used) {
		if strings.Contains(s.Used[a], "/") && !d.percent(3) {
			delete(s.Used, a)
		}
	}
	for i := range s.Blocks {
		b := &s.Blocks[i]
		b.Parked, b.Leftover = d.percent(10), d.percent(8)
		b.Listed = b.Phase != ipalloc.CoolingDown && !b.Parked && d.percent(75) || d.percent(3)
		if d.percent(15) {
			b.Closed = Closed{Agent: oneOf(d, "a", "b"), Since: noon.Add(-d.seconds(900))}
		}
		switch {
		case demand.SingleBlock && !b.Listed && d.percent(10):
			demand.Runs = append(demand.Runs, b.CIDR)
		case b.Listed:
			demand.Assigned = append(demand.Assigned, b.CIDR)
		}
	}
	if d.percent(15) {
		foreign := netip.PrefixFrom(slot(s.Family, 99), s.Family.Bits()-3)
		demand.Assigned, demand.Foreign = append(demand.Assigned, foreign), 6
	}
	s.BlockAssignment = demand
}

// memoryOfBlocks returns an arbitrary memory of a node with whole blocks.
func (d dice) memoryOfBlocks(s State) Memory {
	m := Memory{Restored: map[netip.Addr]time.Time{}, Parked: map[netip.Prefix]Parking{}, EmptySince: map[netip.Prefix]time.Time{}}
	ago := func() time.Time { return noon.Add(-d.seconds(900)) }
	for _, b := range s.Blocks {
		if b.Leftover && d.percent(50) {
			m.Assigned = append(m.Assigned, b.CIDR)
		}
		if b.Parked && d.percent(80) || d.percent(10) {
			m.Parked[b.CIDR] = Parking{Agent: oneOf(d, "", "a", "b"), Since: ago()}
		}
		if d.percent(30) {
			m.EmptySince[b.CIDR] = ago()
		}
	}
	for _, p := range s.Pods {
		for _, a := range p.IPs {
			if d.percent(10) {
				m.Restored[a] = oneOf(d, time.Time{}, ago())
			}
		}
	}
	return m
}
