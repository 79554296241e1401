//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
)

// surged is the outcome of a surge in a mode in which the agent looks pods up.
type surged struct {
	// pods are the created pods, in the order of their names; one that failed has no address.
	pods []*bed.Pod
	// noAddress counts the pods that found no address, others those that failed for another
	// reason.
	noAddress, others int
	// unseen counts the ADDs that came before the agent had seen its pod.
	unseen int
	took   time.Duration
}

// notSeen reports whether an ADD failed because the agent had not seen the pod: in multi-pool
// mode it reads the requested pool from the pod (Cilium v1.20.1, pkg/ipam/allocator.go,
// determineIPAMPool). No address was requested then.
func notSeen(err error) bool {
	return err != nil && strings.Contains(err.Error(), "unable to determine IPAM pool for owner")
}

// surgeSeen runs count pods, width at a time. Each CNI ADD starts as soon as its pod's
// creation returns. It is retried, in a new sandbox as a kubelet does, only if the agent had
// not seen the pod.
func (e *env) surgeSeen(ctx context.Context, n *bed.Node, prefix string, count, width int) surged {
	s := surged{pods: make([]*bed.Pod, count)}
	errs, unseen := make([]error, count), make([]int, count)
	began := time.Now()
	inParallel(count, width, func(i int) {
		s.pods[i], unseen[i], errs[i] = e.runSeen(ctx, n, fmt.Sprintf("%s-%s-%d", prefix, n.Name, i))
	})
	s.pods = slices.DeleteFunc(s.pods, func(p *bed.Pod) bool { return p == nil })
	s.took = time.Since(began)
	for i := range count {
		s.unseen += unseen[i]
	}
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	logAll(e, errs)
	s.others = len(otherReasons(errs))
	s.noAddress = len(errs) - s.others
	return s
}

// runSeen runs a pod, and returns how often the agent had not seen it.
func (e *env) runSeen(ctx context.Context, n *bed.Node, name string) (*bed.Pod, int, error) {
	p, err := n.CreatePod(ctx, name)
	if err != nil {
		return nil, 0, err
	}
	for tries := 0; ; tries++ {
		if err = p.Attach(ctx); err == nil {
			return p, tries, p.Report(ctx)
		}
		if !notSeen(err) || tries == addTries {
			return p, tries, err
		}
		if p, err = e.nextSandbox(ctx, p); err != nil {
			return p, tries, err
		}
	}
}

// nextSandbox removes a sandbox whose ADD failed, and creates another one after a while.
func (e *env) nextSandbox(ctx context.Context, p *bed.Pod) (*bed.Pod, error) {
	if err := p.Detach(ctx); err != nil {
		e.Logf("%v", err)
	}
	return p.Again(), pause(ctx, retryAfter)
}

// attachRest retries pods without an address until they have one, as a kubelet
// does.
func (e *env) attachRest(ctx context.Context, pods []*bed.Pod) error {
	errs := make([]error, len(pods))
	eachOf(pods, func(i int, p *bed.Pod) {
		for errs[i] == nil && !p.Address.IsValid() {
			if p, errs[i] = e.nextSandbox(ctx, p); errs[i] != nil {
				return
			}
			pods[i] = p
			if p.Attach(ctx) == nil {
				errs[i] = p.Report(ctx)
			}
		}
	})
	return errors.Join(errs...)
}

// noteSurge adds a surge to the table. With our operator no ADD may have failed for
// lack of an address.
func (e *env) noteSurge(s surged, width int, ours bool) {
	what := fmt.Sprintf("pods of %d whose CNI ADD found no address, %d at a time", len(s.pods), width)
	if ours {
		e.check(s.noAddress == 0, what, "%d", s.noAddress)
	} else {
		e.note("Cilium's own operator: "+what, "%d", s.noAddress)
	}
	e.note("ADDs before the agent had seen the pod, tried again; pods that failed for another reason", "%d; %d", s.unseen, s.others)
	e.note("the surge took; slowest ADD", "%.0f s; %.1f s", s.took.Seconds(), slowestAdd(s.attached()).Seconds())
}

// attached returns the pods that have an address.
func (s *surged) attached() []*bed.Pod {
	return slices.DeleteFunc(slices.Clone(s.pods), func(p *bed.Pod) bool { return !p.Address.IsValid() })
}
