package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/test/sim/world"
)

// shrink looks for fewer faults and fewer actions that break the same rule, by delta debugging,
// within the given time.
func shrink(s script, as world.Violation, within time.Duration) script {
	end := time.Now().Add(within)
	fails := func(s script) bool {
		out := s.run(nil)
		return len(out.violations) > 0 && gist(out.violations[0]) == gist(as)
	}
	for _, one := range world.Each(s.faults) {
		if less := (script{s.origin, s.faults &^ one, s.actions}); fails(less) {
			s = less
		}
	}
	for size := max(1, len(s.actions)/2); ; size /= 2 {
		removed := false
		for at := 0; at < len(s.actions) && time.Now().Before(end); {
			rest := slices.Concat(s.actions[:at], s.actions[min(at+size, len(s.actions)):])
			if less := (script{s.origin, s.faults, rest}); fails(less) {
				s, removed = less, true
			} else {
				at += size
			}
		}
		if time.Now().After(end) || size <= 1 && !removed {
			return s
		}
		size = max(size, 2)
	}
}

// gist returns a violation without its numbers.
func gist(v world.Violation) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune("0123456789.:-/", r) {
			return -1
		}
		return r
	}, v.String())
}

// script is the sequence of actions in a world. Actions that are impossible when their turn
// comes are skipped.
type script struct {
	origin
	faults  world.Faults
	actions []world.Action
}

// String returns the notation of parseScript.
func (s script) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d\nmode %s\nprofile %s\ntraits %s\nfaults %s\n", s.seed, s.mode, s.profile, s.traits, s.faults)
	for _, a := range s.actions {
		fmt.Fprintln(&b, a)
	}
	return b.String()
}

// parseScript reads the seed, the mode unless it is crd, the profile unless it is plain, the
// traits if there are any, the faults, and one action per line. Lines that begin with # are
// comments.
func parseScript(text string) (script, error) {
	s := script{origin: origin{mode: ciliumnode.CRD, profile: plain}}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		name, value, _ := strings.Cut(line, " ")
		var err error
		switch {
		case line == "", strings.HasPrefix(line, "#"):
		case name == "seed":
			s.seed, err = strconv.ParseUint(value, 10, 64)
		case name == "profile":
			s.profile, err = parseProfile(value)
		case name == "mode":
			s.mode, err = parseMode(value)
		case name == "traits":
			s.traits, err = parseTraits(value)
		case name == "faults":
			s.faults, err = world.ParseFaults(value)
		default:
			var a world.Action
			a, err = world.ParseAction(line)
			s.actions = append(s.actions, a)
		}
		if err != nil {
			return s, err
		}
	}
	return s, nil
}

func (s script) run(trace func(string)) outcome {
	i := 0
	return inWorld(s.origin, s.faults, trace, func(w *world.World) (world.Action, bool) {
		for ; i < len(s.actions); i++ {
			if w.Can(s.actions[i]) {
				i++
				return s.actions[i-1], true
			}
		}
		return world.Action{}, false
	})
}
