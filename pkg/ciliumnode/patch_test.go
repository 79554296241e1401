package ciliumnode

import (
	"testing"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	"github.com/google/go-cmp/cmp"
)

func TestChangePatch(t *testing.T) {
	blocks := cidrs("10.0.0.0/30", "10.0.0.4/30", "fd00::/126")
	tests := map[string]struct {
		keys     []string
		podCIDRs []string
		change   Change
		want     string // "": no write
	}{
		"nothing asked, nothing there": {},
		"all as it should be": {
			keys: []string{"10.0.0.1"}, podCIDRs: []string{"10.0.0.0/30"}, change: Change{Blocks: blocks},
		},
		"what is there already is not published again, nor removed what is not": {
			keys: []string{"10.0.0.1"}, podCIDRs: []string{"10.0.0.0/30"},
			change: Change{Publish: addrs("10.0.0.1"), Remove: addrs("10.0.0.2"), Blocks: blocks},
		},
		"first addresses of both families, in one patch": {
			change: Change{Publish: addrs("10.0.0.1", "10.0.0.2", "fd00::1"), Blocks: blocks},
			want: `{"metadata":{"resourceVersion":"7"},"spec":{"ipam":{"pool":{"10.0.0.1":{},"10.0.0.2":{},"fd00::1":{}},` +
				`"podCIDRs":["10.0.0.0/30","fd00::/126"]}}}`,
		},
		"one more address of a listed block leaves podCIDRs out": {
			keys: []string{"10.0.0.1"}, podCIDRs: []string{"10.0.0.0/30"},
			change: Change{Publish: addrs("10.0.0.2"), Blocks: blocks},
			want:   `{"metadata":{"resourceVersion":"7"},"spec":{"ipam":{"pool":{"10.0.0.2":{}}}}}`,
		},
		"the last address takes its block with it": {
			keys: []string{"10.0.0.1", "10.0.0.5"}, podCIDRs: []string{"10.0.0.4/30", "10.0.0.0/30"},
			change: Change{Remove: addrs("10.0.0.5"), Blocks: blocks},
			want:   `{"metadata":{"resourceVersion":"7"},"spec":{"ipam":{"pool":{"10.0.0.5":null},"podCIDRs":["10.0.0.0/30"]}}}`,
		},
		"the very last address leaves an empty list, not none": {
			keys: []string{"10.0.0.1"}, podCIDRs: []string{"10.0.0.0/30"},
			change: Change{Remove: addrs("10.0.0.1"), Blocks: blocks},
			want:   `{"metadata":{"resourceVersion":"7"},"spec":{"ipam":{"pool":{"10.0.0.1":null},"podCIDRs":[]}}}`,
		},
		"one block for another": {
			keys: []string{"10.0.0.1"}, podCIDRs: []string{"10.0.0.0/30"},
			change: Change{Publish: addrs("10.0.0.5"), Remove: addrs("10.0.0.1"), Blocks: blocks},
			want:   `{"metadata":{"resourceVersion":"7"},"spec":{"ipam":{"pool":{"10.0.0.1":null,"10.0.0.5":{}},"podCIDRs":["10.0.0.4/30"]}}}`,
		},
		"foreign entries stay where they are; ours go to the end": {
			keys: []string{"172.16.0.1"}, podCIDRs: []string{"192.168.0.0/24", "172.16.0.0/30"},
			change: Change{Publish: addrs("10.0.0.1"), Blocks: blocks},
			want: `{"metadata":{"resourceVersion":"7"},"spec":{"ipam":{"pool":{"10.0.0.1":{}},` +
				`"podCIDRs":["192.168.0.0/24","172.16.0.0/30","10.0.0.0/30"]}}}`,
		},
		"a listed block without an address is taken off the list": {
			podCIDRs: []string{"10.0.0.0/30", "192.168.0.0/24"}, change: Change{Blocks: blocks},
			want: `{"metadata":{"resourceVersion":"7"},"spec":{"ipam":{"podCIDRs":["192.168.0.0/24"]}}}`,
		},
		"an address missing from the list puts its block on it": {
			keys: []string{"10.0.0.1"}, change: Change{Blocks: blocks},
			want: `{"metadata":{"resourceVersion":"7"},"spec":{"ipam":{"podCIDRs":["10.0.0.0/30"]}}}`,
		},
		"a block listed with host bits is listed": {
			keys: []string{"10.0.0.1"}, podCIDRs: []string{"10.0.0.2/30"}, change: Change{Blocks: blocks},
		},
		"and so are one listed twice, and one as an IPv4-mapped range": {
			keys: []string{"10.0.0.1", "10.0.0.5"}, podCIDRs: []string{"10.0.0.0/30", "10.0.0.0/30", "::ffff:10.0.0.4/126"}, change: Change{Blocks: blocks},
		},
		"foreign entries keep their form, and those of a block go together": {
			keys: []string{"10.0.0.1"}, podCIDRs: []string{"10.0.0.2/30", "192.168.0.9/24", "10.0.0.0/30"},
			change: Change{Publish: addrs("10.0.0.5"), Remove: addrs("10.0.0.1"), Blocks: blocks},
			want:   `{"metadata":{"resourceVersion":"7"},"spec":{"ipam":{"pool":{"10.0.0.1":null,"10.0.0.5":{}},"podCIDRs":["192.168.0.9/24","10.0.0.4/30"]}}}`,
		},
		"nothing is published beside a key in an odd form": {
			keys: []string{"FD00::1"}, change: Change{Publish: addrs("fd00::1"), Blocks: blocks},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := test.change.patch(NewView(node(test.keys, test.podCIDRs...)))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, string(got)); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
		})
	}
}

// A change that has been written needs no further patch.
func TestChangePatchIsIdempotent(t *testing.T) {
	cn := node([]string{"10.0.0.1", "172.16.0.1", "FD00::3"}, "192.168.0.0/24", "10.0.0.0/30")
	change := Change{
		Publish: addrs("10.0.0.5", "fd00::1"), Remove: addrs("10.0.0.1"),
		Blocks: cidrs("10.0.0.0/30", "10.0.0.4/30", "fd00::/126"),
	}
	body, err := change.patch(NewView(cn))
	if err != nil {
		t.Fatal(err)
	}
	again, err := change.patch(NewView(patched(t, cn, body)))
	if err != nil || again != nil {
		t.Errorf("second patch is %s, %v; want none", again, err)
	}
}

func TestReleasePatch(t *testing.T) {
	tests := map[string]struct {
		entries map[string]ipamtypes.IPReleaseStatus
		change  Entries
		want    string
	}{
		"nothing asked": {},
		"mark": {
			change: Entries{Mark: addrs("10.0.0.1", "fd00::1")},
			want:   `{"metadata":{"resourceVersion":"7"},"status":{"ipam":{"release-ips":{"10.0.0.1":"marked-for-release","fd00::1":"marked-for-release"}}}}`,
		},
		"an answer is never marked over": {
			entries: map[string]ipamtypes.IPReleaseStatus{"10.0.0.1": "ready-for-release"}, change: Entries{Mark: addrs("10.0.0.1")},
		},
		"a retired address is": {
			entries: map[string]ipamtypes.IPReleaseStatus{"10.0.0.1": "released"}, change: Entries{Mark: addrs("10.0.0.1")},
			want: `{"metadata":{"resourceVersion":"7"},"status":{"ipam":{"release-ips":{"10.0.0.1":"marked-for-release"}}}}`,
		},
		"retire, and nothing over an entry": {
			entries: map[string]ipamtypes.IPReleaseStatus{"10.0.0.1": "marked-for-release"}, change: Entries{Retire: addrs("10.0.0.1", "10.0.0.2")},
			want: `{"metadata":{"resourceVersion":"7"},"status":{"ipam":{"release-ips":{"10.0.0.2":"released"}}}}`,
		},
		"clear what stands, and only that": {
			entries: map[string]ipamtypes.IPReleaseStatus{"10.0.0.1": "released", "10.0.0.3": "ready-for-release"},
			change:  Entries{Clear: addrs("10.0.0.1", "10.0.0.2")},
			want:    `{"metadata":{"resourceVersion":"7"},"status":{"ipam":{"release-ips":{"10.0.0.1":null}}}}`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cn := node(nil)
			cn.Status.IPAM.ReleaseIPs = test.entries
			got, err := test.change.patch(NewView(cn))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, string(got)); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
		})
	}
}
