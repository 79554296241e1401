package ciliumnode

import (
	"testing"
)

// Parked CIDRs count as listed for their own pool, and are reported as parked.
func TestParked(t *testing.T) {
	cn := pooled("blue 10.9.0.0/30", "blue.draining.cilium-pool.io 10.9.0.4/30", "default", "default.draining.cilium-pool.io 10.0.0.5/30")
	cn.Spec.IPAM.Pools.Allocated[0].AllowFirstIP = true
	v := MultiPool.View(cn)
	checkEqual(t, "parked", cidrs("10.9.0.4/30", "10.0.0.4/30"), v.Parked())
	checkEqual(t, "of the default pool", cidrs("10.0.0.4/30"), v.PodCIDRs)
	blue := v.Of("blue")
	checkEqual(t, "of blue", cidrs("10.9.0.0/30", "10.9.0.4/30"), blue.PodCIDRs)
	if n := blue.BlockAssignment.Count(cidrs("10.9.0.4/30")[0]); n != 3 {
		t.Errorf("%d addresses of a /30 with its first one, want 3", n)
	}
	checkEqual(t, "taken", cidrs("10.9.0.0/30", "10.9.0.4/30"), v.BlockAssignment.Taken)
	for cidr, want := range map[string]string{"10.9.0.4/30": "blue", "10.0.0.4/30": ""} {
		if got := v.ListedFor(cidrs(cidr)[0]); got != want {
			t.Errorf("%s is listed for %q, want %q", cidr, got, want)
		}
	}
	if parked := CRD.View(cn).Parked(); len(parked) > 0 {
		t.Errorf("in crd mode %v are parked", parked)
	}
}

func TestParkPatch(t *testing.T) {
	const head = `{"metadata":{"resourceVersion":"7"},"spec":{"ipam":{"pools":{"allocated":[`
	tests := map[string]struct {
		entries []string
		change  Change
		want    string // "": no write
	}{
		"parked": {
			[]string{"default 10.0.0.0/30 10.0.0.4/30"}, Change{Park: cidrs("10.0.0.0/30")},
			head + `{"pool":"default","cidrs":["10.0.0.4/30"]},{"pool":"default.draining.cilium-pool.io","cidrs":["10.0.0.0/30"]}]}}}}`,
		},
		"the last one leaves its entry": {
			[]string{"blue 10.9.0.0/30", "green 10.7.0.0/30"}, Change{Park: cidrs("10.9.0.0/30")},
			head + `{"pool":"blue"},{"pool":"blue.draining.cilium-pool.io","cidrs":["10.9.0.0/30"]},{"pool":"green","cidrs":["10.7.0.0/30"]}]}}}}`,
		},
		"back in its place": {
			[]string{"default 10.0.0.0/30 10.0.0.8/30", "default.draining.cilium-pool.io 10.0.0.4/30"}, Change{Unpark: cidrs("10.0.0.4/30")},
			head + `{"pool":"default","cidrs":["10.0.0.0/30","10.0.0.4/30","10.0.0.8/30"]}]}}}}`,
		},
		"others stay parked": {
			[]string{"default", "default.draining.cilium-pool.io 10.0.0.0/30 10.0.0.4/30"}, Change{Unpark: cidrs("10.0.0.4/30")},
			head + `{"pool":"default","cidrs":["10.0.0.4/30"]},{"pool":"default.draining.cilium-pool.io","cidrs":["10.0.0.0/30"]}]}}}}`,
		},
		"beside a new block": {
			[]string{"default 10.0.0.4/30"}, Change{Park: cidrs("10.0.0.4/30"), Assign: cidrs("10.0.0.0/30"), Blocks: cidrs("10.0.0.0/30", "10.0.0.4/30")},
			head + `{"pool":"default","cidrs":["10.0.0.0/30"]},{"pool":"default.draining.cilium-pool.io","cidrs":["10.0.0.4/30"]}]}}}}`,
		},
		"listed twice, once with host bits": {
			[]string{"default 10.0.0.0/30 10.0.0.1/30"}, Change{Park: cidrs("10.0.0.0/30")},
			head + `{"pool":"default"},{"pool":"default.draining.cilium-pool.io","cidrs":["10.0.0.0/30"]}]}}}}`,
		},
		"back where the agent lists it already": {
			[]string{"default 10.0.0.1/30", "default.draining.cilium-pool.io 10.0.0.0/30"}, Change{Unpark: cidrs("10.0.0.0/30")},
			head + `{"pool":"default","cidrs":["10.0.0.1/30"]}]}}}}`,
		},
		"one for another": {
			[]string{"default 10.0.0.0/30", "default.draining.cilium-pool.io 10.0.0.4/30"}, Change{Park: cidrs("10.0.0.0/30"), Unpark: cidrs("10.0.0.4/30")},
			head + `{"pool":"default","cidrs":["10.0.0.4/30"]},{"pool":"default.draining.cilium-pool.io","cidrs":["10.0.0.0/30"]}]}}}}`,
		},
		"not twice":                {[]string{"default", "default.draining.cilium-pool.io 10.0.0.4/30"}, Change{Park: cidrs("10.0.0.4/30")}, ""},
		"not what is on no list":   {[]string{"default 10.0.0.0/30"}, Change{Park: cidrs("10.0.0.4/30")}, ""},
		"what is gone stays away":  {[]string{"default 10.0.0.0/30"}, Change{Unpark: cidrs("10.0.0.4/30")}, ""},
		"what is back stays there": {[]string{"default 10.0.0.0/30 10.0.0.4/30"}, Change{Unpark: cidrs("10.0.0.4/30")}, ""},
		"a parked block is not listed beside": {
			[]string{"default", "default.draining.cilium-pool.io 10.0.0.4/30"}, Change{Assign: cidrs("10.0.0.4/30"), Blocks: cidrs("10.0.0.4/30")}, "",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			patchIs(t, pooled(test.entries...), test.change, test.want)
		})
	}
}
