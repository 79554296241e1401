package main

import (
	"strings"
	"testing"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/chaos/etcd"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane/cptest"
)

// TestLongScenarios runs scenarios in small: a few of their faults, each once. The others take
// as much time again, and run every night.
func TestLongScenarios(t *testing.T) {
	t.Parallel()
	bin := binaries(t)
	for _, name := range []string{"network", "apiservers", "soak", "renumber"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			oneOfEach(t, settings{BinDir: bin, Nodes: 4, Small: true, Faults: time.Second, Seed: 1, Run: name, Rest: 5 * time.Second})
		})
	}
}

func TestScenariosByName(t *testing.T) {
	for _, s := range scenarios() {
		found, err := parseScenario(s.name)
		if err != nil || found.name != s.name || s.finds == "" {
			t.Errorf("scenario %s: found %q, which finds %q, %v", s.name, found.name, s.finds, err)
		}
		if !strings.Contains(usageOfScenarios(), s.finds) {
			t.Errorf("the usage does not tell of %s", s.name)
		}
	}
	for name, args := range map[string][]string{
		"no such scenario": {"--run=weather"}, "no such fault": {"--run=network", "--only=etcd killed"}, "a fault of a soak": {"--run=soak", "--only=etcd killed"},
	} {
		if err := command(t.Context(), args); exitCode(t.Context(), err) != 2 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestMembers checks that etcd with three members transfers its leadership, and serves as long
// as two run.
func TestMembers(t *testing.T) {
	c := cptest.New(t, controlplane.Options{EtcdMembers: 3})
	r := &chaos{settings: settings{Run: "etcd"}, scenario: settings{Run: "etcd"}.scenario(), cluster: c}
	leads, err := r.memberLeader(t.Context(), noMember)
	if err != nil {
		t.Fatal(err)
	}
	next, err := etcd.MoveLeader(t.Context(), r.sockets()...)
	if err != nil || next == leads {
		t.Fatalf("after member %d leads %d, %v", leads, next, err)
	}
	if got, err := r.memberLeader(t.Context(), leads); err != nil || got != next {
		t.Errorf("member %d leads, %v, want %d", got, err, next)
	}
	if err := c.KillEtcdMember(next); err != nil {
		t.Fatal(err)
	}
	if _, err := r.memberLeader(t.Context(), next); err != nil {
		t.Error(err)
	}
	if err := c.Ready(t.Context()); err != nil {
		t.Error(err)
	}
}
