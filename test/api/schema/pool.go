package schema

import (
	"fmt"
	"net/netip"
	"strings"
)

// PoolExample is the spec of a PodIPPool that has every field, for Nodes n1 and n2. It
// serves them as a pool without the optional fields would.
func PoolExample() map[string]any {
	rng := func(cidr string) any { return map[string]any{"cidr": cidr, "allocationPolicy": "Allocate"} }
	return map[string]any{
		"nodeSelector": map[string]any{
			"matchLabels": map[string]any{"kubernetes.io/os": "linux"},
			"matchExpressions": []any{map[string]any{
				"key": "kubernetes.io/hostname", "operator": "In", "values": []any{"n1", "n2"},
			}},
		},
		"priority":       int64(5),
		"ciliumPoolName": "default",
		"paused":         false,
		"ipv4": map[string]any{
			"blockSize": int64(30), "allowFirstIP": false, "allowLastIP": false,
			"cidrs": []any{rng("10.0.0.0/29"), rng("10.0.0.8/29"), rng("10.0.1.0/25")},
		},
		"ipv6": map[string]any{
			"blockSize": int64(126), "allowFirstIP": false, "allowLastIP": false,
			"cidrs": []any{rng("fd00::/125"), rng("fd00::8/125"), rng("fd00::100/121")},
		},
		"reserved":            []any{map[string]any{"cidr": "10.0.1.124/32", "reason": "gateways"}},
		"reservedBlockPolicy": "Skip",
		"expand":              map[string]any{"thresholdPercent": int64(80), "minFree": int64(1), "maxBlocksPerNode": int64(64)},
		"reclaim": map[string]any{
			"thresholdPercent": int64(75), "idleFor": "30s", "pressurePercent": int64(0), "mode": "WhenIdle",
		},
		"maintenance": map[string]any{
			"windows":       []any{map[string]any{"schedule": "*/5 * * * *", "duration": "10m", "timeZone": "UTC"}},
			"blocksPerHour": int64(0), "mode": "Scheduled",
		},
		"unselectedNodes": map[string]any{"mode": "Retain", "maxConcurrent": int64(1)},
		"cooldown":        "1m",
	}
}

// PoolValues are the values that the schema of a PodIPPool leaves open.
func PoolValues() map[string]Values {
	labelValue := strings.Repeat("a", 63)
	return map[string]Values{
		"spec.nodeSelector.matchLabels": {
			Entry: func(i int) (string, string) {
				if i == 0 {
					return "kubernetes.io/os", "plan9"
				}
				return fmt.Sprintf("example.com/label-%d", i), "x"
			},
			WrongEntries: map[string]string{"": "x", "no label": "x", "a/b/c": "x", "example.com/zone": "-x", "example.com/Zone ": "x"},
		},
		"spec.nodeSelector.matchExpressions": {Item: func(_ map[string]any, i int) any {
			return map[string]any{"key": fmt.Sprintf("example.com/label-%d", i), "operator": "DoesNotExist"}
		}},
		"spec.nodeSelector.matchExpressions[].key": {
			Right: []string{"kubernetes.io/os", "example.com/zone"}, Wrong: []string{"", "no label", "a/b/c"},
		},
		"spec.nodeSelector.matchExpressions[].values":   {Item: func(_ map[string]any, i int) any { return fmt.Sprintf("n%d", i+3) }},
		"spec.nodeSelector.matchExpressions[].values[]": {Right: []string{"n1", "n2", "n3", "", labelValue}, Wrong: []string{"-n1", "n 1"}},
		"spec.ciliumPoolName": {
			Right: []string{"default", "blue", "a.b", labelValue}, Wrong: []string{"", "Blue", "-blue", "blue.draining.cilium-pool.io"},
		},
		"spec.ipv4.cidrs": {Item: func(_ map[string]any, i int) any {
			return map[string]any{"cidr": fmt.Sprintf("10.0.%d.%d/29", 2+i/32, i%32*8)}
		}},
		"spec.ipv4.cidrs[].cidr": {
			Right: []string{"10.0.0.0/30", "10.0.0.0/28", "10.0.0.8/30", "10.0.1.0/26", "10.0.9.0/29", "192.0.0.0/24", "11.0.0.0/8"},
			Wrong: append(wrongCIDRs("10.0.9.0", 29), "fd00:9::/125", "10.0.9.0/31", "10.0.0.0/7", "0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16",
				"224.0.0.0/8", "010.0.9.0/29"),
		},
		"spec.ipv6.cidrs": {Item: func(_ map[string]any, i int) any {
			return map[string]any{"cidr": fmt.Sprintf("fd00:2::%x/125", (i+1)*8)}
		}},
		"spec.ipv6.cidrs[].cidr": {
			Right: []string{"fd00::/126", "fd00::/124", "fd00::8/126", "fd00::100/122", "fd00:9::/125", "fd00:9::/64"},
			Wrong: append(wrongCIDRs("fd00:9::", 125), "10.0.9.0/29", "fd00:9::/127", "::/7", "::1/128", "fe80::/64", "ff00::/64",
				"::ffff:10.0.9.0/125", "FD00:9::/125", "fd00:9:0::/125"),
		},
		"spec.reserved": {Item: func(_ map[string]any, i int) any {
			return map[string]any{"cidr": netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 1, byte(i)}), 32).String()}
		}},
		"spec.reserved[].cidr": {
			Right: []string{"10.0.0.0/30", "10.0.0.1/32", "10.0.0.10/32", "10.0.0.8/29", "10.0.1.0/25", "fd00::1/128"},
			Wrong: append(wrongCIDRs("10.0.1.8", 29), "192.0.2.0/24", "10.0.0.0/16"),
		},
		"spec.reserved[].reason": {Right: []string{"gateways", "", "Schlüssel\n", strings.Repeat("r", 256)}},
		"spec.cooldown":          {Right: []string{"0s", "90s", "24h"}, Wrong: wrongDurations("24h1s")},
		"spec.reclaim.idleFor":   {Right: []string{"0s", "1m30s", "168h"}, Wrong: wrongDurations("168h1s")},
		"spec.maintenance.windows": {Item: func(_ map[string]any, i int) any {
			return map[string]any{"schedule": fmt.Sprintf("%d 3 * * *", i), "duration": "1h"}
		}},
		"spec.maintenance.windows[].schedule": {
			Right: []string{"0 22 * * mon-fri", "*/5 * * * *", "@daily", "0 0 29 2 *"},
			Wrong: []string{"", "* * * *", "* * * * * *", "61 * * * *", "0 0 30 2 *", "* * * * funday", "@every 1h", "TZ=UTC * * * * *", "0  0 * * *"},
		},
		"spec.maintenance.windows[].duration": {Right: []string{"1m", "168h"}, Wrong: append(wrongDurations("168h1s"), "59s")},
		"spec.maintenance.windows[].timeZone": {
			Right: []string{"Asia/Shanghai", "America/Argentina/Buenos_Aires"},
			Wrong: []string{"Local", "local", "Nowhere/City", "../UTC", "Asia/", "UTC+1 "},
		},
	}
}

func wrongCIDRs(addr string, bits int) []string {
	longer := netip.MustParseAddr(addr).Next()
	return []string{"", "text", addr, fmt.Sprintf("%s/%d", addr, 129), fmt.Sprintf("%s/%d", longer, bits), fmt.Sprintf(" %s/%d", addr, bits), fmt.Sprintf("%s/0%d", addr, bits)}
}

func wrongDurations(tooLong string) []string {
	return []string{"", "90", "-1s", "1.5h", "1d", "1us", " 1m", "text", tooLong, "99999h"}
}
