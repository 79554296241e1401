//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
)

const (
	// The same kill times in every run, as far as the machine allows.
	killSeed = 3
	addTries = 10
)

// kill runs two operators and kills one or the other with SIGKILL every few seconds,
// while 120 pods are created and most of them deleted. Failed ADDs are retried, as a
// kubelet does.
func kill(ctx context.Context, e *env) error {
	flags := append(soon(), "--leader-elect-lease-duration=4s")
	n, probe, err := e.pair(ctx, flags...)
	if err != nil {
		return err
	}
	operators := &operators{env: e, flags: flags, random: rand.New(rand.NewPCG(killSeed, killSeed))}
	killing, stop := context.WithCancel(ctx)
	defer stop()
	var done sync.WaitGroup
	var killErr error
	done.Go(func() { killErr = operators.keepKilling(killing) })

	pods, again, err := e.runStubborn(ctx, n, "stubborn", surgePods)
	e.note(fmt.Sprintf("CNI ADDs tried again for %d pods", surgePods), "%d", again)
	if err != nil {
		return err
	}
	keep, drop := scattered(pods)
	flows, err := startPings(probe, keep)
	if err != nil {
		return err
	}
	if err := e.deletePods(ctx, drop); err != nil {
		return err
	}
	// Most blocks are released while operators are killed, the rest afterwards.
	if err := pause(ctx, 40*time.Second); err != nil {
		return err
	}
	stop()
	done.Wait()
	if killErr != nil {
		return killErr
	}
	waitErr := e.Eventually(ctx, "the blocks have gone back", func(ctx context.Context) error { return e.compact(ctx, n.Name) })
	if waitErr != nil {
		e.Logf("%v", waitErr)
	}
	e.check(waitErr == nil, "operators killed; blocks went back", "%d; %t", operators.killed, waitErr == nil)
	e.judgePings(flows, "packets lost by the six that stayed")
	e.checkKept(ctx, n, keep, "pods whose address stayed")
	return e.judgeRules(ctx)
}

// operators are two operators, one of which leads.
type operators struct {
	*env
	flags  []string
	random *rand.Rand
	killed int
}

func (o *operators) keepKilling(ctx context.Context) error {
	second, err := o.StartOperator(o.flags...)
	if err != nil {
		return err
	}
	both := []*bed.Operator{o.operator, second}
	for ctx.Err() == nil {
		_ = pause(ctx, time.Second+time.Duration(o.random.IntN(5000))*time.Millisecond) // also if ctx has ended
		i := o.random.IntN(len(both))
		if err := both[i].Kill(); err != nil {
			return err
		}
		o.killed++
		if both[i], err = o.StartOperator(o.flags...); err != nil {
			return err
		}
	}
	return nil
}

// load runs pods that a scenario needs but does not judge.
func (e *env) load(ctx context.Context, n *bed.Node, count int) ([]*bed.Pod, error) {
	pods, again, err := e.runStubborn(ctx, n, "load", count)
	if again > 0 {
		e.Logf("%d ADDs tried again for %d pods", again, count)
	}
	return pods, err
}

// runStubborn runs pods whose ADDs are retried until they succeed, as a kubelet does,
// and counts the retries.
func (e *env) runStubborn(ctx context.Context, n *bed.Node, prefix string, count int) (pods []*bed.Pod, again int, err error) {
	pods = make([]*bed.Pod, count)
	tries, errs := make([]int, count), make([]error, count)
	eachOf(pods, func(i int, _ *bed.Pod) {
		pods[i], tries[i], errs[i] = e.runOneStubborn(ctx, n, fmt.Sprintf("%s-%s-%d", prefix, n.Name, i))
	})
	for _, t := range tries {
		again += t
	}
	return pods, again, errors.Join(errs...)
}

func (e *env) runOneStubborn(ctx context.Context, n *bed.Node, name string) (*bed.Pod, int, error) {
	p, err := n.CreatePod(ctx, name)
	if err != nil {
		return nil, 0, err
	}
	tries, err := attachStubborn(ctx, p)
	return p, tries, err
}

// attachStubborn retries ADDs until one succeeds, and counts the failed ones.
func attachStubborn(ctx context.Context, p *bed.Pod) (tries int, err error) {
	for try := range addTries {
		if err = p.Attach(ctx); err == nil {
			return try, p.Report(ctx)
		}
		if err := pause(ctx, 2*time.Second); err != nil {
			return try, err
		}
	}
	return addTries, err
}
