//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/whole"
)

const (
	// blockDrainPods need two blocks of 30 addresses, one of which has the router's.
	blockDrainPods = 40
	// parkedTick is how often a test checks for a parked block. A block is parked for a
	// second.
	parkedTick = 20 * time.Millisecond
)

// modesDrain drains a block with pods: new pods get addresses elsewhere, the agent is killed,
// the operator is killed while the block is parked, and the block is released after its last
// pod.
func modesDrain(ctx context.Context, e *env) error {
	if err := e.startBeside(ctx, multiPoolMode, whole.InPools()); err != nil {
		return err
	}
	d := &blockDrain{listDrain: &listDrain{env: e}, flags: []string{"--leader-elect-lease-duration=4s", wholeCooldown, "--park-draining-blocks"}}
	for _, step := range []func(context.Context) error{d.begin, d.closes, d.killed, d.empties} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return e.judgeWhole(ctx)
}

type blockDrain struct {
	*listDrain
	flags    []string // of the operator
	closedBy string   // container of the agent that was last seen to have closed the block
}

// begin runs pods in two blocks, and requests the drain of the one without the agent's own
// address.
func (d *blockDrain) begin(ctx context.Context) (err error) {
	if err := d.operate(multiPoolMode, d.flags...); err != nil {
		return err
	}
	other, err := d.env.node(ctx, "n2")
	if err != nil {
		return err
	}
	if d.node, err = d.env.node(ctx, "n1"); err != nil {
		return err
	}
	probes, err := d.load(ctx, other, 1)
	if err != nil {
		return err
	}
	d.probe = probes[0]
	pods, err := d.load(ctx, d.node, blockDrainPods)
	if err != nil {
		return err
	}
	if d.leaving, err = d.choose(ctx, pods); err != nil {
		return err
	}
	for _, p := range pods {
		if d.leaving.Contains(p.Address) {
			d.drained = append(d.drained, p)
		} else {
			d.kept = append(d.kept, p)
		}
	}
	d.note("pods; in the block that is to drain", "%d; %d", len(pods), len(d.drained))
	return d.Client.Delete(ctx, d.block())
}

// choose returns the block that has pods but none of the agent's own addresses.
func (d *blockDrain) choose(ctx context.Context, pods []*bed.Pod) (netip.Prefix, error) {
	cn, err := d.CiliumNode(ctx, d.node.Name)
	if err != nil {
		return netip.Prefix{}, err
	}
	assigned, own := whole.AssignedTo(cn), whole.OwnAddresses(cn)
	i := slices.IndexFunc(assigned, func(c netip.Prefix) bool {
		return countIn(pods, c.String()) > 0 && !slices.ContainsFunc(own, c.Contains)
	})
	if i < 0 {
		return netip.Prefix{}, fmt.Errorf("none of %v has pods, and none of %v", assigned, own)
	}
	return assigned[i], nil
}

func (d *blockDrain) block() *v1alpha1.PodIPBlock {
	return &v1alpha1.PodIPBlock{ObjectMeta: metav1.ObjectMeta{Name: crd.BlockName(d.leaving)}}
}

// closes waits until no new pod gets an address of the block, and then runs new pods.
func (d *blockDrain) closes(ctx context.Context) error {
	t, err := d.drainTraffic()
	if err != nil {
		return err
	}
	if err := d.closed(ctx, "deleted"); err != nil {
		return err
	}
	if err := d.place(ctx, "closed", newPods); err != nil {
		return err
	}
	d.judge(t, "closed")
	return nil
}

// closed waits until an agent that had not closed the block before has done so, and the block
// is listed under its pool again.
func (d *blockDrain) closed(ctx context.Context, after string) error {
	began := time.Now()
	err := d.Eventually(ctx, "the agent has closed the block", func(ctx context.Context) error {
		b := d.block()
		if err := d.Client.Get(ctx, client.ObjectKeyFromObject(b), b); err != nil {
			return err
		}
		if b.Status.Closed == nil || b.Status.Closed.Container == d.closedBy {
			return fmt.Errorf("closed is %v", b.Status.Closed)
		}
		listed, err := d.lists(ctx, d.leaving)
		if err != nil || !listed {
			return errors.Join(err, errors.New("it is not listed"))
		}
		d.closedBy = b.Status.Closed.Container
		return nil
	})
	d.check(err == nil, after+": until no new pod gets an address of the block", "%.0f s", time.Since(began).Seconds())
	return err
}

// killed kills the agent, which forgets that the block is closed, and the operator as soon
// as it has parked the block for the new agent. That agent then lists it again.
func (d *blockDrain) killed(ctx context.Context) error {
	operatorKilled := make(chan error, 1)
	go func() { operatorKilled <- d.killOperator(ctx) }()
	if err := d.restart(ctx, "agent killed"); err != nil {
		return err
	}
	t, err := d.drainTraffic()
	if err != nil {
		return err
	}
	if err := <-operatorKilled; err != nil {
		return err
	}
	took, err := d.until(ctx, d.leaving, true)
	if err != nil {
		return err
	}
	d.note("operator killed while the block was parked: until the agent had listed it again", "%.1f s", took.Seconds())
	if err := d.place(ctx, "no operator", 1); err != nil {
		return err
	}
	if err := d.operate(multiPoolMode, d.flags...); err != nil {
		return err
	}
	if err := d.closed(ctx, "operator back"); err != nil {
		return err
	}
	if err := d.place(ctx, "operator back", newPods); err != nil {
		return err
	}
	d.judge(t, "operator killed while the block was parked")
	return nil
}

// killOperator kills the operator as soon as the block is parked.
func (d *blockDrain) killOperator(ctx context.Context) error {
	if err := d.awaitParked(ctx); err != nil {
		return err
	}
	return d.operator.Kill()
}

// awaitParked waits until the block is parked.
func (d *blockDrain) awaitParked(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Minute, errors.New("the block was not parked"))
	defer cancel()
	return harness.Until(ctx, parkedTick, func(ctx context.Context) error {
		cn, err := d.CiliumNode(ctx, d.node.Name)
		if err == nil && !slices.Contains(whole.AssignedIn(cn, ciliumnode.ParkedPool("")), d.leaving) {
			err = errors.New("it is not parked")
		}
		return err
	})
}

// empties deletes the last pods of the block, and waits until it is released.
func (d *blockDrain) empties(ctx context.Context) error {
	t, err := d.traffic(d.kept[0], d.placed[0])
	if err != nil {
		return err
	}
	if err := d.deletePods(ctx, d.drained); err != nil {
		return err
	}
	d.drained = nil
	began := time.Now()
	err = d.Eventually(ctx, "the block has left", func(ctx context.Context) error {
		blocks, err := d.blocksOf(ctx, d.node.Name)
		if err == nil && slices.Contains(blocks, d.leaving) {
			err = fmt.Errorf("there is %s still", d.leaving)
		}
		return err
	})
	d.check(err == nil, "its last pod deleted: until the block had left", "%.0f s", time.Since(began).Seconds())
	if err != nil {
		return err
	}
	d.judge(t, "its last pod deleted: other pods")
	d.checkAssigned(ctx, d.node, d.all(), "pods at their address")
	return nil
}
