// Package clusterread reads snapshots of a cluster for package audit, and reads again to
// confirm findings. It only reads.
package clusterread

import (
	"context"
	"encoding/json"
	"net/netip"
	"strings"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"

	"github.com/cilium-pool/cilium-pool-operator/pkg/audit"
)

// Patience is the time to observe before a finding is reported.
type Patience struct {
	// Again is the time between the end of a read and the next read.
	Again time.Duration
	// WatchFor is the least time to keep reading the cluster, to distinguish slow progress from
	// none. Zero: read again only to confirm findings.
	WatchFor time.Duration
}

// Look audits the cluster. It reports a finding only if a second read confirms it.
func (r *Reader) Look(ctx context.Context, set audit.Settings, p Patience) (audit.Report, error) {
	last, err := r.Read(ctx)
	if err != nil {
		return audit.Report{}, err
	}
	looks, undated := 1, 0
	if p.WatchFor < set.StuckAfter {
		undated = last.Undated()
	}
	again := func() error {
		if err := Sleep(ctx, p.Again); err != nil {
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
	report := audit.NewReport(last, looks, found)
	report.Looked.Undated = undated
	return report, nil
}

// Sleep waits, or returns the context's error if that ends before.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// releaseFields is where fieldsV1 of a manager names its release entries.
type releaseFields struct {
	Status struct {
		IPAM struct {
			Release map[string]json.RawMessage `json:"f:release-ips"`
		} `json:"f:ipam"`
	} `json:"f:status"`
}

// changes reads from metadata.managedFields when a CiliumNode was last changed,
// and since when its release entries have stood, at the latest. A manager's time
// is that of its last write of any field, so that each value it owns is at least
// as old (apimachinery v0.36, util/managedfields/internal, managedFieldsUpdater).
func changes(cn *ciliumv2.CiliumNode) (changed time.Time, since map[netip.Addr]time.Time) {
	for _, m := range cn.ManagedFields {
		if m.Time == nil {
			continue
		}
		if m.Time.After(changed) {
			changed = m.Time.Time
		}
		var owned releaseFields
		if len(cn.Status.IPAM.ReleaseIPs) == 0 || m.FieldsV1 == nil || json.Unmarshal(m.FieldsV1.GetRawBytes(), &owned) != nil {
			continue
		}
		for key := range owned.Status.IPAM.Release {
			addr, err := netip.ParseAddr(strings.TrimPrefix(key, "f:"))
			if err != nil {
				continue
			}
			if since == nil {
				since = map[netip.Addr]time.Time{}
			}
			if at, known := since[addr]; !known || m.Time.Time.Before(at) {
				since[addr] = m.Time.Time
			}
		}
	}
	return changed, since
}
