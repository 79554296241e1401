package expand_test

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
)

// A node with three waiting pods, before its agent has reported.
func ExampleDecide() {
	state := expand.State{
		Node: "worker-1",
		Blocks: []expand.Block{{
			CIDR: netip.MustParsePrefix("10.0.0.0/30"),
			Usable: []netip.Addr{
				netip.MustParseAddr("10.0.0.1"),
				netip.MustParseAddr("10.0.0.2"),
			},
		}},
		Pods: []expand.Pod{{Name: "default/a"}, {Name: "default/b"}, {Name: "default/c"}},
	}
	plan, _ := expand.Decide(time.Now(), expand.DefaultPolicy(), state, expand.Budget{}, expand.Memory{})
	fmt.Println(plan)
	// Output:
	// worker-1 ipv4: needs 3 of 2: claim 5 addresses (at most 15 blocks, 4094 published); publish 10.0.0.1, 10.0.0.2
}
