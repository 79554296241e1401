package integration

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
)

func priority(n int32) func(*v1alpha1.PodIPPool) {
	return func(p *v1alpha1.PodIPPool) { p.Spec.Priority = n }
}

func zone(z string) func(*v1alpha1.PodIPPool) {
	return func(p *v1alpha1.PodIPPool) {
		p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"zone": z}}
	}
}

// change edits a pool.
func (e *env) change(name string, mod func(*v1alpha1.PodIPPool)) {
	e.TB.Helper()
	e.eventuallyPool("edit of pool "+name, name, func(p *v1alpha1.PodIPPool) error {
		mod(p)
		return e.Client.Update(e.Ctx, p)
	})
}

// condition waits until a pool's condition has that status and reason, "" matches any, and its
// message has these parts.
func (e *env) condition(pool, kind string, status metav1.ConditionStatus, reason string, says ...string) {
	e.TB.Helper()
	e.eventuallyPool(fmt.Sprintf("pool %s is %s=%s for %s", pool, kind, status, reason), pool, func(p *v1alpha1.PodIPPool) error {
		c := meta.FindStatusCondition(p.Status.Conditions, kind)
		if c == nil || c.Status != status || reason != "" && c.Reason != reason || p.Status.ObservedGeneration != p.Generation {
			return fmt.Errorf("conditions are %v", p.Status.Conditions)
		}
		if i := slices.IndexFunc(says, func(part string) bool { return !strings.Contains(c.Message, part) }); i >= 0 {
			return fmt.Errorf("no %q in the message: %s", says[i], c.Message)
		}
		return nil
	})
}

// event waits for an event about an object.
func (e *env) event(name, reason string) {
	e.TB.Helper()
	e.eventSays(name, reason, "")
}

// eventSays waits for an event about an object with a text in its note.
func (e *env) eventSays(name, reason, text string) {
	e.TB.Helper()
	e.Eventually("event "+reason+" on "+name+" "+text, func() error {
		list := &eventsv1.EventList{}
		if err := e.Client.List(e.Ctx, list); err != nil {
			return err
		}
		var seen []string
		for _, ev := range list.Items {
			if ev.Regarding.Name == name {
				if ev.Reason == reason && strings.Contains(ev.Note, text) {
					return nil
				}
				seen = append(seen, ev.Reason+": "+ev.Note)
			}
		}
		return fmt.Errorf("only %v", seen)
	})
}

func blockIn(b v1alpha1.PodIPBlock, cidr string) bool {
	return netip.MustParsePrefix(cidr).Contains(netip.MustParsePrefix(b.Spec.CIDR).Addr())
}

func TestPoolsByZone(t *testing.T) {
	e := newEnv(t)
	e.start(quick())
	e.pool("beijing", zone("beijing"), "100.66.224.0/24")
	e.pool("shanghai", zone("shanghai"), "100.104.0.0/24")
	e.node("b1", map[string]string{"zone": "beijing"})
	e.node("s1", map[string]string{"zone": "shanghai"})
	e.bareNode("elsewhere", map[string]string{"zone": "lhasa"})
	e.hasBlocks("b1", 1)
	e.hasBlocks("s1", 1)
	if b := e.Blocks("b1")[0]; !blockIn(b, "100.66.224.0/24") {
		t.Errorf("b1 has %s", b.Spec.CIDR)
	}
	if b := e.Blocks("s1")[0]; !blockIn(b, "100.104.0.0/24") {
		t.Errorf("s1 has %s", b.Spec.CIDR)
	}
	e.shortage("elsewhere", corev1.ConditionTrue)
	e.eventSays("elsewhere", event.ReasonNoPoolSelectsNode, "no PodIPPool selects this node")
	if _, err := e.ciliumNode("elsewhere"); !apierrors.IsNotFound(err) {
		t.Errorf("a node of no pool has a CiliumNode: %v", err)
	}
}
