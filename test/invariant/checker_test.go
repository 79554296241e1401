package invariant_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
		"published while its release entry stands": {
			plant: func(w *world) {
				w.createBlock("10.9.0.4/30", "a")
				w.release("a", "10.9.0.5", "ready-for-release")
				w.cilium("a", func(cn *ciliumv2.CiliumNode) {
					publish(cn, "10.9.0.5", "10.9.0.6")
					listCIDRs(cn, "172.16.0.0/24", "10.9.0.0/30", "10.9.0.4/30")
				})
			},
			want: []string{"2 " + a},
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
		"an IP written by hand put back from before the CiliumNode was made empty": {
			plant: func(w *world) {
				w.byHandAndDeletedTwice()
				w.createCiliumNode("a", func(cn *ciliumv2.CiliumNode) { publish(cn, "172.16.0.1") })
			},
		},
		"the same, in a later version than the one that is made": {
			plant: func(w *world) {
				w.byHandAndDeletedTwice()
				w.createCiliumNode("a", func(*ciliumv2.CiliumNode) {})
				w.cilium("a", func(cn *ciliumv2.CiliumNode) { publish(cn, "172.16.0.1") })
			},
			want: []string{"1 " + a},
		},
		"the same, on another node": {
			plant: func(w *world) {
				w.byHandAndDeletedTwice()
				w.deleteCiliumNode("b")
				w.createCiliumNode("b", func(cn *ciliumv2.CiliumNode) { publish(cn, "172.16.0.1") })
			},
			want: []string{"1 " + b},
		},
		"the same, with another IP": {
			plant: func(w *world) {
				w.byHandAndDeletedTwice()
				w.createCiliumNode("a", func(cn *ciliumv2.CiliumNode) { publish(cn, "172.16.0.2") })
			},
			want: []string{"1 " + a},
		},
		"the same, with an IP that was of a block": {
			plant: func(w *world) {
				w.byHandAndDeletedTwice()
				w.coolDown(blockName)
				w.deleteBlock(blockName)
				w.createCiliumNode("a", func(cn *ciliumv2.CiliumNode) { publish(cn, "10.9.0.1") })
			},
			want: []string{"1 " + a},
		},
		"the same, under another Node": {
			plant: func(w *world) {
				w.byHandAndDeletedTwice()
				w.deleteNode("a")
				w.Create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
				w.createCiliumNode("a", func(cn *ciliumv2.CiliumNode) { publish(cn, "172.16.0.1") })
			},
			want: []string{"1 " + a},
		},
		"the same, once another node has published it": {
			plant: func(w *world) {
				w.byHandAndDeletedTwice()
				w.createBlock("172.16.0.0/30", "b")
				w.cilium("b", func(cn *ciliumv2.CiliumNode) {
					publish(cn, "172.16.0.1")
					listCIDRs(cn, "172.16.0.0/30")
				})
				w.createCiliumNode("a", func(cn *ciliumv2.CiliumNode) { publish(cn, "172.16.0.1") })
			},
			want: []string{"1 " + a, "1 " + a},
		},
		"the same, once a block of it has come and gone": {
			plant: func(w *world) {
				w.byHandAndDeletedTwice()
				w.createBlock("172.16.0.0/30", "b")
				w.coolDown("172.16.0.0-30")
				w.deleteBlock("172.16.0.0-30")
				w.createCiliumNode("a", func(cn *ciliumv2.CiliumNode) { publish(cn, "172.16.0.1") })
			},
			want: []string{"1 " + a},
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
		t.Run(name, func(t *testing.T) { judged(t, invariant.Options{}, test.want, test.plant) })
	}
}

// judged checks the violations that a checker finds in the writes of plant.
func judged(t *testing.T, opts invariant.Options, want []string, plant func(w *world)) {
	t.Helper()
	w := newWorld(t)
	checker := w.watch(opts)
	plant(w)
	w.Must(checker.Sync(w.Ctx))
	if diff := cmp.Diff(want, briefly(checker.Violations())); diff != "" {
		t.Errorf("violations (-want +got):\n%s\n%v", diff, checker.Violations())
	}
	if gaps := checker.Stats().Gaps; gaps != 0 {
		t.Errorf("%d gaps", gaps)
	}
}

func briefly(violations []invariant.Violation) []string {
	var out []string
	for _, v := range violations {
		out = append(out, fmt.Sprintf("%d %s", v.Rule, v.Subject))
	}
	return out
}

func TestCooldownIsMeasured(t *testing.T) {
	judged(t, invariant.Options{Cooldown: time.Hour}, []string{"1 PodIPBlock 10.9.0.4-30"}, func(w *world) {
		w.createBlock("10.9.0.4/30", "a")
		w.coolDown("10.9.0.4-30")
		w.deleteBlock("10.9.0.4-30")
	})
}

func TestJudges(t *testing.T) {
	judges := func(v invariant.Violation) bool { return v.Rule != 7 }
	judged(t, invariant.Options{Judges: judges}, []string{"2 CiliumNode a"}, func(w *world) {
		w.cilium("a", func(cn *ciliumv2.CiliumNode) { unpublish(cn, "172.16.0.1", "10.9.0.1") })
	})
}

func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}
