package clusterread

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Leader is the operator that leads, by its Lease.
type Leader struct {
	Name    string    `json:"leader,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	Renewed time.Time `json:"renewed,omitzero"`
	// Problem is why no leader is known. Empty: an operator leads.
	Problem string `json:"problem,omitempty"`
	// Lease names the operator.
	Lease client.ObjectKey `json:"-"`
	// Unknown: an operator may lead all the same, as its Lease may not be read, or --mode says that one runs.
	Unknown bool `json:"-"`
}

// Missing explains that no operator leads; "": one leads, or it is not known.
func (l *Leader) Missing() string {
	if l.Problem == "" || l.Unknown {
		return ""
	}
	return "no operator leads, so nothing changes until one does: " + l.Problem
}

// readLeader reads who leads, unless the caller or an observer does without.
func (l *lists) readLeader(s *Objects) {
	if l.Lease == (client.ObjectKey{}) || l.Observe {
		return
	}
	s.Leader, l.err = readLeader(l.ctx, l.Client, l.Lease, s.Time)
	s.Leader.Unknown = s.Leader.Unknown || l.LeaseOptional
}

// readLeader reads who leads. A Lease that may not be read is no error.
func readLeader(ctx context.Context, c client.Reader, key client.ObjectKey, now time.Time) (Leader, error) {
	const others = " (-n and --lease name another)"
	lease := &coordinationv1.Lease{}
	err := c.Get(ctx, key, lease)
	switch {
	case apierrors.IsForbidden(err):
		return Leader{Lease: key, Problem: fmt.Sprintf("Lease %s may not be read", key) + others, Unknown: true}, nil
	case apierrors.IsNotFound(err):
		return Leader{Lease: key, Problem: fmt.Sprintf("there is no Lease %s", key) + others}, nil
	case err != nil:
		return Leader{}, fmt.Errorf("reading Lease %s: %w", key, err)
	}
	spec := lease.Spec
	leader := Leader{
		Lease:   key,
		Name:    ptr.Deref(spec.HolderIdentity, ""),
		Since:   ptr.Deref(spec.AcquireTime, metav1.MicroTime{}).Time,
		Renewed: ptr.Deref(spec.RenewTime, metav1.MicroTime{}).Time,
	}
	if leader.Name == "" || leader.Renewed.IsZero() || spec.LeaseDurationSeconds == nil {
		leader.Problem = fmt.Sprintf("no operator holds Lease %s", key)
	} else if age := now.Sub(leader.Renewed); age > time.Duration(*spec.LeaseDurationSeconds)*time.Second {
		leader.Problem = fmt.Sprintf("%s has not renewed Lease %s for %s", leader.Name, key, duration.HumanDuration(age))
	}
	return leader, nil
}
