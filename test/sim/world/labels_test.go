package world

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
)

// TestFirstBlocksAreJudged checks that a first block of a pool that no longer rules its node is
// a violation until the operator has replaced it, and that a taint delays the claim.
func TestFirstBlocksAreJudged(t *testing.T) {
	pool := func(name, cidr, zone string, priority int32) *v1alpha1.PodIPPool {
		p := &v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.PodIPPoolSpec{
			Priority: priority, IPv4: &v1alpha1.IPv4Ranges{BlockSize: 29, CIDRs: []v1alpha1.PoolCIDR{{CIDR: cidr}}},
		}}
		if zone != "" {
			p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{ZoneLabel: zone}}
		}
		return p
	}
	taint := crd.DefaultStartupTaints()[0]
	settings := config.Settings{
		Defaults:       crd.Defaults{Policy: expand.DefaultPolicy(), Cooldown: time.Minute, NodeGoneCooldown: 5 * time.Minute},
		AgentNamespace: "kube-system", AgentSettle: time.Minute, NodeWorkers: 1, StartupTaints: []string{taint},
	}
	w := New(Config{
		Nodes: 1, PodsPerNode: 1, Operators: 1, UpdateRate: 15 * time.Second, Settings: settings, Upgraded: settings,
		Pools:  []*v1alpha1.PodIPPool{pool("main", "10.0.0.0/28", "", 1), pool("east", "10.0.9.0/28", "east", 5)},
		Labels: &Labels{Zones: []string{"east"}, Taint: taint},
	})
	defer w.Close()
	m := w.machines[0]
	m.held = true
	w.Do(Action{Start, "op1", ""})
	w.Do(Action{Lead, "op1", ""})
	w.quiescence.goOn()
	if blocks := w.api.Keys(KindBlock); len(blocks) > 0 {
		t.Fatalf("under the taint the node has blocks %v", blocks)
	}
	w.users.untaint(m.name)
	if !w.Quiesce(1000) || len(w.api.Keys(KindBlock)) != 1 {
		t.Fatalf("blocks %v, violations %v", w.api.Keys(KindBlock), w.Violations)
	}
	w.Do(Action{NodeLabel, m.name, "zone=east"})
	w.rules.checkFirst(m)
	if len(w.Violations) != 1 || !strings.Contains(w.Violations[0].Text, "keeps its first blocks [10.0.0.0-29]") {
		t.Fatalf("the block of the other pool is not found: %v", w.Violations)
	}
	w.Violations = nil
	if !w.Quiesce(1000) {
		t.Fatalf("no rest: %v", w.Violations)
	}
	w.rules.checkFirst(m)
	if len(w.Violations) > 0 {
		t.Errorf("after the operator replaced it: %v", w.Violations)
	}
}
