package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// oldCommit is the commit of the old operator; there is no release yet.
const oldCommit = "d4dd8e2d84d986a5b2abd0a8ee4f352ad0b5dc70"

// Faults of an upgrade.
const (
	rolledBack fault = "old version led"
	rolledOut  fault = "new version led"
)

func (c *chaos) versionFaults() lane {
	return lane{gap: 2 * time.Second, work: 5 * time.Second, faults: []named{
		{rolledOut, c.letLead(numbered(1))}, {rolledBack, c.letLead(numbered(0))},
		{leaderKilled, c.killLeader}, {bothKilled, c.killBoth}, {leaderPaused, c.pauseLeader},
	}}
}

// startOldVersion makes the first operator run the old version.
func startOldVersion(ctx context.Context, c *chaos) error {
	source, err := checkOut(ctx, oldCommit)
	if err != nil {
		return err
	}
	c.operator[0].args[0], err = c.buildOperator(ctx, source, oldCommit, nil)
	return err
}

func numbered(i int) func(c *chaos) *operator {
	return func(c *chaos) *operator { return c.operator[i] }
}

// handedOver is longer than it takes from the start of a cooldown until another operator leads
// that considers it over.
const handedOver = 8 * time.Second

// letLead makes an operator take over what the other has begun, including a cooldown. Then it
// leads until that is over.
func (c *chaos) letLead(which func(*chaos) *operator) injection {
	return func(ctx context.Context, random *rand.Rand) error {
		leads, _, err := c.lead(ctx)
		if err == nil && leads == which(c) {
			err = c.handOver(ctx, random)
		}
		if err != nil {
			return err
		}
		return c.handOver(ctx, random)
	}
}

// handOver makes the leader start a cooldown and the standby end it. The leader is stopped
// gracefully, as by a kubelet, so that the standby leads within a second or two.
func (c *chaos) handOver(ctx context.Context, random *rand.Rand) error {
	leads, waits, err := c.lead(ctx)
	if err != nil {
		return err
	}
	cooling, err := c.cool(ctx, random)
	if err != nil {
		return err
	}
	if err := c.takesOver(ctx, leads, waits, syscall.SIGTERM, func() {}); err != nil {
		return err
	}
	return until(ctx, patience, func(ctx context.Context) error {
		if there, _, err := c.phaseOf(ctx, cooling); err != nil || there {
			return cmp.Or(err, fmt.Errorf("block %s does not go", cooling.Name))
		}
		return nil
	})
}

// cool drains a block, and keeps its node without pods until the block cools down. In
// kubernetes mode only the removal of a node does that, which happens now and then meanwhile.
func (c *chaos) cool(ctx context.Context, random *rand.Rand) (*v1alpha1.PodIPBlock, error) {
	if c.Mode.is(kubernetesMode) {
		c.load.surge(ctx)
		return &v1alpha1.PodIPBlock{}, nil
	}
	var block *v1alpha1.PodIPBlock
	err := until(ctx, patience, func(ctx context.Context) (err error) {
		if block == nil || !c.drainable(block) { // its agent may have allocated one of its addresses
			block, err = c.drainInstead(ctx, random, block)
			return cmp.Or(err, errors.New("it has just been deleted"))
		}
		there, phase, err := c.phaseOf(ctx, block)
		if err != nil || !there || phase == v1alpha1.PhaseCoolingDown {
			return err
		}
		return cmp.Or(c.deletePods(ctx, block.Spec.NodeName, 1, client.HasLabels{podLabel}), fmt.Errorf("block %s is %s", block.Name, phase))
	})
	if block != nil {
		c.load.add(block.Spec.NodeName)
	}
	return block, err
}

// drainInstead deletes a block, in place of another if given, and stops load from adding pods
// to its node.
func (c *chaos) drainInstead(ctx context.Context, random *rand.Rand, of *v1alpha1.PodIPBlock) (*v1alpha1.PodIPBlock, error) {
	if of != nil {
		c.load.add(of.Spec.NodeName)
	}
	c.load.surge(ctx) // so that nodes need blocks, which requires free ones
	block, err := c.deleteOne(ctx, random)
	if err != nil {
		return nil, errors.Join(err, c.network.undrain(ctx), c.network.grow(ctx, random))
	}
	c.load.remove(block.Spec.NodeName)
	return block, nil
}

// phaseOf reads the phase of a block, if it still exists.
func (c *chaos) phaseOf(ctx context.Context, block *v1alpha1.PodIPBlock) (there bool, phase v1alpha1.BlockPhase, err error) {
	if block.Name == "" {
		return false, "", nil
	}
	now := &v1alpha1.PodIPBlock{}
	err = client.IgnoreNotFound(c.client.Get(ctx, client.ObjectKeyFromObject(block), now))
	return now.UID == block.UID, now.Status.Phase, err
}

// upgrade completes an upgrade: both operators run the new version.
func upgrade(ctx context.Context, c *chaos) error {
	old, begin := c.operator[0], time.Now()
	for _, o := range c.operator {
		if o.led() == 0 {
			return fmt.Errorf("%w: %s never led", errIdle, o.name)
		}
	}
	old.mu.Lock()
	old.args = append([]string{c.operator[1].args[0]}, old.args[1:]...)
	old.mu.Unlock()
	if err := old.kill(0); err != nil {
		return err
	}
	return until(ctx, leadWithin, func(context.Context) error {
		if old.electsSince().Before(begin) || leader(c.operator) == nil {
			return errors.New("the operators do not run")
		}
		return nil
	})
}
