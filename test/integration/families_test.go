package integration

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/test/agent"
)

// ofFamily returns the blocks of one family on all nodes.
func (e *env) ofFamily(is4 bool) []string {
	e.TB.Helper()
	var names []string
	for _, b := range e.Blocks("") {
		if netip.MustParsePrefix(b.Spec.CIDR).Addr().Is4() == is4 {
			names = append(names, b.Name)
		}
	}
	return names
}

func ipv6Too(p *v1alpha1.PodIPPool) {
	p.Spec.IPv6 = &v1alpha1.IPv6Ranges{BlockSize: 126, CIDRs: []v1alpha1.PoolCIDR{{CIDR: "fd00:10::/112"}}}
}

// patchIPv6 patches the IPv6 ranges of the pool "both".
func (e *env) patchIPv6(ranges string) error {
	e.TB.Helper()
	return e.Client.Patch(e.Ctx, &v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: "both"}},
		client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"ipv6":`+ranges+`}}`)))
}

// withoutIPv6 removes IPv6 from the pool.
func (e *env) withoutIPv6() error {
	e.TB.Helper()
	return e.patchIPv6("null")
}

const drainedIPv6 = `{"cidrs":[{"cidr":"fd00:10::/112","allocationPolicy":"Drain"}]}`

// The pool has both families, but the agents run IPv4 only, until they are restarted
// with both.
func TestFamilyThatAgentsDoNotRun(t *testing.T) {
	e := newEnv(t)
	e.start(quick())
	e.pool("both", ipv6Too, "10.1.0.0/24")
	e.bareNode("n1", nil)
	a := e.agent("n1", agent.IPv4)
	e.ready(a)
	e.condition("both", v1alpha1.PoolFamiliesServed, metav1.ConditionFalse, "")
	e.event("n1", event.ReasonFamilyNotRun)
	held := e.ofFamily(false)
	e.load("n1", "load", 60)
	e.reported("n1", 61)
	if got := e.ofFamily(false); len(got) != len(held) {
		t.Errorf("IPv6 blocks are %v after 60 pods, and were %v before", got, held)
	}
	if err := e.withoutIPv6(); !apierrors.IsInvalid(err) {
		t.Errorf("IPv6 is taken out of a pool with IPv6 blocks: %v", err)
	}

	// The agent is restarted with IPv6 enabled.
	e.DeletePods("load", nil)
	e.Eventually("the pods are gone", func() error {
		list := &corev1.PodList{}
		if err := e.Client.List(e.Ctx, list, client.InNamespace("default")); err != nil || len(list.Items) > 0 {
			return errors.Join(err, fmt.Errorf("%d are left", len(list.Items)))
		}
		return nil
	})
	a = e.agent("n1", agent.IPv4, agent.IPv6)
	e.ready(a)
	e.condition("both", v1alpha1.PoolFamiliesServed, metav1.ConditionTrue, "")
	e.load("n1", "dual", 20)
	e.Eventually("IPv6 grows with the pods", func() error {
		if got := e.ofFamily(false); len(got) <= len(held) {
			return fmt.Errorf("IPv6 blocks are %v", got)
		}
		return nil
	})
	e.usedArePublished("n1")
}

// IPv6 is drained and removed from a pool with agents that run IPv4 only, except for one that is
// restarted with IPv6 in the middle of it and keeps its addresses in use.
func TestFamilyNotRunIsTakenOut(t *testing.T) {
	e := newEnv(t)
	e.start(quick())
	e.pool("both", ipv6Too, "10.1.0.0/24")
	for _, name := range []string{"n1", "n2"} {
		e.bareNode(name, nil)
		e.ready(e.agent(name, agent.IPv4))
	}
	e.condition("both", v1alpha1.PoolFamiliesServed, metav1.ConditionFalse, "")
	e.load("n1", "load", 20)
	e.Must(e.patchIPv6(drainedIPv6))
	a := e.agent("n2", agent.IPv4, agent.IPv6)
	e.ready(a)
	e.awaitBlocks("the blocks of the agent without IPv6 are back", "n1", 0, 0, func(b v1alpha1.PodIPBlock) bool {
		return netip.MustParsePrefix(b.Spec.CIDR).Addr().Is6()
	})
	e.usedArePublished("n1")
	e.usedArePublished("n2")
	e.Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}})
	e.Eventually("IPv6 can be taken out", e.withoutIPv6)
}

// IPv6 is disabled on agents that ran both families, and removed from the pool, although they
// still name their routers' IPv6 addresses. When it is enabled again, they take others.
func TestFamilySwitchedOffIsTakenOut(t *testing.T) {
	e := newEnv(t)
	e.start(quick())
	e.pool("both", ipv6Too, "10.1.0.0/24")
	a := e.node("n1", nil, agent.IPv4, agent.IPv6)
	e.ready(a)
	e.reported("n1", 2)
	before := e.router6("n1")
	a = e.agent("n1", agent.IPv4)
	e.ready(a)
	e.condition("both", v1alpha1.PoolFamiliesServed, metav1.ConditionFalse, "")
	if got := e.router6("n1"); got != before || got == "" {
		t.Fatalf("the agent names router %q, want still %q", got, before)
	}
	e.Must(e.patchIPv6(drainedIPv6))
	e.Eventually("IPv6 can be taken out", e.withoutIPv6)
	if got := e.ofFamily(false); len(got) > 0 {
		t.Errorf("IPv6 blocks %v are left", got)
	}

	e.Must(e.patchIPv6(`{"blockSize":126,"cidrs":[{"cidr":"fd00:10::/112"}]}`))
	a = e.agent("n1", agent.IPv4, agent.IPv6)
	e.ready(a)
	e.reported("n1", 2)
	if got := e.router6("n1"); got == before || got == "" {
		t.Errorf("the agent names router %q with IPv6 on again, want another than %q", got, before)
	}
	e.usedArePublished("n1")
}

// router6 returns the IPv6 address of a node's router that its CiliumNode names.
func (e *env) router6(node string) string {
	e.TB.Helper()
	cn, err := e.ciliumNode(node)
	e.Must(err)
	for _, a := range cn.Spec.Addresses {
		if a.Type == "CiliumInternalIP" && netip.MustParseAddr(a.IP).Is6() {
			return a.IP
		}
	}
	return ""
}
