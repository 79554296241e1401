package export

import (
	"context"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterview"
)

// lookEvery is the interval of looks at the Leases of nodes.
const lookEvery = time.Second

// silence decides which nodes are dead, by the Leases that their kubelets renew. It compares no clock
// with another: it notes the time at which it sees a Lease change, as the node controller of Kubernetes
// does (pkg/controller/nodelifecycle, tryUpdateNodeHealth).
//
// While fewer than half of the nodes are heard, the API server or the way to it has failed, rather
// than the nodes. Then no further node becomes silent, and each has the whole time again afterwards: the
// route of a dead node costs little, that of a live one all its traffic.
type silence struct {
	timeout time.Duration // 0: no node is ever silent
	nodes   map[string]*heard
	deaf    bool
}

// heard are the known facts of one node.
type heard struct {
	renewed time.Time // as its Lease says
	seen    time.Time // when that was seen
	begin   time.Time // the silence counts from here: at, or later
	silent  bool
}

// ticks returns a channel with the times to look; nil: never.
func (s *silence) ticks() <-chan time.Time {
	if s == nil || s.timeout == 0 {
		return nil
	}
	return time.Tick(lookEvery)
}

// is reports whether a node is silent.
func (s *silence) is(node string) bool { return s.nodes[node] != nil && s.nodes[node].silent }

// read looks at the Nodes and their Leases, and returns the names of nodes that became silent, or
// are heard again.
func (s *silence) read(ctx context.Context, reader client.Reader) ([]string, error) {
	if s.timeout == 0 {
		return nil, nil
	}
	var (
		nodes  corev1.NodeList
		leases coordinationv1.LeaseList
	)
	if err := reader.List(ctx, &leases, client.InNamespace(corev1.NamespaceNodeLease)); err != nil {
		return nil, err
	}
	if err := reader.List(ctx, &nodes); err != nil {
		return nil, err
	}
	return s.look(time.Now(), nodes.Items, leases.Items), nil
}

// look is read with its input. A Node without a Lease is never silent.
func (s *silence) look(now time.Time, nodes []corev1.Node, leases []coordinationv1.Lease) (changed []string) {
	specs := map[string]*coordinationv1.LeaseSpec{}
	known := s.nodes
	fresh := 0
	for i := range leases {
		specs[leases[i].Name] = &leases[i].Spec
	}
	s.nodes = map[string]*heard{}
	for i := range nodes {
		name := nodes[i].Name
		spec := specs[name]
		if spec == nil || spec.RenewTime == nil {
			continue
		}
		h := known[name]
		if h == nil {
			h = &heard{renewed: spec.RenewTime.Time, seen: now, begin: now}
			// At the start the node controller knows more: Unknown means that it has heard nothing.
			if clusterview.IsLost(&nodes[i]) && h.renewed.Before(now) {
				h.seen = h.renewed
				h.begin = h.renewed
			}
		} else if !h.renewed.Equal(spec.RenewTime.Time) {
			if h.silent {
				changed = append(changed, name)
			}
			h = &heard{renewed: spec.RenewTime.Time, seen: now, begin: now}
		}
		s.nodes[name] = h
		if now.Sub(h.seen) <= s.limit(spec)/2 {
			fresh++
		}
	}
	s.deaf = 2*fresh < len(s.nodes)
	for name, h := range s.nodes {
		if h.silent {
			continue
		}
		if s.deaf {
			h.begin = now
		} else if now.Sub(h.begin) >= s.limit(specs[name]) {
			h.silent = true
			changed = append(changed, name)
		}
	}
	slices.Sort(changed)
	return changed
}

// limit is the silence that makes a node silent: no less than two renewals, which kubelets make in
// each quarter of leaseDurationSeconds (pkg/kubelet/kubelet.go, nodeLeaseRenewIntervalFraction).
func (s *silence) limit(spec *coordinationv1.LeaseSpec) time.Duration {
	if spec.LeaseDurationSeconds == nil {
		return s.timeout
	}
	return max(s.timeout, time.Duration(*spec.LeaseDurationSeconds)*time.Second/2)
}
