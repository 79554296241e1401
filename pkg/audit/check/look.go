package check

import (
	"context"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/audit"
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterread"
)

// Patience is the time to observe before a finding is reported.
type Patience struct {
	// Again is the time between the end of a read and the next read.
	Again time.Duration
	// WatchFor is the least time to keep reading the cluster, to distinguish slow progress from
	// none. Zero: read again only to confirm findings.
	WatchFor time.Duration
}

// auditCluster reports a finding only if a second read confirms it.
func auditCluster(ctx context.Context, r *clusterread.Reader, set audit.Settings, p Patience) (audit.Report, error) {
	last, err := r.Read(ctx)
	if err != nil {
		return audit.Report{}, err
	}
	looks := 1
	undated := 0
	if p.WatchFor < set.StuckAfter {
		undated = last.Undated()
	}
	again := func() error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(p.Again):
		}
		next, err := r.Read(ctx)
		if err != nil {
			return err
		}
		next.DateBackTo(last)
		last = next
		looks++
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
	report := audit.NewReport(last, looks, found)
	report.Looked.Undated = undated
	return report, nil
}
