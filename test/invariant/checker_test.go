package invariant_test

import (
	"net/netip"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane/cptest"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
)

var shared cptest.Shared

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

func TestJudges(t *testing.T) {
	w := newWorld(t, shared.Cluster(t).Config(), invariant.Options{Judges: func(v invariant.Violation) bool { return v.Rule != 7 }})
	write(t, w, "cn a unpublish 172.16.0.1 10.9.0.1")
	w.finds("2 cn a")
}

func TestEveryVersionIsSeenInOrder(t *testing.T) {
	var got, want []string
	w := newWorld(t, shared.Cluster(t).Config(), invariant.Options{OnChange: func(c invariant.Change) {
		if c.Name == "b" && c.Kind == invariant.KindCiliumNode {
			got = append(got, c.New.GetLabels()["value"])
		}
	}})
	for i := range 50 {
		want = append(want, strconv.Itoa(i))
		write(t, w, "cn b label "+want[i])
	}
	w.finds()
	if n := w.checker.Stats().Versions[invariant.KindCiliumNode]; !slices.Equal(got, want) || n != len(want) {
		t.Errorf("got versions %v, and counted %d; want %v", got, n, want)
	}
}

func TestAPIServerRestarts(t *testing.T) {
	cluster := cptest.New(t, controlplane.Options{})
	w := newWorld(t, cluster.Config(), invariant.Options{})
	w.Must(cluster.KillAPIServer())
	w.Must(cluster.StartAPIServer(w.Ctx))
	w.finds() // The watches are back, and there was no write meanwhile.
	write(t, w, "cn a unpublish 10.9.0.1")
	w.finds("2 cn a")
	if gaps := w.checker.Stats().Gaps; gaps != 0 {
		t.Errorf("%d gaps, though nothing was written meanwhile", gaps)
	}
	// Writes before the watches are back may be missed, but not an IP in two pools.
	w.Must(cluster.KillAPIServer())
	w.Must(cluster.StartAPIServer(w.Ctx))
	write(t, w, "cn b publish 172.16.0.1")
	w.finds("2 cn a", "1 cn b")
}

func TestQuiet(t *testing.T) {
	for writes, want := range map[string][]string{
		"":                            nil,
		"cn a use 10.9.0.1 default/x": nil, // its agent's
		"block 10.9.0.0/30 cool":      {"8 block 10.9.0.0-30"},
		"cn a release 10.9.0.1 marked-for-release": {"8 cn a"},
		"used 2":             nil, // as agents report
		"range 10.10.0.0/16": {"8 PodIPPool p"},
	} {
		t.Run(writes, func(t *testing.T) {
			w := newWorld(t, shared.Cluster(t).Config(), invariant.Options{})
			write(t, w, "used 1")
			end, err := w.checker.BeginQuiet(w.Ctx)
			w.Must(err)
			write(t, w, writes)
			found, err := end(w.Ctx)
			w.Must(err)
			if !slices.Equal(briefly(found), want) {
				t.Errorf("found %v, want %q", found, want)
			}
		})
	}
}

func TestAgents(t *testing.T) {
	const remade = "cn a gone; cn a new"
	tests := map[string]struct {
		writes string
		// held is the answer of node a's agent, the first and each later time it is asked.
		held [2]string
		want []string
	}{
		"all in the pool":        {held: [2]string{"10.9.0.1"}},
		"a foreign one":          {held: [2]string{"172.16.0.1"}},
		"held and not in it":     {held: [2]string{"10.9.0.3", "10.9.0.3"}, want: []string{"2 cn a"}},
		"let go of meanwhile":    {held: [2]string{"10.9.0.3", "10.9.0.1"}},
		"another one after that": {held: [2]string{"10.9.0.3", "10.9.0.9"}},

		// After its CiliumNode was made again, an address may lack only until one of its block is back.
		"nothing is there yet":      {remade, [2]string{"10.9.0.1", "10.9.0.1"}, nil},
		"another block is there":    {"block 10.9.0.4/30 a; " + remade + ", publish 10.9.0.5, list 10.9.0.4/30", [2]string{"10.9.0.1", "10.9.0.1"}, nil},
		"its block is there":        {remade + ", publish 10.9.0.2, list 10.9.0.0/30", [2]string{"10.9.0.1", "10.9.0.1"}, []string{"2 cn a"}},
		"all is there":              {remade + ", publish 10.9.0.1, list 10.9.0.0/30", [2]string{"10.9.0.1", "10.9.0.1"}, nil},
		"it had no such address":    {remade, [2]string{"10.9.0.3", "10.9.0.3"}, []string{"2 cn a"}},
		"a foreign one is left out": {remade + ", publish 10.9.0.1, list 10.9.0.0/30", [2]string{"172.16.0.1", "172.16.0.1"}, []string{"2 cn a"}},
		"its Node is gone":          {remade + "; node a gone", [2]string{"10.9.0.3", "10.9.0.3"}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			asked := 0
			w := newWorld(t, shared.Cluster(t).Config(), invariant.Options{
				AgentsEvery: time.Hour,
				Agents: func() map[string][]netip.Addr {
					asked++
					return map[string][]netip.Addr{"a": {netip.MustParseAddr(test.held[min(asked, 2)-1])}}
				},
			})
			write(t, w, test.writes)
			w.Must(w.checker.AskAgents(w.Ctx))
			w.finds(test.want...)
		})
	}
}

// TestExemptionIsNarrow checks that an exemption excuses its rule, its subject and its text, in
// versions written while it is active, and no others.
func TestExemptionIsNarrow(t *testing.T) {
	w := newWorld(t, shared.Cluster(t).Config(), invariant.Options{})
	write(t, w, "cn b publish 172.16.0.2")
	exempt := invariant.Exemption{Rule: 7, Subject: "CiliumNode a", Text: "172.16.0.1 left the pool"}
	end, err := w.checker.Exempt(w.Ctx, exempt)
	w.Must(err)
	write(t, w, "cn a unpublish 172.16.0.1")         // excused
	write(t, w, "cn b unpublish 172.16.0.2")         // of another subject
	write(t, w, "cn a unpublish 10.9.0.1")           // against another rule
	write(t, w, "cn a list 10.9.0.0/30 10.9.0.8/30") // in another way, and more
	w.Must(end(w.Ctx))
	write(t, w, "cn a publish 172.16.0.1; cn a unpublish 172.16.0.1") // after its end
	w.finds("7 cn b", "2 cn a", "3 cn a", "7 cn a", "7 cn a")
}

// TestExemptionsThatExcuseNothing checks that they are errors, as are exemptions without a
// bound.
func TestExemptionsThatExcuseNothing(t *testing.T) {
	w := newWorld(t, shared.Cluster(t).Config(), invariant.Options{})
	for _, e := range []invariant.Exemption{{}, {Rule: 1, Subject: "CiliumNode a"}, {Rule: 1, Text: "x"}, {Subject: "CiliumNode a", Text: "x"}} {
		if _, err := w.checker.Exempt(w.Ctx, e); err == nil {
			t.Errorf("%+v is in force", e)
		}
	}
	end, err := w.checker.Exempt(w.Ctx, invariant.Exemption{Rule: 7, Subject: "CiliumNode a", Text: "left the pool"})
	w.Must(err)
	if end(w.Ctx) == nil {
		t.Error("an exemption that excused nothing ends without an error")
	}
}
