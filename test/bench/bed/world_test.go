package bed

import "testing"

// Worlds of different modes share their Nodes and pods if and only if these are the same.
func TestClusterIsShared(t *testing.T) {
	base := World{Mode: CRD, Nodes: 5, Blocks: 1, Used: 15}
	tests := map[string]struct {
		other World
		want  bool
	}{
		"another mode":   {World{Mode: MultiPool, Nodes: 5, Blocks: 1, Used: 15}, true},
		"other blocks":   {World{Mode: CRD, Nodes: 5, Blocks: 2, Used: 24, Settled: true}, true},
		"no CiliumNodes": {World{Mode: CRD, Nodes: 5, NoCiliumNodes: true}, true},
		"more nodes":     {World{Mode: CRD, Nodes: 6, Blocks: 1, Used: 15}, false},
		"agents":         {World{Mode: CRD, Nodes: 5, Blocks: 1, Used: 15, Agents: true}, false},
		"pods":           {World{Mode: CRD, Nodes: 5, Blocks: 1, Used: 15, Pods: 3}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := base.cluster().Key() == test.other.cluster().Key(); got != test.want {
				t.Errorf("%s and %s", base.cluster().Key(), test.other.cluster().Key())
			}
		})
	}
	one, two := World{Nodes: 5, Blocks: 1, Used: 15, Pods: 3}, World{Nodes: 5, Blocks: 2, Used: 15, Pods: 3}
	if one.cluster().Key() == two.cluster().Key() {
		t.Errorf("pods with addresses of other blocks are shared: %s", one.cluster().Key())
	}
}
