package state

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

func inPhase(p *corev1.Pod, phase corev1.PodPhase) *corev1.Pod {
	p.Status.Phase = phase
	return p
}

func onHostNetwork(p *corev1.Pod) *corev1.Pod {
	p.Spec.HostNetwork = true
	return p
}

func TestPods(t *testing.T) {
	type change struct {
		pod  *corev1.Pod
		gone bool
	}
	pod := fixtures.Pod
	tests := map[string]struct {
		changes []change
		changed bool         // by the last one
		want    []expand.Pod // on node n
	}{
		"bound":               {[]change{{pod: pod("a", "1", "n")}}, true, []expand.Pod{{Name: "default/a"}}},
		"not bound":           {changes: []change{{pod: pod("a", "1", "")}}},
		"requests addresses":  {[]change{{pod: fixtures.Requesting(pod("a", "1", "n"), 1)}}, true, []expand.Pod{{Name: "default/a", Requests: [2]uint16{1, 0}}}},
		"on the host network": {changes: []change{{pod: onHostNetwork(pod("a", "1", "n"))}}},
		"with addresses, sorted by name": {
			[]change{{pod: pod("b", "2", "n")}, {pod: pod("a", "1", "n", "10.0.0.1", "fd00::1")}}, true,
			[]expand.Pod{{Name: "default/a", IPs: fixtures.Addrs("10.0.0.1", "fd00::1")}, {Name: "default/b"}},
		},
		"an address mapped into IPv6, and one that is none": {
			[]change{{pod: pod("a", "1", "n", "::ffff:10.0.0.1", "x")}}, true, []expand.Pod{{Name: "default/a", IPs: fixtures.Addrs("10.0.0.1")}},
		},
		"the same again": {
			[]change{{pod: pod("a", "1", "n", "10.0.0.1")}, {pod: inPhase(pod("a", "1", "n", "10.0.0.1"), corev1.PodRunning)}}, false,
			[]expand.Pod{{Name: "default/a", IPs: fixtures.Addrs("10.0.0.1")}},
		},
		"it gets its address": {
			[]change{{pod: pod("a", "1", "n")}, {pod: pod("a", "1", "n", "10.0.0.1")}}, true, []expand.Pod{{Name: "default/a", IPs: fixtures.Addrs("10.0.0.1")}},
		},
		"done":                  {[]change{{pod: pod("a", "1", "n")}, {pod: inPhase(pod("a", "1", "n"), corev1.PodSucceeded)}}, true, nil},
		"failed":                {[]change{{pod: pod("a", "1", "n")}, {pod: inPhase(pod("a", "1", "n"), corev1.PodFailed)}}, true, nil},
		"gone":                  {[]change{{pod: pod("a", "1", "n")}, {pod("a", "1", "n"), true}}, true, nil},
		"gone, and never known": {changes: []change{{pod("a", "1", "n"), true}}},
		"recreated under its name before the old one is gone": {
			[]change{{pod: pod("a", "1", "n", "10.0.0.1")}, {pod: pod("a", "2", "n")}, {pod("a", "1", "n"), true}}, true, []expand.Pod{{Name: "default/a"}},
		},
		"of another node": {[]change{{pod: pod("a", "1", "m")}}, true, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pods, changed, first := NewPods(), false, map[string]time.Time{}
			for i, c := range test.changes {
				at, bound := fixtures.Noon().Add(time.Duration(i)*time.Minute), ReadPod(c.pod)
				if c.gone {
					changed = pods.Delete(bound.PodKey, at)
					continue
				}
				if first[bound.Name].IsZero() || bound.UID() == "2" {
					first[bound.Name] = at
				}
				changed = pods.Set(bound, at)
			}
			if changed != test.changed {
				t.Errorf("reports a change: %t", changed)
			}
			for i := range test.want {
				test.want[i].Seen = first[test.want[i].Name]
			}
			if diff := cmp.Diff(test.want, pods.On("n"), fixtures.CompareNetip(), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("pods (-want +got):\n%s", diff)
			}
			if _, kept := pods.byNode["n"]; kept != (len(test.want) > 0) {
				t.Errorf("keeps %v", pods.byNode)
			}
		})
	}
}

// Pods that have ended are remembered for a while if RememberEnded is set.
func TestEndedPods(t *testing.T) {
	afterNoon := func(d time.Duration) time.Time { return fixtures.Noon().Add(d) }
	pods := NewPods()
	end := func(name string, after time.Duration) {
		pod := ReadPod(fixtures.Pod(name, name, "n"))
		pods.Set(pod, afterNoon(0))
		pods.Delete(pod.PodKey, afterNoon(after))
	}
	end("forgotten", 0)
	pods.RememberEnded = true
	end("a", 0)
	end("b", 10*time.Second)
	for _, test := range []struct {
		after time.Duration
		want  []string
		until time.Duration
	}{
		{0, []string{"default/a", "default/b"}, 30 * time.Second},
		{30 * time.Second, []string{"default/b"}, 40 * time.Second},
		{40 * time.Second, nil, 0},
	} {
		names, until := pods.Ended("n", afterNoon(test.after))
		if diff := cmp.Diff(test.want, names); diff != "" {
			t.Errorf("after %s (-want +got):\n%s", test.after, diff)
		}
		if test.want != nil && !until.Equal(afterNoon(test.until)) {
			t.Errorf("after %s: until %s, want %s", test.after, until, afterNoon(test.until))
		}
	}
	end("c", time.Minute)
	if n := len(pods.ended["n"]); n != 1 {
		t.Errorf("%d ended pods are kept, want the last one", n)
	}
}

func sidecar(n int64) corev1.Container {
	c := fixtures.AddressesContainer(n)
	c.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
	return c
}

func TestAddressRequests(t *testing.T) {
	plain := corev1.Container{Name: "c"}
	tests := map[string]struct {
		spec corev1.PodSpec
		want [2]uint16
	}{
		"none":                    {corev1.PodSpec{Containers: []corev1.Container{plain}}, [2]uint16{}},
		"one":                     {corev1.PodSpec{Containers: []corev1.Container{fixtures.AddressesContainer(1), plain}}, [2]uint16{1, 0}},
		"of several containers":   {corev1.PodSpec{Containers: []corev1.Container{fixtures.AddressesContainer(1), fixtures.AddressesContainer(2)}}, [2]uint16{3, 0}},
		"of an init container":    {corev1.PodSpec{InitContainers: []corev1.Container{fixtures.AddressesContainer(2)}, Containers: []corev1.Container{fixtures.AddressesContainer(1)}}, [2]uint16{2, 0}},
		"of a sidecar":            {corev1.PodSpec{InitContainers: []corev1.Container{sidecar(1)}, Containers: []corev1.Container{fixtures.AddressesContainer(1)}}, [2]uint16{2, 0}},
		"init after a sidecar":    {corev1.PodSpec{InitContainers: []corev1.Container{sidecar(1), fixtures.AddressesContainer(2)}, Containers: []corev1.Container{plain}}, [2]uint16{3, 0}},
		"init before a sidecar":   {corev1.PodSpec{InitContainers: []corev1.Container{fixtures.AddressesContainer(2), sidecar(1)}, Containers: []corev1.Container{plain}}, [2]uint16{2, 0}},
		"beyond all that is sane": {corev1.PodSpec{Containers: []corev1.Container{fixtures.AddressesContainer(1 << 40)}}, [2]uint16{65535, 0}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got, _ := AddressRequests(&test.spec); got != test.want {
				t.Errorf("requests %v, want %v", got, test.want)
			}
		})
	}
}

func TestMaxPods(t *testing.T) {
	pods := func(n string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourcePods: resource.MustParse(n)}
	}
	for name, test := range map[string]struct {
		node *corev1.Node
		want int
	}{
		"no Node":                     {nil, 0},
		"none specified":              {&corev1.Node{}, 0},
		"allocatable":                 {&corev1.Node{Status: corev1.NodeStatus{Allocatable: pods("60"), Capacity: pods("110")}}, 60},
		"capacity alone":              {&corev1.Node{Status: corev1.NodeStatus{Capacity: pods("110")}}, 110},
		"allocatable not yet set":     {&corev1.Node{Status: corev1.NodeStatus{Allocatable: pods("0"), Capacity: pods("110")}}, 110},
		"more than a number can have": {&corev1.Node{Status: corev1.NodeStatus{Capacity: pods("9000000000")}}, 1<<31 - 1},
	} {
		if got := MaxPods(test.node); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

// The nodes of an owner's pods are known by the pods' name, also while an earlier pod of the name ends, and by a label once it
// owns addresses.
func TestNodesOf(t *testing.T) {
	const byName, byLabel = "default/web-0", "default/vm.kubevirt.io/name=db"
	pods, now := NewPods(), fixtures.Noon()
	read := func(uid, node string) BoundPod { return ReadPodWithRequest(fixtures.Pod("web-0", uid, node)) }
	launcher := func(uid, node, vm string) BoundPod {
		pod := fixtures.Pod("virt-launcher-"+vm+"-"+uid, uid, node)
		pod.GenerateName, pod.Labels = "virt-launcher-"+vm+"-", map[string]string{"vm.kubevirt.io/name": vm, "app": "db"}
		return ReadPodWithRequest(pod)
	}
	for i, step := range []struct {
		do            func()
		named, labels string
	}{
		{func() {}, "", ""},
		{func() { pods.Set(read("1", "a"), now) }, "a", ""},
		{func() { pods.Set(read("2", "b"), now) }, "a b", ""},
		{func() { pods.Delete(read("1", "a").PodKey, now) }, "b", ""},
		{func() { pods.Set(read("3", "b"), now) }, "b b", ""},
		{func() { pods.Delete(read("2", "b").PodKey, now) }, "b", ""},
		{func() { pods.Delete(read("3", "b").PodKey, now) }, "", ""},
		{func() { pods.Set(launcher("abcde", "c", "db"), now) }, "", ""},
		{func() { pods.OwnBy("vm.kubevirt.io/name"); pods.OwnBy("vm.kubevirt.io/name") }, "", "c"},
		{func() { pods.Set(launcher("fghjk", "d", "db"), now) }, "", "c d"},
		{func() { pods.Set(launcher("fghjk", "d", "other"), now) }, "", "c"},
		{func() { pods.Delete(launcher("abcde", "c", "db").PodKey, now) }, "", ""},
	} {
		step.do()
		if got := strings.Join(pods.NodesOf(byName), " "); got != step.named {
			t.Errorf("step %d: %s is on nodes %q, want %q", i, byName, got, step.named)
		}
		if got := strings.Join(pods.NodesOf(byLabel), " "); got != step.labels {
			t.Errorf("step %d: %s is on nodes %q, want %q", i, byLabel, got, step.labels)
		}
	}
	pods.Delete(launcher("fghjk", "d", "other").PodKey, now)
	if len(pods.owned) > 0 {
		t.Errorf("%v is left", pods.owned)
	}
	for i := range 100 {
		pods.Set(ReadPodWithRequest(fixtures.Pod(fmt.Sprint("p", i), fmt.Sprint(i), fmt.Sprint("n", i))), now)
	}
	if n := testing.AllocsPerRun(1, func() { pods.NodesOf("default/none") }); n > 0 {
		t.Errorf("it walks the nodes: %v allocations", n)
	}
}
