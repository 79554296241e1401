package migrate

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/adopt"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// agentMode is the known mode of an agent.
type agentMode int

const (
	agentUnknown agentMode = iota
	// agentElsewhere: it reads no pool.
	agentElsewhere
	agentInCRD
)

// pause pauses the operator on a node, and notes the mode it returns to.
func (a *aborting) pause(ctx context.Context, r *returning) error {
	return a.annotate(ctx, r.name, map[string]any{v1alpha1.PausedAnnotation: "true", v1alpha1.ReturningAnnotation: string(r.to)})
}

// resume takes that back.
func (a *aborting) resume(ctx context.Context, r *returning) error {
	return a.annotate(ctx, r.name, map[string]any{v1alpha1.PausedAnnotation: nil, v1alpha1.ReturningAnnotation: nil})
}

func (a *aborting) annotate(ctx context.Context, name string, annotations map[string]any) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err != nil {
		return err
	}
	node := &corev1.Node{}
	node.Name = name
	if err := a.m.Client.Patch(ctx, node, client.RawPatch(types.MergePatchType, body)); err != nil {
		return fmt.Errorf("annotating Node %s: %w", name, err)
	}
	return nil
}

// probeAddress is marked for release to learn whether an agent runs in crd mode:
// such a one answers do-not-release, as it is in no pool (Cilium v1.20.1,
// pkg/ipam/crd.go, updateLocalNodeResource). For documentation (RFC 5737).
func probeAddress() netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, 1}) }

// ask learns which agents run in crd mode. Only an agent in crd mode answers a mark;
// these nodes are paused for the operator.
func (a *aborting) ask(ctx context.Context, all []*returning) (map[string]agentMode, error) {
	modes := map[string]agentMode{}
	waiting, err := a.markAll(ctx, all, modes)
	if err != nil {
		return nil, err
	}
	deadline := a.TimeNow().Add(a.patience)
	for extended := false; ; {
		over := !a.TimeNow().Before(deadline) // and then one more look
		if err := a.answers(ctx, waiting, modes); err != nil {
			return nil, err
		}
		if len(waiting) == 0 {
			return modes, nil
		}
		if over {
			left, err := a.silent(ctx, waiting, modes)
			if err != nil || left == 0 || extended {
				return modes, err
			}
			deadline, extended = a.TimeNow().Add(left), true
		}
		if err := a.Sleep(ctx, time.Second); err != nil {
			return nil, err
		}
	}
}

// markAll asks all agents. Those of nodes that have nothing of ours in the pool run
// in another mode, and are not waited for: there the mark is for release alone,
// which takes it off again. That changes the CiliumNode once its blocks have been
// asked to go, so that whoever is about to publish one, late, loses.
func (a *aborting) markAll(ctx context.Context, all []*returning, modes map[string]agentMode) (map[string]bool, error) {
	waiting := map[string]bool{}
	for _, r := range all {
		if r.refused != "" {
			continue
		}
		live, err := a.nodes.Live(ctx, r.name)
		if err != nil {
			return nil, err
		}
		if live == nil || len(live.Used) == 0 && len(live.Pool) == 0 {
			modes[r.name] = agentElsewhere
		} else {
			waiting[r.name] = true
		}
		if err := a.mark(ctx, r.name); err != nil {
			return nil, err
		}
	}
	return waiting, nil
}

// mark asks an agent, past an older answer.
func (a *aborting) mark(ctx context.Context, name string) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		live, err := a.nodes.Live(ctx, name)
		if err != nil || live == nil {
			return err
		}
		addr := []netip.Addr{probeAddress()}
		cleared, err := a.nodes.Release(ctx, live, ciliumnode.Entries{Clear: addr})
		if err != nil {
			return err
		}
		if cleared != nil {
			live = cleared.View()
		}
		_, err = a.nodes.Release(ctx, live, ciliumnode.Entries{Mark: addr})
		return err
	})
}

// answers takes in who has answered, and asks again where the mark has gone.
func (a *aborting) answers(ctx context.Context, waiting map[string]bool, modes map[string]agentMode) error {
	for _, name := range slices.Sorted(maps.Keys(waiting)) {
		live, err := a.nodes.Live(ctx, name)
		if err != nil {
			return err
		}
		if live == nil {
			continue
		}
		switch status, stands := live.Release[probeAddress()]; {
		case !stands:
			if err := a.mark(ctx, name); err != nil {
				return err
			}
		case status != expand.Marked:
			modes[name] = agentInCRD
			delete(waiting, name)
		}
	}
	return nil
}

// silent judges agents that have not answered: silence means something only for one
// that has been Ready for as long. It returns how long to wait for those that became
// Ready since.
func (a *aborting) silent(ctx context.Context, waiting map[string]bool, modes map[string]agentMode) (time.Duration, error) {
	now, err := readMove(ctx, a.Env, &choice{})
	if err != nil {
		return 0, err
	}
	left := time.Duration(0)
	for name := range waiting {
		pod := now.agentPod(name)
		if pod == nil || state.ReadySince(pod).IsZero() {
			continue
		}
		if ready := now.Now.Sub(state.ReadySince(pod)); ready >= a.patience {
			modes[name] = agentElsewhere
			delete(waiting, name)
		} else {
			left = max(left, min(a.patience-ready, a.patience))
		}
	}
	return left, nil
}

// retract takes the node's blocks out of its CiliumNode, and all that an agent in
// crd mode has reported. Where it goes to multi-pool mode, podCIDRs are of no more
// use, and cilium-operator would take them for all that the node has when it next
// starts; in the other modes they are what the node has.
func (a *aborting) retract(ctx context.Context, r *returning) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		live, err := a.nodes.Live(ctx, r.name)
		if err != nil || live == nil {
			return err
		}
		unlist := r.to == adopt.MultiPool && len(live.Allocated) > 0
		if live, err = a.nodes.Retract(ctx, live, crd.CIDRs(r.blocks), unlist); err != nil {
			return err
		}
		_, err = a.nodes.ForgetReport(ctx, live)
		return err
	})
}
