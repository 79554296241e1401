package clusterread

import (
	"encoding/json"
	"net/netip"
	"strings"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
)

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
func changes(cn *ciliumv2.CiliumNode) (changed time.Time, release map[netip.Addr]time.Time) {
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
			if release == nil {
				release = map[netip.Addr]time.Time{}
			}
			if first, known := release[addr]; !known || m.Time.Time.Before(first) {
				release[addr] = m.Time.Time
			}
		}
	}
	return changed, release
}
