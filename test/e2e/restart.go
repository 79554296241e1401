//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	ipamoption "github.com/cilium/cilium/pkg/ipam/option"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"

	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
)

const (
	restartPods = 40 // two blocks
	restartKeep = 8  // every 8th stays
	fresh       = 3  // pods attached just before each kill
)

// restart kills the agent with SIGKILL in each phase of a release and starts
// it again, the bpffs kept. Before each kill some pods are attached of which
// neither the agent nor the kubelet has told anybody yet.
func restart(ctx context.Context, e *env) error {
	n, probe, err := e.pair(ctx, append(soon(), "--ack-hold=10s")...)
	if err != nil {
		return err
	}
	pods, errs := e.runPods(ctx, n, "load", restartPods, 8)
	if len(errs) > 0 {
		return fmt.Errorf("%d pods failed, the first: %w", len(errs), errs[0])
	}
	s := &restarts{env: e, node: n, probe: probe}
	s.whole = 2 * perBlock
	if s.alive, err = s.phase(ctx, "pods attached, not reported", pods, nil); err != nil {
		return err
	}
	var drop []*bed.Pod
	s.alive = slices.DeleteFunc(s.alive, func(p *bed.Pod) bool {
		gone := slices.Contains(pods, p) && slices.Index(pods, p)%restartKeep != 0
		if gone {
			drop = append(drop, p)
		}
		return gone
	})
	if err := e.deletePods(ctx, drop); err != nil {
		return err
	}
	for _, p := range []struct {
		name string
		is   func(*ciliumv2.CiliumNode) bool
	}{
		{"marked, no ack yet", func(cn *ciliumv2.CiliumNode) bool {
			return releases(cn, ipamoption.IPAMMarkForRelease) > 0 && releases(cn, ipamoption.IPAMReadyForRelease) == 0
		}},
		{"after the ack", func(cn *ciliumv2.CiliumNode) bool {
			return releases(cn, ipamoption.IPAMReadyForRelease) > 0
		}},
		{"after removal", func(cn *ciliumv2.CiliumNode) bool { return len(cn.Spec.IPAM.Pool) < s.whole }},
	} {
		if s.alive, err = s.phase(ctx, p.name, s.alive, p.is); err != nil {
			return err
		}
	}
	return nil
}

// restarts is what the phases share.
type restarts struct {
	*env
	node  *bed.Node
	probe *bed.Pod
	alive []*bed.Pod
	whole int // addresses while nothing has been released
	added int
}

// phase waits until the CiliumNode is as wanted, attaches a few pods, kills
// the agent, starts it again, and checks that every pod is still there. It
// returns all the pods that live.
func (s *restarts) phase(ctx context.Context, name string, pods []*bed.Pod, is func(*ciliumv2.CiliumNode) bool) ([]*bed.Pod, error) {
	s.Logf("phase: %s", name)
	var news []*bed.Pod
	for range fresh {
		if is != nil {
			break
		}
		p, err := s.attach(ctx)
		if err != nil {
			return nil, err
		}
		news = append(news, p)
	}
	flows, err := startPings(s.probe, pods[:min(len(pods), 5)])
	if err != nil {
		return nil, err
	}
	if is != nil {
		if err := s.await(ctx, name, is); err != nil {
			return nil, err
		}
		p, err := s.attach(ctx)
		if err != nil {
			return nil, err
		}
		news = append(news, p)
	}
	if err := s.node.KillAgent(ctx); err != nil {
		return nil, err
	}
	cn, err := s.CiliumNode(ctx, s.node.Name)
	if err != nil {
		return nil, err
	}
	s.note(name+": new pods that are in no report; marked, acked, published at the kill", "%d of %d; %d, %d, %d",
		unreported(cn, news), len(news), releases(cn, ipamoption.IPAMMarkForRelease), releases(cn, ipamoption.IPAMReadyForRelease), len(cn.Spec.IPAM.Pool))
	began := time.Now()
	if err := s.node.StartAgent(ctx); err != nil {
		return nil, err
	}
	if err := s.node.WaitAgent(ctx); err != nil {
		return nil, err
	}
	s.Logf("agent ready again after %.1f s", time.Since(began).Seconds())
	pods = append(slices.Clone(pods), news...)
	s.checkKept(ctx, s.node, pods, name+": pods restored at their address")
	s.judgePings(flows, name+": packets lost over the restart")
	for _, p := range news {
		if err := p.Report(ctx); err != nil {
			return nil, err
		}
	}
	return pods, nil
}

func (s *restarts) await(ctx context.Context, name string, is func(*ciliumv2.CiliumNode) bool) error {
	return s.Eventually(ctx, name, func(ctx context.Context) error {
		cn, err := s.CiliumNode(ctx, s.node.Name)
		if err != nil {
			return err
		}
		if !is(cn) {
			return fmt.Errorf("%d published, release-ips %v", len(cn.Spec.IPAM.Pool), cn.Status.IPAM.ReleaseIPs)
		}
		return nil
	})
}

// attach gives a new pod its network and tells nobody.
func (s *restarts) attach(ctx context.Context) (*bed.Pod, error) {
	s.added++
	p, err := s.node.CreatePod(ctx, fmt.Sprintf("fresh-%d", s.added))
	if err != nil {
		return nil, err
	}
	return p, p.Attach(ctx)
}

func releases(cn *ciliumv2.CiliumNode, state string) int {
	n := 0
	for _, s := range cn.Status.IPAM.ReleaseIPs {
		if string(s) == state {
			n++
		}
	}
	return n
}

func unreported(cn *ciliumv2.CiliumNode, pods []*bed.Pod) int {
	n := 0
	for _, p := range pods {
		if _, ok := cn.Status.IPAM.Used[p.Address.String()]; !ok {
			n++
		}
	}
	return n
}
