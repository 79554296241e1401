package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/test/bench/bed"
)

// installCilium makes cilium-operator install its CRDs, so that no peer does so within a
// measured run.
func installCilium(ctx context.Context, st *bed.Stage) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 3*time.Minute, errors.New("cilium-operator did not install its CRDs"))
	defer cancel()
	for _, mode := range []bed.Mode{bed.ClusterPool, bed.MultiPool} {
		c := ciliumOperatorWith(mode)
		c.says = []string{"Started hive"} // logged once its hooks, including that of the CRDs, have run
		if err := runOnce(ctx, st, bed.World{}, c); err != nil {
			return err
		}
	}
	return nil
}

// settle lets the operator add its finalizer and status to the pool. It fails if the
// operator finds anything else to do, because then the world is not as the operator would
// have created it.
func settle(ctx context.Context, st *bed.Stage, w bed.World) error {
	before, err := st.Usage(ctx, nil)
	if err != nil {
		return err
	}
	c := operator() // with the flags of the measures, as the pool's status shows them
	switch {
	case w.Mode == bed.OwnMultiPool:
		c = inMultiPool()
	case w.Routes:
		c = routing()
	}
	if err := runOnce(ctx, st, w, c); err != nil {
		return err
	}
	after, err := st.Usage(ctx, nil)
	if err != nil {
		return err
	}
	counts := after.Counts.Sub(before.Counts)
	if n := counts.Writes("ciliumnodes", "podipblocks"); n > 0 {
		return fmt.Errorf("the operator had %s writes to make in a settled world: %s", number(n), counts)
	}
	return nil
}

// runOnce runs a contender until it is idle, and deletes its Lease, so that the next one does
// not wait for it.
func runOnce(ctx context.Context, st *bed.Stage, w bed.World, c contender) error {
	p, err := c.start(st, w, "contender")
	if err != nil {
		return err
	}
	if err := st.Until(ctx, p, c.says...); err != nil {
		return fmt.Errorf("%w; its log ends:\n%s", err, p.LogTail())
	}
	if err := st.HasRoutes(ctx, w); err != nil {
		return err
	}
	if err := st.IdleFor(ctx, p, bed.Calm); err != nil {
		return err
	}
	if err := p.Stop(); err != nil {
		return err
	}
	var leases coordinationv1.LeaseList
	if err := st.Client.List(ctx, &leases); err != nil {
		return err
	}
	for i := range leases.Items {
		if strings.HasPrefix(leases.Items[i].Name, "cilium") {
			if err := st.Client.Delete(ctx, &leases.Items[i]); client.IgnoreNotFound(err) != nil {
				return err
			}
		}
	}
	return nil
}
