package invariant_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
)

func TestAgents(t *testing.T) {
	tests := map[string]struct {
		// asked is the answer of node a's agent, each time it is asked.
		asked [][]string
		want  []string
	}{
		"all in the pool":        {asked: [][]string{{"10.9.0.1", "172.16.0.1"}}},
		"held and not in it":     {asked: [][]string{{"10.9.0.3"}, {"10.9.0.3"}}, want: []string{"2 CiliumNode a"}},
		"let go of meanwhile":    {asked: [][]string{{"10.9.0.3"}, {}}},
		"another one after that": {asked: [][]string{{"10.9.0.3"}, {"10.9.0.9"}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			asked := slices.Clone(test.asked)
			checker := w.watch(invariant.Options{
				AgentsEvery: time.Hour,
				Agents: func() map[string][]netip.Addr {
					var held []netip.Addr
					for _, ip := range asked[0] {
						held = append(held, netip.MustParseAddr(ip))
					}
					asked = asked[1:]
					return map[string][]netip.Addr{"a": held}
				},
			})
			w.Must(checker.AskAgents(w.Ctx))
			if diff := cmp.Diff(test.want, briefly(checker.Violations())); diff != "" {
				t.Errorf("violations (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAgentsOfARecreatedCiliumNode checks that an address that an agent holds may be missing
// from the pool only until an address of its block is restored.
func TestAgentsOfARecreatedCiliumNode(t *testing.T) {
	tests := map[string]struct {
		held  string
		again func(cn *ciliumv2.CiliumNode)
		gone  bool // the Node
		want  []string
	}{
		"nothing is there yet":      {held: "10.9.0.1", again: func(*ciliumv2.CiliumNode) {}},
		"another block is there":    {held: "10.9.0.1", again: func(cn *ciliumv2.CiliumNode) { publish(cn, "10.9.0.5"); listCIDRs(cn, "10.9.0.4/30") }},
		"its block is there":        {held: "10.9.0.1", again: func(cn *ciliumv2.CiliumNode) { publish(cn, "10.9.0.2"); listCIDRs(cn, "10.9.0.0/30") }, want: []string{"2 CiliumNode a"}},
		"all is there":              {held: "10.9.0.1", again: func(cn *ciliumv2.CiliumNode) { publish(cn, "10.9.0.1"); listCIDRs(cn, "10.9.0.0/30") }},
		"it had no such address":    {held: "10.9.0.3", again: func(*ciliumv2.CiliumNode) {}, want: []string{"2 CiliumNode a"}},
		"a foreign one is left out": {held: "172.16.0.1", again: func(cn *ciliumv2.CiliumNode) { publish(cn, "10.9.0.1"); listCIDRs(cn, "10.9.0.0/30") }, want: []string{"2 CiliumNode a"}},
		"its Node is gone":          {held: "10.9.0.3", again: func(*ciliumv2.CiliumNode) {}, gone: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.createBlock("10.9.0.4/30", "a")
			checker := w.watch(invariant.Options{
				AgentsEvery: time.Hour,
				Agents: func() map[string][]netip.Addr {
					return map[string][]netip.Addr{"a": {netip.MustParseAddr(test.held)}}
				},
			})
			w.deleteCiliumNode("a")
			w.createCiliumNode("a", test.again)
			if test.gone {
				w.deleteNode("a")
			}
			w.Must(checker.AskAgents(w.Ctx))
			if diff := cmp.Diff(test.want, briefly(checker.Violations())); diff != "" {
				t.Errorf("violations (-want +got):\n%s\n%v", diff, checker.Violations())
			}
		})
	}
}
