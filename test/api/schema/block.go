package schema

import "strings"

// BlockExample is the spec of a PodIPBlock of a pool like PoolExample, which no node has.
func BlockExample() map[string]any {
	return map[string]any{"cidr": "10.0.1.64/30", "poolName": "main", "nodeName": "n1", "nodeUID": "uid"}
}

// BlockValues are the values that the schema of a PodIPBlock leaves open.
func BlockValues() map[string]Values {
	wrongNames := []string{"", "N1", "n 1", "-n1", "n_1"}
	return map[string]Values{
		"spec.cidr": {
			Right: []string{"10.0.1.64/29", "10.0.1.64/32", "10.0.0.0/29", "192.0.2.0/24", "fd00::100/126"},
			Wrong: append(wrongCIDRs("10.0.1.64", 30), "10.0.0.0/19", "fd00::/115", "::ffff:10.0.1.64/126", "FD00::100/126"),
		},
		"spec.poolName": {Right: []string{"main", "absent"}, Wrong: wrongNames},
		"spec.nodeName": {Right: []string{"n1", "n2", "absent", strings.Repeat("a", 253)}, Wrong: wrongNames},
		"spec.nodeUID":  {Right: []string{"", "another"}},
	}
}
