package invariant

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
)

// Quiet checks rule 8 for a period.
func (c *Checker) Quiet(ctx context.Context, period time.Duration) ([]Violation, error) {
	end, err := c.BeginQuiet(ctx)
	if err != nil {
		return nil, err
	}
	timer := time.NewTimer(period)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return end(ctx)
}

// BeginQuiet checks rule 8 until end is called: no block is written, of a pool only the addresses in
// use, which follow agents, and of a CiliumNode only its agent's fields. Other writes are violations,
// which end also returns.
func (c *Checker) BeginQuiet(ctx context.Context) (end func(context.Context) ([]Violation, error), err error) {
	if err := c.Sync(ctx); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.restless = &[]Violation{}
	return c.endQuiet, nil
}

func (c *Checker) endQuiet(ctx context.Context) ([]Violation, error) {
	err := c.Sync(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.restless == nil {
		return nil, err
	}
	found := *c.restless
	c.restless = nil
	for _, v := range found {
		c.report(v)
	}
	return found, err
}

// noticeRest records a write while there should be none. The caller holds c.mu, and the model
// is the state before the write.
func (c *Checker) noticeRest(change Change) {
	if c.restless == nil {
		return
	}
	what := ""
	switch change.Kind {
	case KindBlock:
		what = "written"
	case KindPool:
		if !equality.Semantic.DeepEqual(withoutUsed(change.Old), withoutUsed(change.New)) {
			what = "written"
		}
	case KindCiliumNode:
		what = c.model.notOfAgent(change)
	}
	if what != "" {
		*c.restless = append(*c.restless, Violation{
			Rule: 8, Subject: string(change.Kind) + " " + change.Name, Version: change.Version,
			Text: fmt.Sprintf("%s at rest", what),
		})
	}
}

// withoutUsed returns a pool's spec and status without the addresses in use; nil: there is none.
func withoutUsed(o client.Object) *v1alpha1.PodIPPool {
	pool, ok := o.(*v1alpha1.PodIPPool)
	if !ok {
		return nil
	}
	pool = pool.DeepCopy()
	for _, f := range []*v1alpha1.FamilyStatus{pool.Status.IPv4, pool.Status.IPv6} {
		if f != nil {
			f.Addresses.Used = nil
		}
	}
	return &v1alpha1.PodIPPool{Spec: pool.Spec, Status: pool.Status}
}

// notOfAgent returns a change of a CiliumNode's version that is not its agent's; "": none. Answers
// to the handshake are the agent's, but in a settled cluster there are none.
func (m *model) notOfAgent(change Change) string {
	old, now := m.views[change.Name], newView(change)
	switch {
	case old == nil || now == nil:
		return "created or deleted"
	case !maps.Equal(old.pool, now.pool) || !maps.Equal(old.unreadable, now.unreadable):
		return "pool changed"
	case !slices.Equal(old.podCIDRs, now.podCIDRs):
		return "podCIDRs changed"
	case !maps.Equal(old.release, now.release):
		return "release-ips changed"
	}
	return ""
}
