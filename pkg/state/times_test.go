package state

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// Times in the future count from when they were first seen, whatever else of their objects changes.
func TestTimesFromTheFuture(t *testing.T) {
	now, future := fixtures.Noon(), fixtures.Noon().AddDate(10, 0, 0)
	c := clusterOf()
	c.Ledger.Now = func() time.Time { return now }
	c.Pools.Set(fixtures.ZonedPool())
	cooling := fixtures.At(fixtures.Block("10.0.0.0/30", "p", "n", 1), 1, ipalloc.CoolingDown)
	cooling.Since = future
	cn := fixtures.CiliumNode("n", "1")
	cn.UID = "cn-uid"
	cn.CreationTimestamp = metav1.NewTime(future)
	joining := fixtures.Node()
	joining.Name = "joins"
	joining.CreationTimestamp = metav1.NewTime(future)
	joining.Spec.Taints = []corev1.Taint{{Key: "labels-come"}}
	c.Ledger.UpsertCiliumNode(ciliumnode.NewView(cn))
	for range 3 {
		c.Ledger.Upsert(cooling)
		got := c.Snapshot("n", fixtures.Node(), now).Shares[0].State.Blocks[0].CooldownUntil
		if latest := fixtures.Noon().Add(c.Defaults.Policy.AckTimeout + c.Cooldown(cooling)); got.After(latest) {
			t.Errorf("at %s: the block cools down until %s", now, got)
		}
		if got, want := c.Snapshot("joins", joining, now).Standing.Until, fixtures.Noon().Add(labelsWait); !got.Equal(want) && now.Before(want) {
			t.Errorf("at %s: the node waits for labels until %s, want %s", now, got, want)
		}
		now = now.Add(ClockSkew)
		cooling.ResourceVersion += "0"
	}
	if near := now.Add(ClockSkew); !c.Ledger.NotInFuture("uid", near).Equal(near) {
		t.Error("a small difference between clocks counts")
	}
}
