package ciliumnode

import (
	"testing"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
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
		"the very last address leaves an empty list, not none": {
			keys: []string{"10.0.0.1"}, podCIDRs: []string{"10.0.0.0/30"},
			change: Change{Remove: addrs("10.0.0.1"), Blocks: blocks},
			want:   `{"metadata":{"resourceVersion":"7"},"spec":{"ipam":{"pool":{"10.0.0.1":null},"podCIDRs":[]}}}`,
		},
		"a listed block without an address is taken off the list": {
			podCIDRs: []string{"10.0.0.0/30", "192.168.0.0/24"}, change: Change{Blocks: blocks},
			want: `{"metadata":{"resourceVersion":"7"},"spec":{"ipam":{"podCIDRs":["192.168.0.0/24"]}}}`,
		},
		"a block listed with host bits is listed": {
			keys: []string{"10.0.0.1"}, podCIDRs: []string{"10.0.0.2/30"}, change: Change{Blocks: blocks},
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
			got := encodedPatch(t, test.change.patch(NewView(node(test.keys, test.podCIDRs...))))
			checkEqual(t, "patch", test.want, string(got))
		})
	}
}

func TestReleasePatch(t *testing.T) {
	tests := map[string]struct {
		entries map[string]ipamtypes.IPReleaseStatus
		change  ReleaseChange
		want    string
	}{
		"mark": {
			change: ReleaseChange{Mark: addrs("10.0.0.1", "fd00::1")},
			want:   `{"metadata":{"resourceVersion":"7"},"status":{"ipam":{"release-ips":{"10.0.0.1":"marked-for-release","fd00::1":"marked-for-release"}}}}`,
		},
		"a retired address is, and nothing over another entry": {
			entries: map[string]ipamtypes.IPReleaseStatus{"10.0.0.1": "released", "10.0.0.2": "do-not-release"}, change: ReleaseChange{Mark: addrs("10.0.0.1", "10.0.0.2")},
			want: `{"metadata":{"resourceVersion":"7"},"status":{"ipam":{"release-ips":{"10.0.0.1":"marked-for-release"}}}}`,
		},
		"retire, and nothing over an entry": {
			entries: map[string]ipamtypes.IPReleaseStatus{"10.0.0.1": "marked-for-release"}, change: ReleaseChange{Retire: addrs("10.0.0.1", "10.0.0.2")},
			want: `{"metadata":{"resourceVersion":"7"},"status":{"ipam":{"release-ips":{"10.0.0.2":"released"}}}}`,
		},
		"clear what stands, and only that": {
			entries: map[string]ipamtypes.IPReleaseStatus{"10.0.0.1": "released", "10.0.0.3": "ready-for-release"},
			change:  ReleaseChange{Clear: addrs("10.0.0.1", "10.0.0.2")},
			want:    `{"metadata":{"resourceVersion":"7"},"status":{"ipam":{"release-ips":{"10.0.0.1":null}}}}`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cn := node(nil)
			cn.Status.IPAM.ReleaseIPs = test.entries
			got := encodedPatch(t, test.change.patch(NewView(cn)))
			checkEqual(t, "patch", test.want, string(got))
		})
	}
}
