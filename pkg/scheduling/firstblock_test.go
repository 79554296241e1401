package scheduling

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// recalls formats the blocks that nodes should return, by node.
func recalls(a Assignment) string {
	var out []string
	for _, node := range slices.Sorted(maps.Keys(a.Needs)) {
		if recall := a.Needs[node].Recall; len(recall) > 0 {
			out = append(out, node+" "+strings.Trim(fmt.Sprint(recall), "[]"))
		}
	}
	return strings.Join(out, "; ")
}

// A node without a block needs one if its pools have none left.
func TestFirstBlock(t *testing.T) {
	now := fixtures.Noon()
	waits := func(c *Cluster, names ...string) {
		for _, name := range names {
			c.join(name)
			c.Unscheduled.SetWithoutBlock(name, true)
		}
	}
	one := func(edit func(*Cluster, *corev1.Node)) func(*Cluster, []corev1.Node) {
		return func(c *Cluster, all []corev1.Node) {
			waits(c, "x")
			edit(c, &all[3])
		}
	}
	tests := map[string]struct {
		spoil func(*Cluster, []corev1.Node)
		want  string
	}{
		"it does not wait":                 {func(c *Cluster, _ []corev1.Node) { c.join("x") }, ""},
		"one block, of who can spare most": {one(func(*Cluster, *corev1.Node) {}), "b 10.0.1.4/30"},
		"one block each":                   {func(c *Cluster, _ []corev1.Node) { waits(c, "x", "y") }, "b 10.0.1.4/30 10.0.1.0/30"},
		"it has got one meanwhile": {one(func(c *Cluster, _ *corev1.Node) {
			c.Unscheduled.SetWithoutBlock("x", false)
		}), ""},
		"pods wait, too": {func(c *Cluster, _ []corev1.Node) {
			waits(c, "x")
			for i := range 2 {
				c.wait(now, unscheduledPod(fmt.Sprint(i), lacksIPv4, func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"name": "n"} }))
			}
		}, "b 10.0.1.4/30 10.0.1.0/30"},
		"pods wait for it": {func(c *Cluster, _ []corev1.Node) {
			waits(c, "x")
			c.wait(now, unscheduledPod("1", lacksIPv4, func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"name": "x"} }))
		}, "b 10.0.1.4/30 10.0.1.0/30"}, // its agent needs both addresses of the first
		"another pool has a block": {one(func(c *Cluster, _ *corev1.Node) { c.Pools.Set(tight("q", "10.0.2.0/30")) }), ""},
		"another pool has one for two": {func(c *Cluster, _ []corev1.Node) {
			waits(c, "x", "y")
			c.Pools.Set(tight("q", "10.0.2.0/30"))
		}, "b 10.0.1.4/30"},
		"one comes back already": {one(func(c *Cluster, _ *corev1.Node) {
			b, _ := c.Ledger.Block(fixtures.Prefix("10.0.1.4/30"))
			b.Reason = expand.Reclaim
			c.Ledger.Upsert(fixtures.At(b, 20, ipalloc.Draining))
		}), ""},
		"one came back, and it is claiming it": {one(func(c *Cluster, _ *corev1.Node) { c.claimFreed("x") }), ""},
		"it has a block that leaves": {one(func(c *Cluster, _ *corev1.Node) {
			c.Ledger.Upsert(fixtures.At(fixtures.Block("10.0.9.0/30", "gone", "x", 20), 20, ipalloc.CoolingDown))
		}), ""},
		"it has addresses of no block": {one(func(c *Cluster, _ *corev1.Node) { c.join("x", "192.0.2.1", "192.0.2.2") }), ""},
		"it is paused": {one(func(_ *Cluster, n *corev1.Node) {
			n.Annotations = map[string]string{v1alpha1.PausedAnnotation: "true"}
		}), ""},
		"Cilium does not run there": {one(func(_ *Cluster, n *corev1.Node) { n.Labels[v1alpha1.OptOutLabel] = "true" }), ""},
		"its labels are not final": {one(func(c *Cluster, n *corev1.Node) {
			c.StartupTaints = map[string]bool{"late": true}
			c.Pools.Set(fixtures.ZonedPool())
			n.Spec.Taints = []corev1.Taint{{Key: "late", Effect: corev1.TaintEffectNoSchedule}}
		}), ""},
		"it is being deleted": {one(func(_ *Cluster, n *corev1.Node) {
			at := metav1.NewTime(now)
			n.DeletionTimestamp = &at
		}), ""},
		"reclaim is disabled": {one(func(c *Cluster, _ *corev1.Node) {
			c.Pools.Set(fixtures.Edited(tight("p", "10.0.0.0/28", "10.0.1.0/29"), func(s *v1alpha1.PodIPPoolSpec) { s.Reclaim.Mode = v1alpha1.ReclaimNever }))
		}), ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c, all := recalling(), nodes("a", "b", "n", "x", "y")
			for i := range all {
				all[i].Labels = map[string]string{"name": all[i].Name}
			}
			test.spoil(c, all)
			if got := recalls(c.Assign(all, now)); got != test.want {
				t.Errorf("%q is recalled, want %q", got, test.want)
			}
		})
	}
}

// While a node waits for its first block, no other node claims one as a reserve.
func TestFirstBlockIsScarce(t *testing.T) {
	c, all, now := recalling(), nodes("a", "b", "n", "x"), fixtures.Noon()
	c.join("x")
	scarce := func() bool {
		c.Unscheduled.SetScarce(c.Assign(all, now).Scarce)
		return c.Snapshot("a", &all[0], now).Shares[0].State.Scarce
	}
	if scarce() {
		t.Error("no node waits")
	}
	c.Unscheduled.SetWithoutBlock("x", true)
	if !scarce() {
		t.Error("a node waits for its first block")
	}
}

// The first block that a node has got is not recalled for the next node, and no node gets one at
// the expense of another node's needs: no block moves back and forth.
func TestFirstBlockStays(t *testing.T) {
	c, all, now := recalling(), nodes("a", "b", "n", "x", "y", "z"), fixtures.Noon()
	for _, name := range []string{"x", "y", "z"} {
		c.join(name)
		c.Unscheduled.SetWithoutBlock(name, true)
	}
	var moved []string
	for i, name := range []string{"x", "y", "z"} {
		a := c.Assign(all, now)
		donor := ""
		for node, needs := range a.Needs {
			if len(needs.Recall) > 0 && (donor == "" || node < donor) {
				donor = node
			}
		}
		if donor == "" {
			t.Fatalf("nothing is recalled for %s", name)
		}
		// The block moves from its node to the waiting one. The agent there starts and settles.
		b, _ := c.Ledger.Block(a.Needs[donor].Recall[0])
		moved = append(moved, fmt.Sprint(b.CIDR, " from ", donor))
		c.Ledger.Remove(b)
		c.Ledger.Upsert(fixtures.Block(b.CIDR.String(), "p", name, 30+i))
		c.joinIdle(name, b.CIDR.Addr().Next().String(), b.CIDR.Addr().Next().Next().String())
		c.Unscheduled.SetWithoutBlock(name, false)
	}
	for _, m := range moved {
		if strings.HasSuffix(m, "from x") || strings.HasSuffix(m, "from y") {
			t.Errorf("taken from a node that has just got its first: %q", moved)
		}
	}
	all = append(all, nodes("late")...)
	c.join("late")
	c.Unscheduled.SetWithoutBlock("late", true)
	if got := recalls(c.Assign(all, now)); got != "" {
		t.Errorf("%q is recalled of nodes that have what they need, and no more", got)
	}
}

// Blocks are assigned again, once, when a node begins or ceases to wait.
func TestWithoutBlockChanges(t *testing.T) {
	u, changes := NewUnscheduled(), 0
	u.Changed = func() { changes++ }
	for i, step := range []struct {
		waits bool
		want  int
	}{{false, 0}, {true, 1}, {true, 1}, {false, 2}, {false, 2}} {
		u.SetWithoutBlock("n", step.waits)
		if changes != step.want || u.Any() != step.waits {
			t.Errorf("step %d: %d changes, want %d; any: %t", i, changes, step.want, u.Any())
		}
	}
}
