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

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/adopt"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// agentMode is the known mode of an agent.
type agentMode int

const (
	agentUnknown agentMode = iota
	// agentInOldMode: it does not read what is published.
	agentInOldMode
	// agentInNewMode: it runs in the new mode.
	agentInNewMode
)

// refreshInterval is within which an agent in multi-pool mode writes its requests again (Cilium
// v1.20.1, pkg/ipam/multipool_manager.go, refreshPoolInterval).
const refreshInterval = time.Minute

// pause pauses the operator on a node, and records the mode that it returns to.
func (a *aborting) pause(ctx context.Context, r *returning) error {
	return a.annotate(ctx, r.name, map[string]any{v1alpha1.PausedAnnotation: "true", v1alpha1.ReturningAnnotation: string(r.oldMode)})
}

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
	if err := a.m.cluster.Client.Patch(ctx, node, client.RawPatch(types.MergePatchType, body)); err != nil {
		return fmt.Errorf("annotating Node %s: %w", name, err)
	}
	return nil
}

// probeAddress is marked for release to find out whether an agent runs in crd mode: such an
// agent answers do-not-release, because the address is not in its pool (Cilium v1.20.1,
// pkg/ipam/crd.go, updateLocalNodeResource). It is reserved for documentation (RFC 5737).
func probeAddress() netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, 1}) }

// ask finds out which agents run in the new mode: in crd mode only these answer a mark, in
// multi-pool mode only these write requests again. The operator is paused on their nodes.
func (a *aborting) ask(ctx context.Context, nodes []*returning) (map[string]agentMode, error) {
	modes := map[string]agentMode{}
	waiting, err := a.markAll(ctx, nodes, modes)
	if err != nil {
		return nil, err
	}
	deadline := a.env.TimeNow().Add(a.patience)
	for extended := false; ; {
		over := !a.env.TimeNow().Before(deadline) // and then one more look
		if err := a.answers(ctx, waiting, modes); err != nil {
			return nil, err
		}
		if len(waiting) == 0 {
			return modes, nil
		}
		if over {
			rest, err := a.silent(ctx, waiting, modes)
			if err != nil || rest == 0 || extended {
				return modes, err
			}
			deadline = a.env.TimeNow().Add(rest)
			extended = true
		}
		if err := a.env.Sleep(ctx, time.Second); err != nil {
			return nil, err
		}
	}
}

// markAll marks the probe address on all nodes. Agents of nodes where nothing is published run in
// another mode, and are not waited for: there the mark only serves release, which removes it again.
// Together they change the CiliumNode after the deletion of its blocks was requested, so that a
// late publication of one conflicts.
func (a *aborting) markAll(ctx context.Context, nodes []*returning, modes map[string]agentMode) (map[string]bool, error) {
	waiting := map[string]bool{}
	for _, r := range nodes {
		if r.refused != "" {
			continue
		}
		live, err := a.nodes.Live(ctx, r.name)
		if err != nil {
			return nil, err
		}
		nothing := live == nil || len(live.Used) == 0 && len(live.Published()) == 0
		if a.m.newMode == ciliumnode.MultiPool {
			nothing = live == nil || len(live.Allocated) == 0
		}
		if nothing {
			modes[r.name] = agentInOldMode
		} else {
			waiting[r.name] = true
		}
		if err := a.mark(ctx, r.name); err != nil {
			return nil, err
		}
	}
	return waiting, nil
}

// mark marks the probe address for an agent, replacing an older answer.
func (a *aborting) mark(ctx context.Context, name string) error {
	probe := []netip.Addr{probeAddress()}
	live, err := a.m.setEntries(ctx, name, ciliumnode.ReleaseChange{Clear: probe}, ciliumnode.ReleaseChange{Mark: probe})
	if err != nil || live == nil || a.m.newMode != ciliumnode.MultiPool {
		return err
	}
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if live, err = a.nodes.Live(ctx, name); err != nil || live == nil {
			return err
		}
		_, err = a.nodes.ForgetRequests(ctx, live)
		return err
	})
}

// answered reports whether an agent has answered, and whether the question stands.
func (a *aborting) answered(ctx context.Context, name string) (answered, pending bool, err error) {
	if a.m.newMode == ciliumnode.MultiPool {
		live, err := (&ciliumnode.Client{Reader: a.m.cluster.Client, Mode: ciliumnode.MultiPool}).Live(ctx, name)
		return live != nil && live.BlockAssignment.Reported(), true, err
	}
	live, err := a.nodes.Live(ctx, name)
	if err != nil || live == nil {
		return false, true, err
	}
	status, pending := live.Release[probeAddress()]
	return pending && status != expand.Marked, pending, nil
}

// answers records which agents have answered, and marks again where the mark is gone.
func (a *aborting) answers(ctx context.Context, waiting map[string]bool, modes map[string]agentMode) error {
	for _, name := range slices.Sorted(maps.Keys(waiting)) {
		answered, pending, err := a.answered(ctx, name)
		switch {
		case err != nil:
			return err
		case !pending:
			if err := a.mark(ctx, name); err != nil {
				return err
			}
		case answered:
			modes[name] = agentInNewMode
			delete(waiting, name)
		}
	}
	return nil
}

// silent judges agents that have not answered: silence means something only if the agent has been
// Ready all the time. It returns the time to wait for agents that became Ready later.
func (a *aborting) silent(ctx context.Context, waiting map[string]bool, modes map[string]agentMode) (time.Duration, error) {
	now, err := readMigration(ctx, a.env, &choice{})
	if err != nil {
		return 0, err
	}
	rest := time.Duration(0)
	for name := range waiting {
		pod := now.agentPod(name)
		if pod == nil || state.ReadySince(pod).IsZero() {
			continue
		}
		if ready := now.cluster.Now.Sub(state.ReadySince(pod)); ready >= a.patience {
			modes[name] = agentInOldMode
			delete(waiting, name)
		} else {
			rest = max(rest, min(a.patience-ready, a.patience))
		}
	}
	return rest, nil
}

// retract removes the node's blocks, and the report of an agent in the new mode, from its
// CiliumNode. A node that returns to multi-pool mode has no more use for podCIDRs, and
// cilium-operator would take them for all CIDRs of the node when it starts next; in the other modes
// they are the node's CIDRs.
func (a *aborting) retract(ctx context.Context, r *returning) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		live, err := a.nodes.Live(ctx, r.name)
		if err != nil || live == nil {
			return err
		}
		if a.m.newMode == ciliumnode.MultiPool {
			if live, err = a.nodes.DropAllocations(ctx, live); err != nil {
				return err
			}
		}
		unlist := r.oldMode == adopt.MultiPool && len(live.Allocated) > 0
		if live, err = a.nodes.Retract(ctx, live, crd.CIDRs(r.blocks), unlist); err != nil {
			return err
		}
		_, err = a.nodes.ForgetReport(ctx, live)
		return err
	})
}
