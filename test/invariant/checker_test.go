package invariant_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane/cptest"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
)

var shared cptest.Shared

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

// Each case starts from the world of newWorld: node a holds block
// 10.9.0.0-30 of pool p, with 10.9.0.1 and 10.9.0.2 published, and a foreign
// entry 172.16.0.1 and podCIDR 172.16.0.0/24; node b has an empty CiliumNode.
func TestViolations(t *testing.T) {
	const a, b = "CiliumNode a", "CiliumNode b"
	const blockName = "10.9.0.0-30"
	tests := map[string]struct {
		plant func(w *world)
		want  []string // rule and subject
	}{
		"nothing happens": {plant: func(*world) {}},
		"grow and shrink by the rules": {plant: func(w *world) {
			w.createBlock("10.9.0.4/30", "a")
			w.cilium("a", func(cn *ciliumv2.CiliumNode) {
				publish(cn, "10.9.0.5", "10.9.0.6")
				listCIDRs(cn, "172.16.0.0/24", "10.9.0.0/30", "10.9.0.4/30")
			})
			w.release("a", "10.9.0.1", "marked-for-release")
			w.release("a", "10.9.0.2", "marked-for-release")
			w.release("a", "10.9.0.1", "ready-for-release")
			w.release("a", "10.9.0.2", "ready-for-release")
			w.cilium("a", func(cn *ciliumv2.CiliumNode) {
				unpublish(cn, "10.9.0.1", "10.9.0.2")
				listCIDRs(cn, "172.16.0.0/24", "10.9.0.4/30")
			})
			w.coolDown(blockName)
			w.deleteBlock(blockName)
		}},
		"an IP in two pools": {
			plant: func(w *world) {
				w.cilium("b", func(cn *ciliumv2.CiliumNode) { publish(cn, "172.16.0.1") })
			},
			want: []string{"1 " + b},
		},
		"an IP in two pools, in another form": {
			plant: func(w *world) {
				w.cilium("b", func(cn *ciliumv2.CiliumNode) { publish(cn, "::ffff:172.16.0.1") })
			},
			want: []string{"1 " + b},
		},
		"an IP of another node's block": {
			plant: func(w *world) {
				w.cilium("b", func(cn *ciliumv2.CiliumNode) { publish(cn, "10.9.0.3") })
			},
			want: []string{"1 " + b},
		},
		"published before the block exists": {
			plant: func(w *world) {
				w.cilium("b", func(cn *ciliumv2.CiliumNode) {
					publish(cn, "10.9.0.9")
					listCIDRs(cn, "10.9.0.8/30")
				})
				w.createBlock("10.9.0.8/30", "b")
			},
			want: []string{"1 " + b, "3 " + b},
		},
		"published from a block that cools down": {
			plant: func(w *world) {
				w.createBlock("10.9.0.4/30", "a")
				w.coolDown("10.9.0.4-30")
				w.cilium("a", func(cn *ciliumv2.CiliumNode) { cn.Labels = map[string]string{"has": "changed"} })
				w.cilium("a", func(cn *ciliumv2.CiliumNode) {
					publish(cn, "10.9.0.5")
					listCIDRs(cn, "172.16.0.0/24", "10.9.0.0/30", "10.9.0.4/30")
				})
			},
			want: []string{"1 " + a},
		},
		"a patch that came late to a block that cools down": {
			plant: func(w *world) {
				w.createBlock("10.9.0.4/30", "a")
				w.coolDown("10.9.0.4-30")
				w.cilium("a", func(cn *ciliumv2.CiliumNode) {
					publish(cn, "10.9.0.5")
					listCIDRs(cn, "172.16.0.0/24", "10.9.0.0/30", "10.9.0.4/30")
				})
			},
		},
		"a block made over another node's IPs": {
			plant: func(w *world) { w.createBlock("10.9.0.0/29", "b") },
			want:  []string{"1 PodIPBlock 10.9.0.0-29"},
		},
		"a block deleted with IPs in the pool": {
			plant: func(w *world) {
				w.coolDown(blockName)
				w.deleteBlock(blockName)
			},
			want: []string{"1 PodIPBlock " + blockName},
		},
		"a block deleted without cooldown": {
			plant: func(w *world) {
				w.createBlock("10.9.0.4/30", "a")
				w.deleteBlock("10.9.0.4-30")
			},
			want: []string{"1 PodIPBlock 10.9.0.4-30"},
		},
		"an IP leaves without the agent's word": {
			plant: func(w *world) {
				w.cilium("a", func(cn *ciliumv2.CiliumNode) { unpublish(cn, "10.9.0.1") })
			},
			want: []string{"2 " + a},
		},
		"an IP leaves as the agent refused": {
			plant: func(w *world) {
				w.release("a", "10.9.0.1", "do-not-release")
				w.cilium("a", func(cn *ciliumv2.CiliumNode) { unpublish(cn, "10.9.0.1") })
			},
			want: []string{"2 " + a},
		},
		"an IP leaves while reported used": {
			plant: func(w *world) {
				w.release("a", "10.9.0.1", "ready-for-release")
				w.status("a", func(cn *ciliumv2.CiliumNode) { use(cn, "10.9.0.1", "default/x") })
				w.cilium("a", func(cn *ciliumv2.CiliumNode) { unpublish(cn, "10.9.0.1") })
			},
			want: []string{"2 " + a},
		},
		"an IP leaves while a pod has it": {
			plant: func(w *world) {
				w.release("a", "10.9.0.1", "ready-for-release")
				w.RunningPod("a", "x", "10.9.0.1")
				w.cilium("a", func(cn *ciliumv2.CiliumNode) { unpublish(cn, "10.9.0.1") })
			},
			want: []string{"2 " + a},
		},
		"an IP leaves while it is the agent's own": {
			plant: func(w *world) {
				w.release("a", "10.9.0.1", "ready-for-release")
				w.cilium("a", func(cn *ciliumv2.CiliumNode) { cn.Spec.HealthAddressing.IPv4 = "10.9.0.1" })
				w.cilium("a", func(cn *ciliumv2.CiliumNode) { unpublish(cn, "10.9.0.1") })
			},
			want: []string{"2 " + a},
		},
		"an IP leaves as its Node is gone": {
			plant: func(w *world) {
				w.deleteNode("a")
				w.cilium("a", func(cn *ciliumv2.CiliumNode) {
					unpublish(cn, "10.9.0.1", "10.9.0.2")
					listCIDRs(cn, "172.16.0.0/24")
				})
			},
		},
		"a CiliumNode deleted under a pod": {
			plant: func(w *world) {
				w.RunningPod("a", "x", "10.9.0.1")
				w.deleteCiliumNode("a")
			},
			want: []string{"2 " + a},
		},
		"a CiliumNode deleted with an address that its agent reports": {
			plant: func(w *world) {
				w.status("a", func(cn *ciliumv2.CiliumNode) { use(cn, "10.9.0.1", "default/x") })
				w.deleteCiliumNode("a")
			},
			want: []string{"2 " + a},
		},
		"a CiliumNode deleted that an older Node owns": {
			plant: func(w *world) {
				w.cilium("a", func(cn *ciliumv2.CiliumNode) {
					cn.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "a", UID: "older"}}
				})
				w.RunningPod("a", "x", "10.9.0.1")
				w.deleteCiliumNode("a")
			},
		},
		"a CiliumNode deleted after its Node": {
			plant: func(w *world) {
				w.RunningPod("a", "x", "10.9.0.1")
				w.deleteNode("a")
				w.deleteCiliumNode("a")
			},
		},
		"an IP of a deleted CiliumNode published later, without a block": {
			plant: func(w *world) {
				w.deleteCiliumNode("a")
				w.createCiliumNode("a", func(*ciliumv2.CiliumNode) {})
				w.deleteBlock(blockName)
				w.cilium("a", func(cn *ciliumv2.CiliumNode) { publish(cn, "10.9.0.1") })
			},
			want: []string{"1 PodIPBlock " + blockName, "1 " + a},
		},
		"a podCIDR of a deleted CiliumNode listed later": {
			plant: func(w *world) {
				w.deleteCiliumNode("a")
				w.createCiliumNode("a", func(*ciliumv2.CiliumNode) {})
				w.cilium("a", func(cn *ciliumv2.CiliumNode) { listCIDRs(cn, "172.16.0.0/24") })
			},
			want: []string{"3 " + a},
		},
		"something of a block that overlaps an older one": {
			plant: func(w *world) {
				w.createBlock("10.9.0.0/29", "b")
				w.cilium("b", func(cn *ciliumv2.CiliumNode) {
					publish(cn, "10.9.0.5")
					listCIDRs(cn, "10.9.0.0/29")
				})
			},
			want: []string{"1 PodIPBlock 10.9.0.0-29", "1 " + b},
		},
		"an older block than one that overlaps it": {
			plant: func(w *world) {
				w.createBlock("10.9.0.4/30", "b")
				w.createBlock("10.9.0.0/29", "a")
				w.cilium("b", func(cn *ciliumv2.CiliumNode) {
					publish(cn, "10.9.0.5")
					listCIDRs(cn, "10.9.0.4/30")
				})
			},
		},
		"a CiliumNode deleted by hand and put back": {
			plant: func(w *world) {
				cn := w.deleteCiliumNode("a")
				w.createCiliumNode("a", func(again *ciliumv2.CiliumNode) { again.Spec.IPAM = cn.Spec.IPAM })
			},
		},
		"a block with IPs is not listed": {
			plant: func(w *world) {
				w.createBlock("10.9.0.4/30", "a")
				w.cilium("a", func(cn *ciliumv2.CiliumNode) { publish(cn, "10.9.0.5") })
			},
			want: []string{"3 " + a},
		},
		"a block without IPs is listed": {
			plant: func(w *world) {
				w.createBlock("10.9.0.4/30", "a")
				w.cilium("a", func(cn *ciliumv2.CiliumNode) {
					listCIDRs(cn, "172.16.0.0/24", "10.9.0.0/30", "10.9.0.4/30")
				})
			},
			want: []string{"3 " + a},
		},
		"a block made of what is published, in a patch decided on before": {
			plant: func(w *world) {
				w.createBlock("10.9.0.4/30", "a")
				w.createBlock("172.16.0.0/30", "a")
				w.cilium("a", func(cn *ciliumv2.CiliumNode) {
					publish(cn, "10.9.0.5")
					listCIDRs(cn, "172.16.0.0/24", "10.9.0.0/30", "10.9.0.4/30")
				})
			},
		},
		"a block made of what is published, in the patch after that": {
			plant: func(w *world) {
				w.createBlock("10.9.0.4/30", "a")
				w.createBlock("172.16.0.0/30", "a")
				w.cilium("a", func(cn *ciliumv2.CiliumNode) { cn.Labels = map[string]string{"has": "changed"} })
				w.cilium("a", func(cn *ciliumv2.CiliumNode) {
					publish(cn, "10.9.0.5")
					listCIDRs(cn, "172.16.0.0/24", "10.9.0.0/30", "10.9.0.4/30")
				})
			},
			want: []string{"3 " + a},
		},
		"blocks are aggregated": {
			plant: func(w *world) {
				w.createBlock("10.9.0.4/30", "a")
				w.cilium("a", func(cn *ciliumv2.CiliumNode) {
					publish(cn, "10.9.0.5")
					listCIDRs(cn, "172.16.0.0/24", "10.9.0.0/29")
				})
			},
			want: []string{"3 " + a, "3 " + a, "3 " + a},
		},
		"entries are reordered": {
			plant: func(w *world) {
				w.cilium("a", func(cn *ciliumv2.CiliumNode) { listCIDRs(cn, "10.9.0.0/30", "172.16.0.0/24") })
			},
			want: []string{"3 " + a},
		},
		"a foreign pool entry removed": {
			plant: func(w *world) {
				w.cilium("a", func(cn *ciliumv2.CiliumNode) { unpublish(cn, "172.16.0.1") })
			},
			want: []string{"7 " + a},
		},
		"a foreign podCIDR removed": {
			plant: func(w *world) {
				w.cilium("a", func(cn *ciliumv2.CiliumNode) { listCIDRs(cn, "10.9.0.0/30") })
			},
			want: []string{"7 " + a},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			checker := w.watch(invariant.Options{})
			test.plant(w)
			w.Must(checker.Sync(w.Ctx))
			if diff := cmp.Diff(test.want, briefly(checker.Violations())); diff != "" {
				t.Errorf("violations (-want +got):\n%s\n%v", diff, checker.Violations())
			}
			if stats := checker.Stats(); stats.Gaps != 0 {
				t.Errorf("%d gaps", stats.Gaps)
			}
		})
	}
}

func briefly(violations []invariant.Violation) []string {
	var out []string
	for _, v := range violations {
		out = append(out, fmt.Sprintf("%d %s", v.Rule, v.Subject))
	}
	return out
}

func TestEveryVersionIsSeenInOrder(t *testing.T) {
	w := newWorld(t)
	var got []int
	checker := w.watch(invariant.Options{OnChange: func(c invariant.Change) {
		if cn, ok := c.New.(*ciliumv2.CiliumNode); ok && c.Name == "b" {
			got = append(got, cn.Spec.IPAM.PreAllocate)
		}
	}})
	var want []int
	for i := 1; i <= 50; i++ {
		w.cilium("b", func(cn *ciliumv2.CiliumNode) { cn.Spec.IPAM.PreAllocate = i })
		want = append(want, i)
	}
	w.Must(checker.Sync(w.Ctx))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("versions (-want +got):\n%s", diff)
	}
	if n := checker.Stats().Versions[invariant.KindCiliumNode]; n != len(want) {
		t.Errorf("%d versions counted, want %d", n, len(want))
	}
}

func TestAPIServerRestarts(t *testing.T) {
	cluster := cptest.New(t, controlplane.Options{})
	w := worldOn(t, cluster.Config())
	checker := w.watch(invariant.Options{})
	w.Must(cluster.KillAPIServer())
	w.Must(cluster.StartAPIServer(w.Ctx))
	w.Must(checker.Sync(w.Ctx)) // The watches are back, and nothing was written meanwhile.
	w.cilium("a", func(cn *ciliumv2.CiliumNode) { unpublish(cn, "10.9.0.1") })
	w.Must(checker.Sync(w.Ctx))
	if diff := cmp.Diff([]string{"2 CiliumNode a"}, briefly(checker.Violations())); diff != "" {
		t.Errorf("violations (-want +got):\n%s", diff)
	}
	if gaps := checker.Stats().Gaps; gaps != 0 {
		t.Errorf("%d gaps, though nothing was written meanwhile", gaps)
	}
	// What is written before the watches are back may be missed, but not that
	// an IP stands in two pools.
	w.Must(cluster.KillAPIServer())
	w.Must(cluster.StartAPIServer(w.Ctx))
	w.cilium("b", func(cn *ciliumv2.CiliumNode) { publish(cn, "172.16.0.1") })
	w.Must(checker.Sync(w.Ctx))
	if diff := cmp.Diff([]string{"2 CiliumNode a", "1 CiliumNode b"}, briefly(checker.Violations())); diff != "" {
		t.Errorf("violations (-want +got):\n%s", diff)
	}
}

func TestCooldownIsMeasured(t *testing.T) {
	w := newWorld(t)
	checker := w.watch(invariant.Options{Cooldown: time.Hour})
	w.createBlock("10.9.0.4/30", "a")
	w.coolDown("10.9.0.4-30")
	w.deleteBlock("10.9.0.4-30")
	w.Must(checker.Sync(w.Ctx))
	if diff := cmp.Diff([]string{"1 PodIPBlock 10.9.0.4-30"}, briefly(checker.Violations())); diff != "" {
		t.Errorf("violations (-want +got):\n%s", diff)
	}
}

// TestExemptionIsNarrow: an exemption excuses its rule, its subject and its text, in what
// is written while it is in force.
func TestExemptionIsNarrow(t *testing.T) {
	w := newWorld(t)
	checker := w.watch(invariant.Options{})
	w.cilium("b", func(cn *ciliumv2.CiliumNode) { publish(cn, "172.16.0.2") })
	foreign := func(node, ip string) {
		w.cilium(node, func(cn *ciliumv2.CiliumNode) { unpublish(cn, ip) })
	}
	exempt := invariant.Exemption{Rule: 7, Subject: "CiliumNode a", Text: "172.16.0.1 left the pool"}
	end, err := checker.Exempt(w.Ctx, exempt)
	w.Must(err)
	foreign("a", "172.16.0.1")                                                                   // excused
	foreign("b", "172.16.0.2")                                                                   // of another subject
	w.cilium("a", func(cn *ciliumv2.CiliumNode) { unpublish(cn, "10.9.0.1") })                   // against another rule
	w.cilium("a", func(cn *ciliumv2.CiliumNode) { listCIDRs(cn, "10.9.0.0/30", "10.9.0.8/30") }) // in another way, and more
	w.Must(end(w.Ctx))
	w.cilium("a", func(cn *ciliumv2.CiliumNode) { publish(cn, "172.16.0.1") })
	foreign("a", "172.16.0.1") // after its end
	w.Must(checker.Sync(w.Ctx))
	want := []string{"7 CiliumNode b", "2 CiliumNode a", "3 CiliumNode a", "7 CiliumNode a", "7 CiliumNode a"}
	if diff := cmp.Diff(want, briefly(checker.Violations())); diff != "" {
		t.Errorf("violations (-want +got):\n%s\n%v", diff, checker.Violations())
	}
}

// TestExemptionsThatExcuseNothing: they and those without a bound are errors.
func TestExemptionsThatExcuseNothing(t *testing.T) {
	w := newWorld(t)
	checker := w.watch(invariant.Options{})
	for _, e := range []invariant.Exemption{{}, {Rule: 1, Subject: "CiliumNode a"}, {Rule: 1, Text: "x"}, {Subject: "CiliumNode a", Text: "x"}} {
		if _, err := checker.Exempt(w.Ctx, e); err == nil {
			t.Errorf("%+v is in force", e)
		}
	}
	end, err := checker.Exempt(w.Ctx, invariant.Exemption{Rule: 7, Subject: "CiliumNode a", Text: "left the pool"})
	w.Must(err)
	if end(w.Ctx) == nil {
		t.Error("an exemption that excused nothing ends without an error")
	}
}

func TestJudges(t *testing.T) {
	w := newWorld(t)
	checker := w.watch(invariant.Options{Judges: func(v invariant.Violation) bool { return v.Rule != 7 }})
	w.cilium("a", func(cn *ciliumv2.CiliumNode) { unpublish(cn, "172.16.0.1", "10.9.0.1") })
	w.Must(checker.Sync(w.Ctx))
	if diff := cmp.Diff([]string{"2 CiliumNode a"}, briefly(checker.Violations())); diff != "" {
		t.Errorf("violations (-want +got):\n%s", diff)
	}
}

func TestAgents(t *testing.T) {
	tests := map[string]struct {
		// asked is what the agent of node a says, each time it is asked.
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

// TestAgentsOfARecreatedCiliumNode: what its pool lacks of what an agent holds is excused
// only as long as nothing of its block is there again.
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

func TestQuiet(t *testing.T) {
	tests := map[string]struct {
		meanwhile func(w *world)
		want      []string
	}{
		"nothing": {meanwhile: func(*world) {}},
		"an agent reports": {meanwhile: func(w *world) {
			w.status("a", func(cn *ciliumv2.CiliumNode) { use(cn, "10.9.0.1", "default/x") })
		}},
		"a block is written": {
			meanwhile: func(w *world) { w.coolDown("10.9.0.0-30") },
			want:      []string{"8 PodIPBlock 10.9.0.0-30"},
		},
		"an address is marked": {
			meanwhile: func(w *world) { w.release("a", "10.9.0.1", "marked-for-release") },
			want:      []string{"8 CiliumNode a"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			checker := w.watch(invariant.Options{})
			end, err := checker.BeginQuiet(w.Ctx)
			w.Must(err)
			test.meanwhile(w)
			found, err := end(w.Ctx)
			w.Must(err)
			if diff := cmp.Diff(test.want, briefly(found)); diff != "" {
				t.Errorf("writes at rest (-want +got):\n%s", diff)
			}
		})
	}
}

func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}
