//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/test/e2e/bed"
)

const (
	pinnedPod  = "db"
	pinnedName = "default/" + pinnedPod
	// foreignIP is in none of our pools.
	foreignIP   = "100.70.0.5"
	foreignName = "default/elsewhere"
	ownerPods   = 35 // reach into the second block
	ownerPings  = 2 * time.Second
	// reportTime is a little more than the agents' update rate.
	reportTime = 17 * time.Second
)

// owner pins an address of a node's block, and one outside all pools, to pods by the owner
// field of their pool entries, and records how Cilium treats them. It checks the operator, and
// that no other pod gets the address.
func owner(ctx context.Context, e *env) error {
	n, probe, err := e.pair(ctx, soon()...)
	if err != nil {
		return err
	}
	o := &owners{env: e, node: n, probe: probe}
	if err := o.pin(ctx); err != nil {
		return err
	}
	first, err := o.created(ctx)
	if err != nil {
		return err
	}
	second, err := o.overlap(ctx, first)
	if err != nil {
		return err
	}
	if err := o.restarted(ctx, second); err != nil {
		return err
	}
	if err := o.keptOff(ctx, second); err != nil {
		return err
	}
	return e.judgeRules(ctx)
}

type owners struct {
	*env
	node   *bed.Node
	probe  *bed.Pod
	crowd  []*bed.Pod
	pinned netip.Addr
}

// pin writes the owners by hand.
func (o *owners) pin(ctx context.Context) error {
	cn, err := o.CiliumNode(ctx, o.node.Name)
	if err != nil {
		return err
	}
	for ip := range cn.Spec.IPAM.Pool {
		if a, err := netip.ParseAddr(ip); err == nil && ip != routerAddress(cn) && (!o.pinned.IsValid() || a.Less(o.pinned)) {
			o.pinned = a
		}
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"ipam": map[string]any{"pool": map[string]any{
		o.pinned.String(): map[string]string{"owner": pinnedName},
		foreignIP:         map[string]string{"owner": foreignName},
	}}}})
	if err != nil {
		return fmt.Errorf("pin: %w", err)
	}
	if err := o.Client.Patch(ctx, cn, client.RawPatch("application/merge-patch+json", patch)); err != nil {
		return fmt.Errorf("pin: %w", err)
	}
	return nil
}

// created runs the pods that the two addresses are pinned to.
func (o *owners) created(ctx context.Context) (*bed.Pod, error) {
	p, err := o.node.Run(ctx, pinnedPod)
	if err != nil {
		return nil, err
	}
	o.note("pod created: got the address pinned to it", "%t", p.Address == o.pinned)
	elsewhere, err := o.node.Run(ctx, "elsewhere")
	if err != nil {
		return nil, err
	}
	o.note("pod created: got the pinned address that is in no pool of ours", "%t", elsewhere.Address.String() == foreignIP)
	return p, o.noteEndpoint(ctx, "pod created", p)
}

// overlap creates a second sandbox of the pod while the first exists, then removes the first.
// It returns the sandbox that is left.
func (o *owners) overlap(ctx context.Context, first *bed.Pod) (*bed.Pod, error) {
	step := "new sandbox before the old one's DEL"
	second := first.Again()
	addErr := second.Attach(ctx)
	o.note(step+": ADD", "%s", outcome(second, addErr))
	if err := errors.Join(o.noteEndpoint(ctx, step, first), o.reported(ctx, step), o.others(ctx)); err != nil {
		return nil, err
	}
	step = "DEL of the old one then"
	err := first.Detach(ctx)
	o.note(step, "%s", outcome(nil, err))
	if addErr == nil {
		return second, errors.Join(o.noteEndpoint(ctx, step, second), o.reported(ctx, step))
	}
	o.note("DEL of the one that failed", "%s", outcome(nil, second.Detach(ctx)))
	step = "new sandbox after the old one's DEL"
	third := first.Again()
	if err := third.Attach(ctx); err != nil {
		return nil, err
	}
	o.note(step+": ADD", "%s", outcome(third, nil))
	// A runtime repeats a DEL whose outcome it does not know.
	again := "DEL of the old one once more"
	o.note(again, "%s", outcome(nil, first.Detach(ctx)))
	return third, errors.Join(third.Report(ctx), o.noteEndpoint(ctx, again, third), o.reported(ctx, again))
}

// others fills the node while the pinned address is in dispute.
func (o *owners) others(ctx context.Context) error {
	var err error
	if o.crowd, err = o.load(ctx, o.node, ownerPods); err != nil {
		return err
	}
	taken := 0
	for _, p := range o.crowd {
		if p.Address == o.pinned || p.Address.String() == foreignIP {
			taken++
		}
	}
	o.check(taken == 0, fmt.Sprintf("of %d other pods, those that got a pinned address", ownerPods), "%d", taken)
	return nil
}

// restarted kills the agent while the pod runs.
func (o *owners) restarted(ctx context.Context, p *bed.Pod) error {
	if err := o.node.RestartAgent(ctx); err != nil {
		return err
	}
	o.checkKept(ctx, o.node, append([]*bed.Pod{p}, o.crowd...), "agent restarted: pods restored at their address")
	return errors.Join(o.noteEndpoint(ctx, "agent restarted", p), o.reported(ctx, "agent restarted"))
}

// keptOff deletes the pinned pods and most others, so that the operator returns a block: it
// must leave the pinned entries unchanged.
func (o *owners) keptOff(ctx context.Context, p *bed.Pod) error {
	if err := o.deletePods(ctx, append([]*bed.Pod{p}, o.crowd...)); err != nil {
		return err
	}
	s := &restarts{env: o.env, node: o.node}
	err := s.await(ctx, "a block has gone", func(cn *ciliumv2.CiliumNode) bool {
		return len(cn.Spec.IPAM.Pool) < 2*perBlock && len(cn.Status.IPAM.ReleaseIPs) == 0
	})
	if err != nil {
		return err
	}
	return o.left(ctx, "pods gone, a block returned")
}

// left checks that the operator has not changed either entry.
func (o *owners) left(ctx context.Context, step string) error {
	cn, err := o.CiliumNode(ctx, o.node.Name)
	if err != nil {
		return err
	}
	as := 0
	for ip, name := range map[string]string{o.pinned.String(): pinnedName, foreignIP: foreignName} {
		if _, leaving := cn.Status.IPAM.ReleaseIPs[ip]; cn.Spec.IPAM.Pool[ip].Owner == name && !leaving {
			as++
		}
	}
	o.check(as == 2, step+": pinned entries as they were written, not marked", "%d of 2", as)
	return nil
}

// noteEndpoint records whether the agent has the sandbox and whether its address answers.
func (o *owners) noteEndpoint(ctx context.Context, step string, p *bed.Pod) error {
	_, has := o.node.Has(ctx, []*bed.Pod{p})
	f, err := o.probe.Ping(o.pinned, pingEvery)
	if err != nil {
		return err
	}
	if err := pause(ctx, ownerPings); err != nil {
		return err
	}
	c, err := f.Stop()
	o.note(step+": the agent has the pod's endpoint; pings to the address lost", "%t; %d of %d", has == nil, c.Lost, c.Sent)
	return err
}

// reported records which pod the agent reports at the address, once it has had time to report.
func (o *owners) reported(ctx context.Context, step string) error {
	if err := pause(ctx, reportTime); err != nil {
		return err
	}
	cn, err := o.CiliumNode(ctx, o.node.Name)
	if err != nil {
		return err
	}
	by, ok := cn.Status.IPAM.Used[o.pinned.String()]
	if !ok {
		by.Owner = "no pod"
	}
	o.note(step+": the agent reports the address as used by", "%s", by.Owner)
	return o.left(ctx, step)
}

func outcome(p *bed.Pod, err error) string {
	switch {
	case err != nil:
		return "failed: " + lastPart(err)
	case p == nil:
		return "done"
	}
	return "got " + p.Address.String()
}

// lastPart returns the end of an error message, which comes from the innermost program.
func lastPart(err error) string {
	const most = 45
	text := strings.Trim(err.Error(), `"\`)
	return "..." + text[max(0, len(text)-most):]
}
