//go:build linux

package main

import (
	"context"
	"fmt"
	"time"

	ipamoption "github.com/cilium/cilium/pkg/ipam/option"

	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
)

const undoPods = 40 // two blocks

// undo lets the demand of a node fall, and rise again while addresses are marked, and
// once more while they are acked: the release must be undone, no block claimed in place
// of the draining one, and no ADD may fail.
func undo(ctx context.Context, e *env) error {
	n, probe, pods, err := e.loaded(ctx, undoPods, soon()...)
	if err != nil {
		return err
	}
	flows, err := startPings(probe, pods[:1])
	if err != nil {
		return err
	}
	for _, state := range []string{ipamoption.IPAMMarkForRelease, ipamoption.IPAMReadyForRelease} {
		if err := e.deletePods(ctx, pods[1:]); err != nil {
			return err
		}
		err := e.Eventually(ctx, "addresses are "+state, func(ctx context.Context) error {
			cn, err := e.CiliumNode(ctx, n.Name)
			if err == nil && releases(cn, state) == 0 {
				err = fmt.Errorf("release-ips %v", cn.Status.IPAM.ReleaseIPs)
			}
			return err
		})
		if err != nil {
			return err
		}
		if pods, err = e.riseAgain(ctx, n, pods[:1], state); err != nil {
			return err
		}
	}
	e.judgePings(flows, "packets lost by a pod that stayed")
	e.checkKept(ctx, n, pods, "pods at their address")
	return e.judgeRules(ctx)
}

// riseAgain starts as many pods as there were before, and waits until the release is undone.
func (e *env) riseAgain(ctx context.Context, n *bed.Node, keep []*bed.Pod, state string) ([]*bed.Pod, error) {
	began := time.Now()
	again, errs := e.runPods(ctx, n, state, undoPods-len(keep), 8)
	e.checkNone(errs, state+": failed CNI ADDs of "+fmt.Sprint(undoPods-len(keep)))
	err := e.Eventually(ctx, "the release is undone", func(ctx context.Context) error {
		cn, err := e.CiliumNode(ctx, n.Name)
		if err == nil && len(cn.Status.IPAM.ReleaseIPs) > 0 {
			err = fmt.Errorf("%d release-ips", len(cn.Status.IPAM.ReleaseIPs))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	cn, err := e.CiliumNode(ctx, n.Name)
	if err != nil {
		return nil, err
	}
	e.check(len(cn.Spec.IPAM.PodCIDRs) == 2 && len(cn.Spec.IPAM.Pool) == 2*perBlock, state+": blocks, addresses after it was undone",
		"%d, %d; %.0f s", len(cn.Spec.IPAM.PodCIDRs), len(cn.Spec.IPAM.Pool), time.Since(began).Seconds())
	return append(keep[:1:1], again...), nil
}
