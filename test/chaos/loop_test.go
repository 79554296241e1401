package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

func TestLoopIsTakenUpAgain(t *testing.T) {
	ours := settings{Nodes: 20, Faults: time.Minute}
	begun := progressFile{Nodes: 20, Faults: time.Minute, First: 7000, Done: 3, Sum: report{Runs: 3}}
	for name, c := range map[string]struct {
		state     *progressFile
		count     int
		seed      uint64
		restart   bool
		nodes     int
		mode      mode
		wantDone  int
		wantFirst uint64 // 0: any but the previous loop's
		wantErr   bool
	}{
		"nothing was done yet":        {count: 10},
		"nothing yet, a seed given":   {count: 10, seed: 5, wantFirst: 5},
		"goes on":                     {state: &begun, count: 10, wantDone: 3, wantFirst: 7000},
		"begins anew by RESTART":      {state: &begun, count: 10, restart: true},
		"begins anew when it is done": {state: &begun, count: 3},
		"one seed again":              {state: &begun, count: 1, seed: 7003, wantFirst: 7003},
		"with other nodes":            {state: &begun, count: 10, nodes: 50, wantErr: true},
		"in another mode":             {state: &begun, count: 10, mode: kubernetesMode, wantErr: true},
		"in the mode that is default": {state: &begun, count: 10, mode: crdMode, wantDone: 3, wantFirst: 7000},
	} {
		t.Run(name, func(t *testing.T) {
			l := loop{settings: ours, runDir: t.TempDir(), count: c.count, restart: c.restart}
			l.Seed, l.Mode = c.seed, c.mode
			if c.state != nil {
				harness.Must(t, l.save(c.state))
			}
			if c.nodes > 0 {
				l.Nodes = c.nodes
			}
			p, err := l.begin()
			if (err != nil) != c.wantErr {
				t.Fatalf("error: %v", err)
			}
			if err != nil {
				return
			}
			if p.Done != c.wantDone {
				t.Errorf("%d runs are done, want %d", p.Done, c.wantDone)
			}
			if c.wantFirst != 0 && p.First != c.wantFirst || c.wantFirst == 0 && (p.First == begun.First || p.First == 0) {
				t.Errorf("first seed %d, want %d", p.First, c.wantFirst)
			}
		})
	}
}

func TestFailedRunIsKept(t *testing.T) {
	l := loop{runDir: t.TempDir()}
	harness.Must(t, os.Mkdir(filepath.Join(l.runDir, "run"), 0o700))
	err := l.failed(t.Context(), settings{Seed: 42, Nodes: 20, Faults: time.Minute}, nil, errors.New("it broke"))
	for _, want := range []string{"it broke", "failed-42", "make chaos SEED=42 NODES=20 FAULTS=1m0s"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not tell %q", err, want)
		}
	}
	if _, err := os.Stat(filepath.Join(l.runDir, "failed-42")); err != nil {
		t.Error(err)
	}
	if got := (settings{Nodes: 20, Faults: time.Minute, Mode: multiPoolMode}).args(); got != "NODES=20 FAULTS=1m0s MODE=multi-pool" {
		t.Errorf("again with %s", got)
	}
}

func TestReportsAddUp(t *testing.T) {
	one := &report{Runs: 1, Seconds: 60, Faults: map[string]int{string(etcdKilled): 2}, Figures: map[string]int{blocksClaimed: 10}}
	var sum report
	sum.add(one)
	sum.add(one)
	data, err := json.Marshal(sum)
	if err != nil {
		t.Fatal(err)
	}
	var again report
	harness.Must(t, json.Unmarshal(data, &again))
	again.add(one)
	var out strings.Builder
	again.print(&out)
	for _, want := range []string{"3  runs, of 3m0s", "6  faults injected", "6  - etcd killed", "30  blocks claimed"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report has no %q:\n%s", want, &out)
		}
	}
}

func TestCommandLine(t *testing.T) {
	for name, args := range map[string][]string{
		"too few nodes": {"--nodes=3"}, "too many nodes": {"--nodes=501"}, "no runs": {"--count=0"},
		"no mode": {"--mode=eni"}, "an argument": {"now"}, "an unknown flag": {"--whatever"},
	} {
		t.Run(name, func(t *testing.T) {
			err := command(t.Context(), args)
			if !errors.Is(err, errUsage) || exitCode(t.Context(), err) != 2 {
				t.Errorf("error: %v", err)
			}
		})
	}
}

func TestEditWhoseAnswerWasLostIsNotDoneTwice(t *testing.T) {
	a, b := v1alpha1.PoolCIDR{CIDR: "10.0.0.0/24", AllocationPolicy: v1alpha1.AllocationDrain}, v1alpha1.PoolCIDR{CIDR: "10.0.1.0/24"}
	want := []v1alpha1.PoolCIDR{a, b}
	once := with([]v1alpha1.PoolCIDR{a}, b)
	if diff := cmp.Diff(want, once); diff != "" {
		t.Errorf("once (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, with(once, b)); diff != "" {
		t.Errorf("twice (-want +got):\n%s", diff)
	}
}
