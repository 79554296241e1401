//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	ipamoption "github.com/cilium/cilium/pkg/ipam/option"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
)

const (
	earlyLoad = 40 // two blocks
	earlyPods = 10 // that stay; few enough for a block to be reclaimed
	earlyLost = 3
	// earlyTime is longer than the operator takes to mark plus the agent to answer.
	earlyTime = 25 * time.Second
	// earlyAnswer is the same on a busy machine.
	earlyAnswer = time.Minute
	// hangTime is longer than an agent takes to reach the point where it hangs.
	hangTime = 5 * time.Second
	// earlyHold is the operator's --ack-hold where no other guard is left.
	earlyHold = 5 * time.Second
)

// defaultsButReclaim returns the operator's defaults, except for when it reclaims
// and how soon it leads after another one was killed.
func defaultsButReclaim(idle string, more ...string) []string {
	return append([]string{"--reclaim-idle-for=" + idle, "--cooldown=5s", "--leader-elect-lease-duration=4s"}, more...)
}

// restartEarly restarts an agent while the API server is slow to list pods to it, so that it
// answers marks long before it restores its pods, while its own Pod object is already Ready.
// It does so three times: with the operator's defaults, which must not mark anything then;
// with the operator's guard turned off; and with marks set by hand on addresses of running
// pods, which no operator sets. Patched agents answer no marks before they have restored their
// pods, and lose none.
func restartEarly(ctx context.Context, e *env) error {
	n, probe, pods, err := e.loaded(ctx, earlyLoad, defaultsButReclaim("10m")...)
	if err != nil {
		return err
	}
	keep, drop := pods[:earlyPods], pods[earlyPods:]
	if err := e.deletePods(ctx, drop); err != nil {
		return err
	}
	s := &restarts{env: e, node: n, probe: probe, alive: keep}
	if err := s.await(ctx, "few are used", func(cn *ciliumv2.CiliumNode) bool { return len(cn.Status.IPAM.Used) == len(keep)+1 }); err != nil {
		return err
	}
	flows, err := startPings(s.probe, keep[:pinged])
	if err != nil {
		return err
	}
	gate, err := s.node.Gate()
	if err != nil {
		return err
	}
	for _, step := range []func(context.Context, *bed.Gate) error{s.guarded, s.forced, s.byHand} {
		if err = step(ctx, gate); err != nil {
			break
		}
	}
	s.judgePings(flows, "packets lost by pods through all that, bpffs kept")
	return errors.Join(err, gate.Close(), e.judgeRules(ctx))
}

// keptAtMarks checks that patched agents keep pods at marked addresses, and refuse the marks.
func (s *restarts) keptAtMarks(ctx context.Context, acked int) error {
	s.check(acked == 0, "addresses of running pods marked by hand, acked before restore", "%d, %d", earlyLost, acked)
	s.checkKept(ctx, s.node, s.alive, "pods restored, those at marked addresses among them")
	return s.await(ctx, "the marks are refused", func(cn *ciliumv2.CiliumNode) bool {
		return releases(cn, ipamoption.IPAMDoNotRelease) == earlyLost
	})
}

// held restarts the agent so that it hangs before it restores, with an operator
// that would reclaim at once.
func (s *restarts) held(ctx context.Context, gate *bed.Gate, operatorFlags ...string) error {
	if err := errors.Join(s.operator.Kill(), s.node.KillAgent(ctx)); err != nil {
		return err
	}
	gate.Shut()
	if err := s.node.StartAgent(ctx); err != nil {
		return err
	}
	if err := errors.Join(pause(ctx, hangTime), s.node.ClaimReady(ctx)); err != nil || operatorFlags == nil {
		return err
	}
	var err error
	s.operator, err = s.StartOperator(operatorFlags...)
	return err
}

// released lets the agent continue.
func (s *restarts) released(ctx context.Context, gate *bed.Gate) error {
	gate.Open()
	return s.node.WaitAgent(ctx)
}

// guarded tests a hang with the operator's defaults.
func (s *restarts) guarded(ctx context.Context, gate *bed.Gate) error {
	if err := s.held(ctx, gate, defaultsButReclaim("1s")...); err != nil {
		return err
	}
	marks := 0
	short, cancel := context.WithTimeout(ctx, earlyTime)
	defer cancel()
	_ = s.await(short, "marked", func(cn *ciliumv2.CiliumNode) bool {
		marks = max(marks, len(cn.Status.IPAM.ReleaseIPs))
		return marks > 0
	})
	s.check(marks == 0 && ctx.Err() == nil, fmt.Sprintf("marks within %.0f s of a hang before restore, by default", earlyTime.Seconds()), "%d", marks)
	if err := s.released(ctx, gate); err != nil {
		return err
	}
	s.checkKept(ctx, s.node, s.alive, "pods restored, by default")
	return nil
}

// forced tests a hang with an operator that trusts a Ready agent at once.
func (s *restarts) forced(ctx context.Context, gate *bed.Gate) error {
	flags := defaultsButReclaim("1s", "--agent-settle-time=0s", "--ack-hold="+earlyHold.String())
	if err := s.held(ctx, gate, flags...); err != nil {
		return err
	}
	acked, used, pool := 0, 0, 0
	short, cancel := context.WithTimeout(ctx, earlyAnswer)
	defer cancel()
	err := s.await(short, "marks are answered before restore", func(cn *ciliumv2.CiliumNode) bool {
		acked, used, pool = releases(cn, ipamoption.IPAMReadyForRelease), len(cn.Status.IPAM.Used), len(cn.Spec.IPAM.Pool)
		return acked > 0
	})
	s.check((err == nil) != s.patched && ctx.Err() == nil, "without --agent-settle-time, acked before restore; addresses reported in use then", "%d; %d", acked, used)
	if err := pause(ctx, 3*earlyHold); err != nil {
		return err
	}
	cn, err := s.CiliumNode(ctx, s.node.Name)
	if err != nil {
		return err
	}
	s.check(len(cn.Spec.IPAM.Pool) == pool, "addresses taken away while nothing is reported, thrice --ack-hold", "%d", pool-len(cn.Spec.IPAM.Pool))
	if err := s.released(ctx, gate); err != nil {
		return err
	}
	s.checkKept(ctx, s.node, s.alive, "pods restored, without --agent-settle-time")
	return nil
}

// byHand marks addresses of running pods while the agent hangs and no operator runs
// that would withdraw the marks. It comes last, as it costs pods.
func (s *restarts) byHand(ctx context.Context, gate *bed.Gate) error {
	if err := s.held(ctx, gate); err != nil {
		return err
	}
	victims := s.alive[len(s.alive)-earlyLost:]
	marks := map[string]string{}
	for _, p := range victims {
		marks[p.Address.String()] = ipamoption.IPAMMarkForRelease
	}
	data, err := json.Marshal(map[string]any{"status": map[string]any{"ipam": map[string]any{"release-ips": marks}}})
	if err != nil {
		return fmt.Errorf("mark by hand: %w", err)
	}
	cn := &ciliumv2.CiliumNode{}
	cn.Name = s.node.Name
	if err := s.Client.Status().Patch(ctx, cn, client.RawPatch("application/merge-patch+json", data)); err != nil {
		return fmt.Errorf("mark by hand: %w", err)
	}
	acked := 0
	short, cancel := context.WithTimeout(ctx, earlyAnswer)
	defer cancel()
	if err := s.await(short, "marks are answered before restore", func(cn *ciliumv2.CiliumNode) bool {
		acked = 0
		for _, p := range victims {
			if cn.Status.IPAM.ReleaseIPs[p.Address.String()] == ipamoption.IPAMReadyForRelease {
				acked++
			}
		}
		return acked > 0
	}); err != nil {
		s.Logf("%v", err)
	}
	if err := s.released(ctx, gate); err != nil {
		return err
	}
	if s.patched {
		return s.keptAtMarks(ctx, acked)
	}
	s.note("addresses of running pods marked by hand, acked before restore", "%d, %d", len(victims), acked)
	s.noteLost(ctx, s.node, victims, "pods at them lost")
	s.checkKept(ctx, s.node, s.alive[:len(s.alive)-earlyLost], "the other pods restored")
	return nil
}
