package main

import (
	"strings"
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/test/bench/bed"
)

// Results of contenders in one mode must not replace those in which modes are compared.
func TestMultiPoolMeasures(t *testing.T) {
	usual := map[string]bool{"modes": true} // has no contenders in other modes
	for name, measures := range multiPoolMeasures(true) {
		m := measures[0]
		if want := name + ", multi-pool mode"; m.name != want && !usual[name] {
			t.Errorf("measure %q is named %q, not %q", name, m.name, want)
		}
		if len(m.contenders) < 2 || !strings.HasPrefix(m.contenders[0].name, "floor: ") {
			t.Errorf("measure %q has no floor in first place, or nothing to compare with it: %d contenders", name, len(m.contenders))
		}
		for _, c := range m.contenders {
			if c.mode != bed.OwnMultiPool && c.mode != bed.MultiPool {
				t.Errorf("measure %q: %s runs in %s mode", name, c.name, c.mode)
			}
		}
	}
}

func TestModeFlag(t *testing.T) {
	for mode, ok := range map[string]bool{"": true, "multi-pool": true, "crd": false} {
		_, err := newBench("run", []string{"-mode=" + mode, "-out=" + t.TempDir()})
		if (err == nil) != ok {
			t.Errorf("-mode=%s: %v", mode, err)
		}
	}
}

// A measure that cannot run is reported before those that precede it have run.
func TestFits(t *testing.T) {
	for args, ok := range map[string]bool{"-measures=storm,rest": true, "-measures=storm,restart": true, "-measures=storm,restart -nodes=70000": false} {
		b, err := newBench("run", append([]string{"-nodes=50000", "-mode=multi-pool", "-out=" + t.TempDir()}, strings.Fields(args)...))
		if err != nil {
			t.Fatal(err)
		}
		if err := b.fits(); (err == nil) != ok {
			t.Errorf("%s with 50,000 nodes unless it says otherwise: %v", args, err)
		}
	}
}
