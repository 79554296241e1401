package live

import (
	"context"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/audit"
)

// Patience is how long to look before something is believed.
type Patience struct {
	// Again is how long after a look the cluster is looked at again.
	Again time.Duration
	// WatchFor is for how long, at least, to keep reading the cluster, to distinguish
	// slow progress from none. Zero: read again only to confirm findings.
	WatchFor time.Duration
}

// Look audits the cluster. What a look finds is believed if one more look finds
// it too.
func (r *Reader) Look(ctx context.Context, set audit.Settings, p Patience) (audit.Report, error) {
	last, err := r.Read(ctx)
	if err != nil {
		return audit.Report{}, err
	}
	looks := 1
	again := func() error {
		if err := wait(ctx, p.Again); err != nil {
			return err
		}
		next, err := r.Read(ctx)
		if err != nil {
			return err
		}
		next.StandSince(last)
		last, looks = next, looks+1
		return nil
	}
	for began := last.Time; last.Time.Sub(began) < p.WatchFor; {
		if err := again(); err != nil {
			return audit.Report{}, err
		}
	}
	found := audit.Check(last, set)
	if len(found) > 0 {
		if err := again(); err != nil {
			return audit.Report{}, err
		}
		found = audit.Persisting(found, audit.Check(last, set))
	}
	return audit.NewReport(last, looks, found), nil
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
