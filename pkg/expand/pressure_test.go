package expand

import (
	"testing"
	"time"
)

func taken(percent int) func(*State) { return func(s *State) { s.PoolTaken = percent } }

func cordoned(s *State) { s.Cordoned = true }

func TestIdleUnder(t *testing.T) {
	type look struct {
		taken    int
		cordoned bool
	}
	for name, c := range map[string]struct {
		pressure int
		looks    map[look]time.Duration
	}{
		"from 90 percent on": {90, map[look]time.Duration{
			{0, false}: 10 * time.Minute, {89, true}: 10 * time.Minute, {90, false}: 10 * time.Minute, {95, false}: 5 * time.Minute,
			{99, false}: time.Minute, {100, false}: time.Minute, {90, true}: time.Minute,
		}},
		"only a full pool": {100, map[look]time.Duration{{99, true}: 10 * time.Minute, {100, false}: time.Minute}},
		"never":            {0, map[look]time.Duration{{100, true}: 10 * time.Minute}},
		"always":           {1, map[look]time.Duration{{0, false}: 10 * time.Minute, {1, false}: 10 * time.Minute, {100, false}: time.Minute}},
	} {
		t.Run(name, func(t *testing.T) {
			p := DefaultPolicy()
			p.PressurePercent = c.pressure
			for l, want := range c.looks {
				if got := p.IdleUnder(l.taken, l.cordoned); got.Round(time.Second) != want {
					t.Errorf("%d%% taken, cordoned %t: %s, want %s", l.taken, l.cordoned, got, want)
				}
			}
		})
	}
}

func TestPressure(t *testing.T) {
	two := []func(*State){full("10.0.0.0/28"), full("10.0.0.16/28"), used("10.0.0.1-10.0.0.2")}
	with := func(more ...func(*State)) State { return node(append(two[:len(two):len(two)], more...)...) }
	goes := []string{"needs 2 of 14", "drain 10.0.0.16/28 Reclaim", "10.0.0.16/28 waits for Handshake"}
	runDecide(t, map[string]decideCase{
		"a nearly full pool gets its blocks back sooner": {
			state: with(taken(95)), memory: idle(5 * time.Minute), want: goes,
		},
		"a cordoned node gives first": {
			state: with(taken(90), cordoned), memory: idle(time.Minute), want: goes,
		},
	})
}

// TestConvergesUnderPressure drives nodes as TestConverges does, while the pressure on their pools,
// cordons and windows come and go: under a constant demand they do not grow after they returned a
// block.
func TestConvergesUnderPressure(t *testing.T) {
	shrank, sooner := 0, 0
	for seed := range rounds(t, 5000) {
		d := seeded(uint64(seed))
		w := newWorld(t, d)
		w.policy.PressurePercent = d(101)
		opens := noon.Add(d.seconds(120))
		held := true
		w.stir = func() (opened bool) {
			w.state.PoolTaken, w.state.Cordoned = 50+d(51), d.percent(30)
			delay := Obstacle{}
			if w.now.Before(opens) {
				delay = Obstacle{Reason: WaitWindow, Until: opens}
			}
			w.state.ReclaimDelay = delay
			for i := range w.state.Blocks {
				w.state.Blocks[i].Delay = delay
			}
			if w.policy.IdleUnder(w.state.PoolTaken, w.state.Cordoned) < w.policy.IdleFor {
				sooner++
			}
			opened, held = held && delay.Reason == "", delay.Reason != ""
			return opened
		}
		w.settle(seed%2 == 0)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
		shrank += min(1, w.reclaims)
	}
	if shrank == 0 || sooner == 0 {
		t.Errorf("the random nodes try nothing: %d shrank, %d looks under pressure", shrank, sooner)
	}
}
