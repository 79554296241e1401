package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/bench/bed"
)

const (
	// failovers is how often a leader is killed, and how often one is stopped.
	failovers = 5
	// electing is what a process logs when it begins to wait for the Lease.
	electing = "ttempting to acquire leader lease"
	// endsWithin is how long a leader may take to exit after SIGTERM.
	endsWithin = 20 * time.Second
)

// failover runs two processes with the Lease as shipped, and kills or stops the leader
// while a node needs another block. It measures from then until the standby has claimed the
// block, and until it has published it.
func failover() measure {
	return measure{name: "failover", run: failoverRun, rounds: 1, world: bed.World{Blocks: 1, Used: 24}, contenders: []contender{asShipped()}}
}

// asShipped is operator with its default Lease.
func asShipped() contender {
	c := operator()
	longer := c.argv
	c.settings += ", Lease as shipped: 15 s"
	c.argv = func(st *bed.Stage, w bed.World) ([]string, error) {
		argv, err := longer(st, w)
		return withItsLease(argv), err
	}
	return c
}

func withItsLease(argv []string) []string {
	return slices.DeleteFunc(argv, func(arg string) bool { return strings.HasPrefix(arg, leaseFlag) })
}

// took records how long after the signal to the leader the standby claimed and published,
// in seconds.
type took struct{ claim, publish []float64 }

func failoverRun(ctx context.Context, r *run) error {
	blocks, err := r.observe(ctx, bed.Blocks)
	if err != nil {
		return err
	}
	nodes, err := r.observe(ctx, bed.CiliumNodes)
	if err != nil {
		return err
	}
	leader, err := r.spawn(ctx, "operator-0", r.c.says...)
	if err != nil {
		return err
	}
	var killed, stopped took
	for n := range 2 * min(failovers, r.world.Nodes/2) {
		standby, err := r.spawn(ctx, fmt.Sprintf("operator-%d", n+1), electing)
		if err != nil {
			return err
		}
		end, out := killLeader, &killed
		if n%2 == 1 {
			end, out = stopLeader, &stopped
		}
		if err := r.failOver(ctx, leader, r.world.Nodes-1-n, end, blocks, nodes, out); err != nil {
			return fmt.Errorf("%w; the log of the standby ends:\n%s", err, standby.LogTail())
		}
		leader = standby
	}
	for name, t := range map[string]took{"killed": killed, "stopped": stopped} {
		r.values[name+" claim p50 s"], r.values[name+" claim max s"] = percentile(t.claim, 50), percentile(t.claim, 100)
		r.values[name+" publish p50 s"], r.values[name+" publish max s"] = percentile(t.publish, 50), percentile(t.publish, 100)
		r.values[name+" times"] = float64(len(t.claim))
	}
	return leader.Stop()
}

// spawn starts another process, and waits until it has logged texts and is idle.
func (r *run) spawn(ctx context.Context, name string, texts ...string) (*bed.Process, error) {
	argv, err := r.c.argv(r.Stage, r.world)
	if err != nil {
		return nil, err
	}
	p, err := r.Start(name, nil, argv...)
	if err != nil {
		return nil, err
	}
	if err := r.Until(ctx, p, texts...); err != nil {
		return nil, err
	}
	_, err = r.Idle(ctx, p)
	return p, err
}

// failOver ends the leader, makes a node need a block right after that, and records when
// the node got it.
func (r *run) failOver(ctx context.Context, leader *bed.Process, node int, end func(*bed.Process) error, blocks, nodes *bed.Observer, out *took) error {
	name := bed.NodeName(node)
	blocks.Expect(1, func(event []byte) bool { return isClaimFor(event, name) })
	nodes.Expect(1, func(event []byte) bool { return bed.Name(event) == name && r.c.published(event, 2) })
	begin := time.Now()
	if err := end(leader); err != nil {
		return err
	}
	// Not earlier: a leader that is asked to stop may still claim.
	if err := r.Client.Create(ctx, bed.BoundPod(node, "failover-"+name, netip.Addr{})); err != nil {
		return fmt.Errorf("bind a pod: %w", err)
	}
	claimed, _, _, err := blocks.Wait(ctx)
	if err != nil {
		return fmt.Errorf("no block was claimed for node %s: %w", name, err)
	}
	published, _, _, err := nodes.Wait(ctx)
	if err != nil {
		return fmt.Errorf("no block was published on node %s: %w", name, err)
	}
	out.claim = append(out.claim, claimed.Sub(begin).Seconds())
	out.publish = append(out.publish, published.Sub(begin).Seconds())
	return nil
}

// isClaimFor reports whether an event shows a new block of a node.
func isClaimFor(event []byte, node string) bool {
	return bytes.HasPrefix(event, []byte(`{"type":"ADDED"`)) && bytes.Contains(event, []byte(`"nodeName":"`+node+`"`))
}

func killLeader(p *bed.Process) error { return p.Kill() }

// stopLeader asks a process to stop, and waits until it has exited.
func stopLeader(p *bed.Process) error {
	if err := p.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop the leader: %w", err)
	}
	select {
	case <-p.Ended():
		return nil
	case <-time.After(endsWithin):
		return errors.New("the leader does not end; its log ends:\n" + p.LogTail())
	}
}
