package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/sim/world"
)

// The first steps of each scope break no rule, and there is more than one way.
func TestLongFirstSteps(t *testing.T) {
	for _, s := range scopes() {
		t.Run(s.name, func(t *testing.T) {
			x := newSearch(s, 3, 0)
			x.run()
			if x.found != nil {
				t.Fatalf("%s\n%s", x.found.text, script(s.name, x.found.actions))
			}
			if f := x.figures; f.again == 0 || f.states < 5 || f.states+f.again != f.transitions+1 {
				t.Errorf("%s", f)
			}
		})
	}
}

// hurried is a world in which the second operator gives blocks up too early.
func hurried() scope {
	s, _ := scopeNamed("return")
	s.faults |= world.Upgrade
	s.change = func(c *world.Config) {
		c.Upgraded = c.Settings
		c.Upgraded.Defaults.Cooldown = time.Second
	}
	before := s.before
	s.before = func(p *prelude) {
		p.do(world.Start, "op2", "")
		p.do(world.UpgradeOp, "op2", "")
		before(p)
	}
	return s
}

// A rule that is broken is found, by as few actions as it takes.
func TestFindsBrokenRule(t *testing.T) {
	s := hurried()
	x := newSearch(s, 8, 0)
	x.run()
	if x.found == nil || !strings.Contains(x.found.text, "rule 1") {
		t.Fatalf("found %v in %s", x.found, x.figures)
	}
	w := s.replay(x.prelude, x.found.actions)
	defer w.Close()
	if len(w.Violations) == 0 {
		t.Errorf("no rule breaks when it happens again:\n%s", script(s.name, x.found.actions))
	}
	for i := range x.found.actions {
		w := s.replay(x.prelude, x.found.actions[:i])
		w.Close()
		if len(w.Violations) > 0 {
			t.Errorf("a rule is broken after %d of %d actions", i, len(x.found.actions))
		}
	}
}

func TestCommand(t *testing.T) {
	file := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(file, []byte("scope join\nreconcile op1 node/n1\ncall op1 node/n1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args []string
		code int
		says string
	}{
		"a scope":         {[]string{"-scopes=drain", "-depth=2"}, 0, "drain: done: depth 2, "},
		"too many states": {[]string{"-scopes=join", "-states=20"}, 0, "not exhaustive"},
		"no such scope":   {[]string{"-scopes=joy"}, 2, "no such scope"},
		"replay":          {[]string{"-replay=" + file}, 0, "create PodIPBlock"},
		"no script":       {[]string{"-replay=" + file + "x"}, 2, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			if code := run(test.args, &out); code != test.code || !strings.Contains(out.String(), test.says) {
				t.Errorf("exit code %d, and it says\n%s", code, out.String())
			}
		})
	}
}
