package expand

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

func held(why WaitReason, in time.Duration) func(*Block) {
	return func(b *Block) {
		b.Delay.Reason = why
		if in != 0 {
			b.Delay.Until = noon.Add(in)
		}
	}
}

func reclaimDelayed(in time.Duration) func(*State) {
	return func(s *State) { s.ReclaimDelay = Obstacle{Reason: WaitWindow, Until: noon.Add(in)} }
}

func TestHold(t *testing.T) {
	longAgo := time.Hour
	runDecide(t, map[string]decideCase{
		"a held block serves on, and nothing takes its place": {
			state: node(full("10.0.0.0/28", request(CIDRDraining), held(WaitWindow, 3*time.Hour)), used("10.0.0.1-10.0.0.3")),
			want:  []string{"needs 3 of 14", "10.0.0.0/28 waits for Window until 3h0m0s", "again in 3h0m0s"},
		},
		"it is filled": {
			state: node(lone("10.0.0.0/28", request(CIDRDraining), held(WaitTurn, time.Minute), listed), published("10.0.0.1-10.0.0.13", ""), used("10.0.0.1")),
			want:  []string{"needs 1 of 14", "publish 10.0.0.14", "10.0.0.0/28 waits for Turn until 1m0s", "again in 1m0s"},
		},
		"a drain that has begun goes on": {
			state: node(full("10.0.0.0/28"), full("10.0.0.16/28", draining(CIDRDraining), request(CIDRDraining), held(WaitWindow, time.Hour)), used("10.0.0.1")),
			want:  []string{"needs 1 of 14", "mark 10.0.0.17-10.0.0.30", "10.0.0.16/28 waits for Handshake"},
		},
		"a held block may be reclaimed": {
			state:  node(full("10.0.0.0/28"), full("10.0.0.16/28", request(CIDRDraining), held(WaitTurn, time.Minute)), used("10.0.0.1")),
			memory: idle(longAgo),
			want:   []string{"needs 1 of 14", "drain 10.0.0.16/28 Reclaim", "10.0.0.16/28 waits for Handshake"},
		},
		"nothing is reclaimed that is needed once a held block has left": {
			state:  node(full("10.0.0.0/28", request(CIDRDraining), held(WaitTurn, time.Minute)), full("10.0.0.16/28"), used("10.0.0.1")),
			memory: idle(longAgo),
			want:   []string{"needs 1 of 28", "10.0.0.0/28 waits for Turn until 1m0s", "again in 1m0s"},
		},
		"reclaims are held, and remember since when": {
			state:    node(full("10.0.0.0/28"), full("10.0.0.16/28"), used("10.0.0.1"), reclaimDelayed(2*time.Hour)),
			memory:   idle(longAgo),
			want:     []string{"needs 1 of 28", "again in 2h0m0s"},
			remember: &Memory{IdleSince: []time.Time{noon.Add(-longAgo)}},
		},
	})
}

// TestDelayedIsAsIfNotAsked checks that as long as a request is held, it has no effect, except that no
// block is reclaimed that could be needed when the delay ends, if that is soon.
func TestDelayedIsAsIfNotAsked(t *testing.T) {
	holds := 0
	for seed := range rounds(t, 10_000) {
		d := seeded(uint64(seed))
		p := d.policy()
		s, budget := d.state()
		m, soon := d.memory(s), seed%2 == 0
		p.ReclaimDisabled = p.ReclaimDisabled || soon
		held, free := copyState(s), copyState(s)
		for i := range held.Blocks {
			b := &held.Blocks[i]
			if b.Phase != ipalloc.InService || b.Request == None {
				continue
			}
			delay := Obstacle{Reason: oneOf(d, WaitWindow, WaitTurn), Until: noon.Add(oneOf(d, delaySoon, 10*time.Hour))}
			if soon {
				delay.Until = noon.Add(time.Minute)
			}
			if i%2 == 0 { // by its State, or by the budget
				b.Delay = delay
			} else {
				budget.Postpone(b.CIDR, delay)
			}
			free.Blocks[i].Request = None
			holds++
		}
		if soon && slices.ContainsFunc(held.Blocks, func(b Block) bool { return b.Phase == ipalloc.Draining }) {
			continue // no address of the agent's own moves to a block that leaves soon
		}
		got, gotMemory := checkPure(t, p, held, budget, m)
		want, wantMemory := Decide(noon, p, free, budget, m)
		for i := range held.Blocks { // as the rules read it
			held.Blocks[i] = *budget.limit(&held.Blocks[i])
		}
		for _, rule := range broken(noon, p, held, budget, m, got) {
			t.Errorf("%s\npolicy %+v\nstate %+v\nplan %s", rule, p, held, got)
		}
		got.Obstacles, want.Obstacles, got.RequeueAt, want.RequeueAt = nil, nil, time.Time{}, time.Time{}
		if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(gotMemory, wantMemory) {
			t.Errorf("held: %s\nnot asked: %s", got, want)
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if holds == 0 {
		t.Error("the random states delay nothing")
	}
}

// TestUnrequestedDrain checks that a request that does not count has no effect on a drain that has begun.
func TestUnrequestedDrain(t *testing.T) {
	unrequested := 0
	for seed := range rounds(t, 10_000) {
		d := seeded(uint64(seed))
		p := d.policy()
		s, budget := d.state()
		m := d.memory(s)
		free := copyState(s)
		for i := range free.Blocks {
			if b := &free.Blocks[i]; b.Phase == ipalloc.Draining && b.Request != None {
				budget.Unrequest(b.CIDR)
				b.Request = None
				unrequested++
			}
		}
		got, gotMemory := checkPure(t, p, s, budget, m)
		want, wantMemory := Decide(noon, p, free, budget, m)
		if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(gotMemory, wantMemory) || Offer(s, budget, got) != Offer(free, budget, want) {
			t.Fatalf("seed %d: %s\nnot asked: %s", seed, got, want)
		}
	}
	if unrequested == 0 {
		t.Error("the random states have no such drain")
	}
}
