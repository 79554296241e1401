package node

import (
	"context"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// observation is everything known of one node when a decision is made. It is not changed once it is
// made: the effect of a write is observed anew.
type observation struct {
	*state.Snapshot
	// replacing are the pools with blocks that would replace the node's first ones.
	replacing [2][]*crd.Pool
}

// with returns a copy of the observation with a change. Its shares are copies too.
func (o *observation) with(change func(*state.Snapshot)) *observation {
	s := *o.Snapshot
	s.Shares = slices.Clone(s.Shares)
	change(&s)
	return &observation{Snapshot: &s, replacing: o.replacing}
}

// withGone returns the observation of a node with only blocks left, to cool down.
func (o *observation) withGone() *observation {
	return o.with(func(s *state.Snapshot) {
		for i := range s.Shares {
			s.Shares[i].State.Gone = true
		}
	})
}

// paused reports whether the node must not change. A pause of one family, or of the pools that
// serve one Cilium pool, affects only that share.
func (o *observation) paused() bool {
	return len(o.Shares) > 0 && !slices.ContainsFunc(o.Shares, func(f state.Share) bool { return f.Paused == "" })
}

// pausedFor reports whether the share a CIDR belongs to must not change: its family, for a Cilium
// pool.
func (o *observation) pausedFor(cidr netip.Prefix, ciliumPool string) bool {
	return slices.ContainsFunc(o.Shares, func(f state.Share) bool {
		return f.Paused != "" && f.Family == ipalloc.FamilyOf(cidr.Addr()) && f.CiliumPool == ciliumPool
	})
}

// gone reports whether the node's blocks only need to cool down.
func (o *observation) gone() bool {
	return slices.ContainsFunc(o.Shares, func(f state.Share) bool { return f.State.Gone })
}

// block returns a block of the node, as observed.
func (o *observation) block(cidr netip.Prefix) (crd.Block, error) {
	i := slices.IndexFunc(o.Blocks, func(b crd.Block) bool { return b.CIDR == cidr })
	if i < 0 {
		return crd.Block{}, fmt.Errorf("%w: block %s is not known", errStale, cidr)
	}
	return o.Blocks[i], nil
}

// observe collects the caches' objects of a node.
func (r *Reconciler) observe(ctx context.Context, name string) (*observation, error) {
	node := &corev1.Node{}
	switch err := r.Cache.Get(ctx, types.NamespacedName{Name: name}, node); {
	case apierrors.IsNotFound(err):
		node = nil
	case err != nil:
		return nil, fmt.Errorf("reading Node %s: %w", name, err)
	}
	now := r.Clock.Now()
	o := &observation{Snapshot: r.Snapshot(name, node, now)}
	if ends, err := r.endsWait(ctx, o); err != nil {
		return nil, err
	} else if ends {
		o.EndWait()
	}
	for i := range o.Shares {
		r.replaceFirst(o, &o.Shares[i])
		r.pace(&o.Shares[i], now)
	}
	return o, nil
}

// endsWait reports whether a pod ends the node's wait for its labels. It reads the pods once for
// each change of the taints and of the pods without an address: the watch leaves out pods'
// tolerations.
func (r *Reconciler) endsWait(ctx context.Context, o *observation) (bool, error) {
	if o.Awaits == "" {
		return false, nil
	}
	question, waiting := fnv.New64a(), false
	for i := range o.Node.Spec.Taints {
		fmt.Fprintln(question, o.Node.Spec.Taints[i].ToString())
	}
	for _, p := range o.Pods {
		if len(p.IPs) == 0 {
			fmt.Fprintln(question, p.Name, p.Seen.UnixNano())
			waiting = true
		}
	}
	if !waiting {
		return false, nil
	}
	ends, known := r.memory.endsWait(o.Name, question.Sum64())
	if !known {
		pods, err := r.podsOf(ctx, o.Name)
		if err != nil {
			return false, err
		}
		ends = r.EndsWait(o.Node, pods)
		r.memory.noteEndsWait(o.Name, question.Sum64(), ends)
	}
	return ends, nil
}
