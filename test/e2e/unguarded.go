//go:build linux

package main

import (
	"context"
	"slices"
	"time"

	ipamoption "github.com/cilium/cilium/pkg/ipam/option"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"

	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
)

// restoreTime is longer than an agent takes to restore a pod.
const restoreTime = 15 * time.Second

// unguarded measures what the operator's guard prevents. The operator is killed when it has
// marked addresses of pods that are not reported yet, then the agent, and no operator
// withdraws the marks before the agent restores its pods. Nothing is judged, as this takes two
// failures within seconds.
func unguarded(ctx context.Context, e *env) error {
	n, probe, pods, err := e.loaded(ctx, restartPods, soon()...)
	if err != nil {
		return err
	}
	s := &restarts{env: e, node: n, probe: probe, alive: pods[:1]}
	if err := e.deletePods(ctx, pods[1:]); err != nil {
		return err
	}
	if err := s.await(ctx, "few are used", func(cn *ciliumv2.CiliumNode) bool { return len(cn.Status.IPAM.Used) < restartKeep }); err != nil {
		return err
	}
	for range restartKeep {
		p, err := s.attach(ctx)
		if err != nil {
			return err
		}
		s.alive = append(s.alive, p)
	}
	if err := s.await(ctx, "marked", func(cn *ciliumv2.CiliumNode) bool { return releases(cn, ipamoption.IPAMMarkForRelease) > 0 }); err != nil {
		return err
	}
	if err := e.operator.Kill(); err != nil {
		return err
	}
	if err := s.bounce(ctx, "operator dead too", s.alive[1:]); err != nil {
		return err
	}
	e.noteLost(ctx, n, s.alive, "pods lost while no operator withdraws the marks")
	if e.operator, err = e.StartOperator(soon()...); err != nil {
		return err
	}
	if err := s.await(ctx, "the marks are withdrawn", func(cn *ciliumv2.CiliumNode) bool { return len(cn.Status.IPAM.ReleaseIPs) == 0 }); err != nil {
		return err
	}
	if err := s.bounce(ctx, "operator back, agent killed once more", nil); err != nil {
		return err
	}
	e.noteLost(ctx, n, s.alive, "pods lost after the agent's next restart")
	return nil
}

// noteLost records which pods the agent does not have once it has had time to restore them.
func (e *env) noteLost(ctx context.Context, n *bed.Node, pods []*bed.Pod, what string) {
	short, cancel := context.WithTimeout(ctx, restoreTime)
	defer cancel()
	_ = e.Eventually(short, "all are restored", func(ctx context.Context) error {
		_, err := n.Has(ctx, pods)
		return err
	})
	var lost []string
	for _, p := range pods {
		if _, err := n.Has(ctx, []*bed.Pod{p}); err != nil {
			lost = append(lost, p.Name)
			e.Logf("%v", err)
		}
	}
	slices.Sort(lost)
	e.note(what, "%d of %d %v", len(lost), len(pods), lost)
}
