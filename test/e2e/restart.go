//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"

	ipamoption "github.com/cilium/cilium/pkg/ipam/option"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"

	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
)

const (
	restartPods = 40 // two blocks
	restartKeep = 8  // every 8th stays
	fresh       = 4  // pods attached before each kill
	pinged      = 5
)

// restart kills the agent with SIGKILL in each phase of a release and restarts
// it, keeping the bpffs. Before each kill it attaches pods that neither the agent
// nor the kubelet has reported yet: their addresses look free.
func restart(ctx context.Context, e *env) error {
	n, probe, pods, err := e.loaded(ctx, restartPods, append(soon(), "--ack-hold=10s")...)
	if err != nil {
		return err
	}
	s := &restarts{env: e, node: n, probe: probe, alive: pods}
	if err := s.phase(ctx, phase{name: "attached, not reported", at: always, then: always}); err != nil {
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
	few := len(s.alive) + 2
	for _, p := range []phase{
		{
			name: "marked",
			at:   func(cn *ciliumv2.CiliumNode) bool { return len(cn.Status.IPAM.Used) < few },
			then: func(cn *ciliumv2.CiliumNode) bool {
				return releases(cn, ipamoption.IPAMMarkForRelease)+releases(cn, ipamoption.IPAMReadyForRelease) > 0
			},
		},
		{
			name: "after the ack", then: always,
			at: func(cn *ciliumv2.CiliumNode) bool { return releases(cn, ipamoption.IPAMReadyForRelease) > 0 },
		},
		{
			name: "after removal", then: always,
			at: func(cn *ciliumv2.CiliumNode) bool { return len(cn.Spec.IPAM.Pool) < 2*perBlock },
		},
	} {
		if err := s.phase(ctx, p); err != nil {
			return err
		}
	}
	return e.judgeRules(ctx)
}

// phase determines when the agent is killed.
type phase struct {
	name string
	// at determines when the new pods are attached, then when the agent is killed after that.
	at, then func(*ciliumv2.CiliumNode) bool
}

func always(*ciliumv2.CiliumNode) bool { return true }

// restarts is the state shared by the phases.
type restarts struct {
	*env
	node  *bed.Node
	probe *bed.Pod
	alive []*bed.Pod // those that the agent must have
	added int
}

// phase waits for the phase, kills and restarts the agent, and checks that it has every pod
// and that no pod lost a packet.
func (s *restarts) phase(ctx context.Context, p phase) error {
	s.Logf("phase: %s", p.name)
	flows, err := startPings(s.probe, s.alive[:min(len(s.alive), pinged)])
	if err != nil {
		return err
	}
	if err := s.await(ctx, p.name, p.at); err != nil {
		return err
	}
	var news []*bed.Pod
	for range fresh {
		pod, err := s.attach(ctx)
		if err != nil {
			return err
		}
		news = append(news, pod)
	}
	s.alive = append(s.alive, news...)
	if err := s.await(ctx, p.name, p.then); err != nil {
		return err
	}
	if err := s.bounce(ctx, p.name, news); err != nil {
		return err
	}
	s.checkKept(ctx, s.node, s.alive, p.name+": pods restored at their address")
	s.judgePings(flows, p.name+": packets lost over the restart")
	for _, pod := range news {
		if err := pod.Report(ctx); err != nil {
			return err
		}
	}
	return nil
}

// bounce kills and restarts the agent, and records the state of the CiliumNode at the time of
// the kill.
func (s *restarts) bounce(ctx context.Context, name string, news []*bed.Pod) error {
	before, err := s.CiliumNode(ctx, s.node.Name)
	if err != nil {
		return err
	}
	if err := s.node.RestartAgent(ctx); err != nil {
		return err
	}
	unreported, marked := 0, 0
	for _, pod := range news {
		ip := pod.Address.String()
		if _, ok := before.Status.IPAM.Used[ip]; !ok {
			unreported++
		}
		if _, ok := before.Status.IPAM.ReleaseIPs[ip]; ok {
			marked++
		}
	}
	s.note(name+": at the kill, marked and acked; new pods in no report, at a marked address", "%d, %d; %d of %d, %d",
		releases(before, ipamoption.IPAMMarkForRelease), releases(before, ipamoption.IPAMReadyForRelease), unreported, len(news), marked)
	return nil
}

func (s *restarts) await(ctx context.Context, name string, is func(*ciliumv2.CiliumNode) bool) error {
	return s.Eventually(ctx, name, func(ctx context.Context) error {
		cn, err := s.CiliumNode(ctx, s.node.Name)
		if err != nil {
			return err
		}
		if !is(cn) {
			return fmt.Errorf("%d published, %d used, release-ips %v", len(cn.Spec.IPAM.Pool), len(cn.Status.IPAM.Used), cn.Status.IPAM.ReleaseIPs)
		}
		return nil
	})
}

// attach runs a CNI ADD for a new pod, and does not report it in the pod's status.
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
