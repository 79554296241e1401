package crd_test

import (
	"cmp"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
)

// Each field of a PodIPPool's spec changes the Pool that is read from it: a new field needs a row.
func TestEveryFieldOfASpecIsRead(t *testing.T) {
	const spec = `{
		"ipv4": {"cidrs": [{"cidr": "10.0.0.0/24"}], "blockSize": 32}, "ipv6": {"cidrs": [{"cidr": "fd00::/120"}], "blockSize": 128},
		"reserved": [{"cidr": "10.0.0.0/30", "description": "gateways"}], "podAddresses": {"podSelector": {"matchLabels": {"app": "db"}}},
		"maintenance": {"windows": [{"schedule": "0 22 * * 5", "duration": "4h"}]}
	}`
	rows := map[string]string{
		".NodeSelector":                   `{"nodeSelector": {"matchLabels": {"zone": "a"}}}`,
		".Priority":                       `{"priority": 1}`,
		".CiliumPoolName":                 `{"ciliumPoolName": "blue"}`,
		".Paused":                         `{"paused": true}`,
		".IPv4.CIDRs.CIDR":                `{"ipv4": {"cidrs": [{"cidr": "10.0.0.0/25"}]}}`,
		".IPv4.CIDRs.AllocationPolicy":    `{"ipv4": {"cidrs": [{"cidr": "10.0.0.0/24", "allocationPolicy": "Cordon"}]}}`,
		".IPv4.BlockSize":                 `{"ipv4": {"blockSize": 31}}`,
		".IPv4.EdgeIPs.AllowFirstIP":      `{"ipv4": {"allowFirstIP": true}}`,
		".IPv4.EdgeIPs.AllowLastIP":       `{"ipv4": {"allowLastIP": true}}`,
		".IPv6.CIDRs.CIDR":                `{"ipv6": {"cidrs": [{"cidr": "fd00::/121"}]}}`,
		".IPv6.CIDRs.AllocationPolicy":    `{"ipv6": {"cidrs": [{"cidr": "fd00::/120", "allocationPolicy": "Cordon"}]}}`,
		".IPv6.BlockSize":                 `{"ipv6": {"blockSize": 127}}`,
		".IPv6.EdgeIPs.AllowFirstIP":      `{"ipv6": {"allowFirstIP": true}}`,
		".IPv6.EdgeIPs.AllowLastIP":       `{"ipv6": {"allowLastIP": true}}`,
		".Reserved.CIDR":                  `{"reserved": [{"cidr": "10.0.0.0/31", "description": "gateways"}]}`,
		".Reserved.Description":           `{"reserved": [{"cidr": "10.0.0.0/30", "description": "routers"}]}`,
		".ReservedBlockPolicy":            `{"reservedBlockPolicy": "PublishRemainder"}`,
		".Expand.ThresholdPercent":        `{"expand": {"thresholdPercent": 99}}`,
		".Expand.MinFreeAddresses":        `{"expand": {"minFreeAddresses": 7}}`,
		".Expand.MaxBlocksPerNode":        `{"expand": {"maxBlocksPerNode": 7}}`,
		".Reclaim.ThresholdPercent":       `{"reclaim": {"thresholdPercent": 7}}`,
		".Reclaim.IdleFor":                `{"reclaim": {"idleFor": "7m"}}`,
		".Reclaim.PressurePercent":        `{"reclaim": {"pressurePercent": 70}}`,
		".Reclaim.PressurePolicy":         `{"reclaim": {"pressurePolicy": "Never"}}`,
		".Reclaim.Policy":                 `{"reclaim": {"policy": "Never"}}`,
		".Maintenance.Windows.Schedule":   `{"maintenance": {"windows": [{"schedule": "0 23 * * 5", "duration": "4h"}]}}`,
		".Maintenance.Windows.Duration":   `{"maintenance": {"windows": [{"schedule": "0 22 * * 5", "duration": "5h"}]}}`,
		".Maintenance.Windows.TimeZone":   `{"maintenance": {"windows": [{"schedule": "0 22 * * 5", "duration": "4h", "timeZone": "Asia/Tokyo"}]}}`,
		".Maintenance.RatePolicy":         `{"maintenance": {"ratePolicy": "Unlimited"}}`,
		".Maintenance.BlocksPerHour":      `{"maintenance": {"blocksPerHour": 7}}`,
		".Maintenance.Policy":             `{"maintenance": {"policy": "Unrestricted"}}`,
		".UnselectedNodes.Policy":         `{"unselectedNodes": {"policy": "Drain"}}`,
		".UnselectedNodes.MaxConcurrent":  `{"unselectedNodes": {"maxConcurrent": 7}}`,
		".Cooldown":                       `{"cooldown": "7m"}`,
		".PodAddresses.PodSelector":       `{"podAddresses": {"podSelector": {"matchLabels": {"app": "web"}}}}`,
		".PodAddresses.NamespaceSelector": `{"podAddresses": {"namespaceSelector": {"matchLabels": {"team": "a"}}}}`,
		".PodAddresses.OwnerLabel":        `{"podAddresses": {"ownerLabel": "vm.kubevirt.io/name"}}`,
		".PodAddresses.ReleaseAfter":      `{"podAddresses": {"releaseAfter": "7h"}}`,
	}
	excluded := map[string]string{ // beside a field
		".IPv4.BlockSize": `{"podAddresses": null}`, ".IPv6.BlockSize": `{"podAddresses": null}`, ".Maintenance.Policy": `{"maintenance": {"windows": []}}`, ".Maintenance.RatePolicy": `{"maintenance": {"blocksPerHour": 5}}`,
	}
	for _, field := range fieldsOf("", reflect.TypeFor[v1alpha1.PodIPPoolSpec]()) {
		if reflect.DeepEqual(readSpec(t, spec, excluded[field]), readSpec(t, spec, excluded[field], rows[field])) {
			t.Errorf("spec%s, changed by %q, does not change the pool", field, rows[field])
		}
	}
}

// readSpec reads a pool without a problem from a spec with edits.
func readSpec(t *testing.T, edits ...string) *crd.Pool {
	t.Helper()
	obj := object("p", v1alpha1.PodIPPoolSpec{})
	for _, edit := range edits {
		if err := json.Unmarshal([]byte(cmp.Or(edit, "{}")), &obj.Spec); err != nil {
			t.Fatal(err)
		}
	}
	d := defaults()
	d.CiliumPools, d.WholeBlocks = true, true
	p, err := crd.PoolFrom(obj, d)
	if err != nil || p.Problem() != nil {
		t.Errorf("%s: %v, %v", edits, err, p.Problem())
	}
	return p
}

// fieldsOf returns the fields of a type of the API, and the fields of its own types below them.
func fieldsOf(path string, typ reflect.Type) []string {
	for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
		typ = typ.Elem()
	}
	if typ.Kind() != reflect.Struct || typ.PkgPath() != reflect.TypeFor[v1alpha1.PodIPPoolSpec]().PkgPath() {
		return []string{path}
	}
	var fields []string
	for i := range typ.NumField() {
		fields = append(fields, fieldsOf(path+"."+typ.Field(i).Name, typ.Field(i).Type)...)
	}
	return fields
}
