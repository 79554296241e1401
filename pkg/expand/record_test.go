package expand

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

const (
	recordFile  = "testdata/plans.record"
	recordLines = 100
	statesALine = 1000
)

// TestPlansAreRecorded holds the plans for random states in three modes to a record of them, with one hash
// for each thousand states. It guards a change of the code that must not change what it decides, and goes with
// that change. Without a record it writes one.
func TestPlansAreRecorded(t *testing.T) {
	lines := make([]string, recordLines)
	for i := range lines {
		hash := fnv.New64a()
		for j := range statesALine {
			fmt.Fprintln(hash, decided(uint64(i*statesALine+j)))
		}
		lines[i] = fmt.Sprintf("%016x", hash.Sum64())
	}
	body, err := os.ReadFile(recordFile)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.WriteFile(recordFile, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range strings.Fields(string(body)) {
		if lines[i] != want {
			t.Errorf("seeds %d to %d: decided otherwise than recorded", i*statesALine, (i+1)*statesALine-1)
		}
	}
}

// decided describes the decision about a random state, its memory and its offer included.
func decided(seed uint64) string {
	d := seeded(seed)
	policy := d.policy()
	s, budget := d.anyState(seed)
	m := d.anyMemory(s)
	policy.PressurePercent = oneOf(d, 0, 0, 90)
	plan, next := Decide(noon, policy, s, budget, m)
	var perBlock []any
	for _, b := range s.Blocks {
		perBlock = append(perBlock, s.Uses(b.CIDR), s.FirstBlockMayLeave(b.CIDR))
	}
	hasFree := s.BlockAssignment != nil && s.HasFree()
	return fmt.Sprint(
		"undrain", plan.Undrain, "drain", plan.Drain, "close", plan.RecordClosed, "clear", plan.Clear, "mark", plan.Mark, "retire", plan.Retire,
		"ask", plan.Probe, "claim", plan.Claim, "publish", plan.Publish, "assign", plan.Assign, "park", plan.Park, plan.Unpark,
		"remove", plan.Remove, "free", plan.CoolDown, "delete", plan.Delete, "needs", plan.Demand, plan.Capacity, plan.ServedElsewhere, plan.Shortage,
		"waits", plan.Obstacles, "requeue", plan.RequeueAt,
		"memory", next.IdleSince, next.MarkedSince, next.AckedSince, next.AwaitingPodsSince, next.Assigned, next.Restored, next.Parked,
		next.EmptySince, next.FreeSince, next.Witness,
		"offer", Offer(s, budget, plan), "room", RoomOf(noon, policy, s), "releasable", Recallable(noon, policy, s),
		s.RunsFamily(), s.RunsWithAnother(), perBlock, hasFree, "empty", plan.Empty(), plan.String(),
	)
}

// anyState is a state of any mode: of addresses, of blocks, or of a single block.
func (d dice) anyState(seed uint64) (State, Budget) {
	s, budget := d.state()
	s.Adopting = d.percent(3)
	s.FamilyDisabled = d.percent(6)
	s.Fresh = d.percent(5)
	s.Cordoned = d.percent(10)
	s.PoolTaken = d(101)
	s.MaxPods = oneOf(d, 0, 0, d(30))
	s.Created = noon.Add(-d.seconds(600))
	if d.percent(10) {
		s.ReclaimDelay = Obstacle{Reason: WaitTurn, Until: noon.Add(d.seconds(600))}
	}
	for i := range s.Blocks {
		b := &s.Blocks[i]
		b.Created = noon.Add(-d.seconds(1200))
		b.Orphaned = d.percent(3)
		if b.Phase == ipalloc.Draining && d.percent(15) {
			b.Reason = PoolChanged
			b.Request = PoolChanged
		}
		if b.Request != None && d.percent(30) {
			b.Delay = Obstacle{Reason: oneOf(d, WaitWindow, WaitTurn, WaitNodes, WaitNoWindow), Until: noon.Add(d.seconds(7200))}
		}
	}
	for i := range s.Pods {
		if len(s.Pods[i].IPs) == 0 && d.percent(30) {
			s.Pods[i].Seen = noon.Add(-d.seconds(20000))
		}
		s.Pods[i].Created = s.Pods[i].Seen.Add(-d.seconds(60))
		if d.percent(20) {
			s.Ended = append(s.Ended, s.Pods[i].Name)
		}
	}
	if seed%3 == 0 {
		return s, budget
	}
	return d.wholeBlocks(s, seed%3 == 2), budget
}

// wholeBlocks turns a state into one of an agent that is assigned whole blocks.
func (d dice) wholeBlocks(s State, single bool) State {
	w := &BlockAssignment{
		Reported: !d.percent(15), Requested: d(40), NoPreallocation: d.percent(10), PreAllocation: oneOf(d, 0, 4, 8), SingleBlock: single,
	}
	w.Agent = oneOf(d, "c1", "c1", "c2", "")
	w.MayPark, w.PoolHasFree, w.MayHaveClosed = d.percent(60), d.percent(60), d.percent(30)
	w.MayCompact, w.Regains, w.OtherFamilyFull = d.percent(40), d.percent(5), d.percent(5)
	s.Pool = map[netip.Addr]string{}
	for i := range s.Blocks {
		b := &s.Blocks[i]
		b.Size = len(b.Usable)
		b.Usable = nil
		b.Listed = d.percent(60) && !single || single && i == 0 && d.percent(70)
		b.Parked = b.Listed && d.percent(6)
		b.Leftover = d.percent(4)
		if b.Phase == ipalloc.Draining && d.percent(30) {
			b.Reason = Compaction
		}
		if d.percent(20) {
			b.Closed = Closed{Agent: oneOf(d, "c1", "c2"), Since: noon.Add(-d.seconds(1000)), Inferred: d.percent(30), Fruitless: d(3)}
		}
		if b.Listed {
			w.Assigned = append(w.Assigned, b.CIDR)
		} else if d.percent(4) {
			w.ActiveCIDRs = append(w.ActiveCIDRs, b.CIDR)
		}
	}
	if d.percent(8) {
		w.Foreign = d(20)
	}
	s.BlockAssignment = w
	return s
}

func (d dice) anyMemory(s State) Memory {
	m := d.memory(s)
	for _, b := range s.Blocks {
		if b.Parked || d.percent(5) {
			remember(&m.Parked, b.CIDR, Parking{Agent: oneOf(d, "c1", "c2", ""), Since: noon.Add(-d.seconds(900))})
		}
		if d.percent(15) {
			remember(&m.EmptySince, b.CIDR, noon.Add(-d.seconds(900)))
		}
		if d.percent(20) {
			m.Assigned = append(m.Assigned, b.CIDR)
		}
		if d.percent(5) {
			remember(&m.Restored, b.CIDR.Addr().Next(), oneOf(d, time.Time{}, noon.Add(-d.seconds(600))))
		}
	}
	for _, pod := range s.Pods {
		if d.percent(60) {
			remember(&m.FreeSince, pod.Name, oneOf(d, pod.Seen.Add(d.seconds(60)), noon.Add(-d.seconds(5000))))
		}
	}
	if len(s.Pods) > 0 {
		m.Witness = s.Pods[d(len(s.Pods))].Name
	}
	m.Assigned = slices.Clip(m.Assigned)
	return m
}
