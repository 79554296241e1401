package export

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Both families, and a node without an address of one of them.
func TestShapesOfBothFamilies(t *testing.T) {
	rows := []prefixRow{
		{Prefix: "10.20.0.0/29", Node: "a", NextHop: "192.168.0.1", Pool: "main", Phase: "InService"},
		{Prefix: "fd00:10::/125", Node: "a", NextHop: "fd00::1", Pool: "main", Phase: "InService"},
		{Prefix: "fd00:10::8/125", Node: "b", Pool: "main", Phase: "Draining"},
	}
	want := map[string]string{
		"bird": `protocol static cilium_pool_ipv4 {
  ipv4;
  route 10.20.0.0/29 via 192.168.0.1; # a
}
protocol static cilium_pool_ipv6 {
  ipv6;
  route fd00:10::/125 via fd00::1; # a
  # fd00:10::8/125: node b has no address of this family
}
`,
		"frr": `! node a
ip route 10.20.0.0/29 192.168.0.1
! node a
ipv6 route fd00:10::/125 fd00::1
! fd00:10::8/125: node b has no address of this family
`,
		"csv": `prefix,node,next_hop,pool,phase
10.20.0.0/29,a,192.168.0.1,main,InService
fd00:10::/125,a,fd00::1,main,InService
fd00:10::8/125,b,,main,Draining
`,
	}
	for name, text := range want {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			if err := shapes()[name](&got, rows); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(text, got.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
