package ciliumnode

import (
	"testing"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestRetract(t *testing.T) {
	tests := map[string]struct {
		unlist   bool
		podCIDRs []string
	}{
		"podCIDRs are the old mode's":     {podCIDRs: []string{"10.0.0.0/30", "10.9.0.7/24"}},
		"podCIDRs are of no use any more": {unlist: true, podCIDRs: []string{"10.9.0.7/24"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := fakeClient(t, interceptor.Funcs{}, node([]string{"10.0.0.1", "10.0.0.2", "10.9.0.1"}, "10.0.0.0/30", "10.9.0.7/24"))
			v, err := c.Retract(t.Context(), live(t, c, "n1"), cidrs("10.0.0.0/30", "10.0.7.0/30"), tt.unlist)
			if err != nil {
				t.Fatal(err)
			}
			if _, foreign := v.Addresses.Pool[addrs("10.9.0.1")[0]]; len(v.Addresses.Pool) != 1 || !foreign {
				t.Errorf("pool %v, want what is foreign alone", v.Addresses.Pool)
			}
			var written []string
			for _, cidr := range get(t, c, "n1").Spec.IPAM.PodCIDRs {
				written = append(written, cidr.String())
			}
			checkEqual(t, "podCIDRs", tt.podCIDRs, written)
			if again, err := c.Retract(t.Context(), v, cidrs("10.0.0.0/30"), tt.unlist); err != nil || again != v {
				t.Errorf("a second time: %v, %v; want that nothing is written", again, err)
			}
		})
	}
}

// An agent does not restore a pod at an edge address of a CIDR unless the CIDR's entry allows
// that.
func TestAllocateAndDropPools(t *testing.T) {
	cn := allocated(node([]string{"10.0.0.1"}, "10.0.0.0/30"), "blue 10.9.0.0/28", "default 10.0.0.0/30", "green 10.7.0.0/28")
	cn.Spec.IPAM.Pools.Requested = []ipamtypes.IPAMPoolRequest{{Pool: "default"}}
	for i := range cn.Spec.IPAM.Pools.Allocated[:2] {
		cn.Spec.IPAM.Pools.Allocated[i].AllowFirstIP, cn.Spec.IPAM.Pools.Allocated[i].AllowLastIP = i == 1, true
	}
	want := pooled("blue 10.9.0.0/28", "default 10.0.0.0/30 10.0.0.8/30", "red 10.6.0.0/28").Spec.IPAM.Pools.Allocated
	want[0].AllowLastIP, want[1].AllowFirstIP, want[1].AllowLastIP = true, true, true
	c := fakeClient(t, interceptor.Funcs{}, cn)
	listed := cidrs("10.9.0.0/28", "10.0.0.8/30", "10.0.0.0/30", "10.6.0.0/28")
	v, err := c.Allocate(t.Context(), live(t, c, "n1"), []Allocation{
		{"blue", listed[0]}, {"default", listed[1]}, {"default", listed[2]}, {"red", listed[3]},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := get(t, c, "n1").Spec.IPAM
	checkEqual(t, "allocated", want, got.Pools.Allocated)
	if len(got.Pools.Requested) != 1 || len(got.Pool) != 1 || len(got.PodCIDRs) != 1 {
		t.Errorf("more than what is allocated has changed: %+v", got)
	}
	if v, err = c.DropAllocations(t.Context(), v); err != nil || len(v.Allocated) > 0 {
		t.Errorf("allocated %v, error %v; want nothing", v.Allocated, err)
	}
	if again, err := c.DropAllocations(t.Context(), v); err != nil || again != v {
		t.Errorf("a second time: %v, %v; want that nothing is written", again, err)
	}
}

func TestForgetRequests(t *testing.T) {
	cn := pooled("default 10.0.0.0/30")
	cn.Spec.IPAM.Pools.Requested = []ipamtypes.IPAMPoolRequest{{Pool: "default"}}
	c := fakeClient(t, interceptor.Funcs{}, cn)
	v, err := c.ForgetRequests(t.Context(), live(t, c, "n1"))
	if got := get(t, c, "n1").Spec.IPAM.Pools; err != nil || len(got.Requested) > 0 || len(v.Allocated) != 1 {
		t.Errorf("requested %v, allocated %v, error %v; want only what is allocated", got.Requested, v.Allocated, err)
	}
}

func TestForgetReport(t *testing.T) {
	cn := node(nil)
	cn.Status.IPAM.Used = ipamtypes.AllocationMap{"10.0.0.1": {Owner: "default/web"}}
	cn.Status.IPAM.ReleaseIPs = map[string]ipamtypes.IPReleaseStatus{"192.0.2.1": "do-not-release"}
	c := fakeClient(t, interceptor.Funcs{}, cn)
	v, err := c.ForgetReport(t.Context(), live(t, c, "n1"))
	if err != nil || len(v.Used) > 0 || len(v.Release) > 0 {
		t.Errorf("used %v, release %v, error %v; want nothing", v.Used, v.Release, err)
	}
	if again, err := c.ForgetReport(t.Context(), v); err != nil || again != v {
		t.Errorf("a second time: %v, %v; want that nothing is written", again, err)
	}
}

// Each of these writes conflicts with a later one.
func TestGoingBackLosesAgainstANewerVersion(t *testing.T) {
	cn := allocated(node([]string{"10.0.0.1"}, "10.0.0.0/30"), "default 10.0.0.0/30")
	cn.Status.IPAM.Used = ipamtypes.AllocationMap{"10.0.0.1": {Owner: "default/web"}}
	c := fakeClient(t, interceptor.Funcs{}, cn)
	old := live(t, c, "n1")
	if _, err := c.PatchSpec(t.Context(), old, Change{Publish: addrs("10.0.0.2"), Blocks: cidrs("10.0.0.0/30")}); err != nil {
		t.Fatal(err)
	}
	for name, do := range map[string]func() (*View, error){
		"Retract":        func() (*View, error) { return c.Retract(t.Context(), old, cidrs("10.0.0.0/30"), true) },
		"Allocate":       func() (*View, error) { return c.Allocate(t.Context(), old, nil) },
		"DropPools":      func() (*View, error) { return c.DropAllocations(t.Context(), old) },
		"ForgetReport":   func() (*View, error) { return c.ForgetReport(t.Context(), old) },
		"ForgetRequests": func() (*View, error) { return c.ForgetRequests(t.Context(), old) },
	} {
		if _, err := do(); !apierrors.IsConflict(err) {
			t.Errorf("%s: got %v, want a conflict", name, err)
		}
	}
}
