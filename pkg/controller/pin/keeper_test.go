package pin

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumpool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// keeping is a pool of four addresses for pods with the label app: web.
func keeping(change ...func(*v1alpha1.PodIPPoolSpec)) *v1alpha1.PodIPPool {
	pool := fixtures.PodIPPool("p", 1, "10.0.0.0/30")
	pool.Spec.IPv4.BlockSize, pool.Spec.CiliumPoolName = 32, "singles"
	pool.Spec.PodAddresses = &v1alpha1.PodAddresses{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, ReleaseAfter: "1h"}
	for _, do := range change {
		do(&pool.Spec)
	}
	return pool
}

// web is a bound pod of a StatefulSet.
func web(name string, ips ...string) *corev1.Pod {
	pod := fixtures.Pod(name, name, "n", ips...)
	pod.GenerateName, pod.Labels = "web-", map[string]string{"app": "web"}
	pod.Annotations = map[string]string{state.RequireAnnotation: "true"}
	return pod
}

// naming is a pod that names its addresses.
func naming(name, addresses string) *corev1.Pod {
	pod := web(name)
	pod.Annotations[state.AddressAnnotation] = addresses
	return pod
}

// launcher is a bound pod of a virtual machine.
func launcher(name, vm string, ips ...string) *corev1.Pod {
	pod := web(name, ips...)
	pod.GenerateName = "virt-launcher-"
	pod.Labels[vmLabel] = vm
	return pod
}

const vmLabel = "vm.kubevirt.io/name"

// kept is a pin that the operator made at an hour of the day, with an address that no node has held since; nil: one does.
func kept(cidr, pod string, made int, since *time.Time) *v1alpha1.PodIPPin {
	pin := byHand(cidr, pod)
	pin.Labels = map[string]string{ciliumpool.ManagedByLabel: ciliumpool.ManagedBy}
	pin.CreationTimestamp = metav1.NewTime(fixtures.Noon().Add(time.Duration(made-12) * time.Hour))
	ready := metav1.Condition{Type: v1alpha1.PinReady, Status: metav1.ConditionTrue}
	if since != nil {
		ready.Status, ready.LastTransitionTime = metav1.ConditionFalse, metav1.NewTime(*since)
	}
	pin.Status.Conditions = []metav1.Condition{ready}
	return pin
}

func byHand(cidr, pod string) *v1alpha1.PodIPPin {
	pin := fixtures.Pin(cidr, "")
	pin.Spec.PodNamespace, pin.Spec.PodName = "default", pod
	return pin
}

func ago(d time.Duration) *time.Time { return new(fixtures.Noon().Add(-d)) }

// Pods that a pool selects have one pin each, and pins of pods that are gone go.
func TestKeeper(t *testing.T) {
	long := web(strings.Repeat("w", 64))
	long.GenerateName = ""
	unlabeled := web("web-0")
	unlabeled.Labels = nil
	asking, generated, lax := web("web-0"), web("web-abcde"), web("web-0")
	asking.Annotations["ipam.cilium.io/ip-pool"] = "blue"
	lax.Annotations = nil
	moved := fixtures.BlockObject("10.0.0.2/32", ipalloc.InService)
	moved.Spec.CiliumPoolName = crd.CiliumPoolOfOwner("default/web-0")
	elsewhere := keeping(func(s *v1alpha1.PodIPPoolSpec) { s.NodeSelector = fixtures.ZonedPool().Spec.NodeSelector })
	dual := keeping(func(s *v1alpha1.PodIPPoolSpec) {
		s.IPv6 = &v1alpha1.IPv6Ranges{CIDRs: []v1alpha1.PoolCIDR{{CIDR: "fd00::/126"}}, BlockSize: 128}
	})
	drains := keeping(func(s *v1alpha1.PodIPPoolSpec) {
		s.IPv4.CIDRs = append(s.IPv4.CIDRs, v1alpha1.PoolCIDR{CIDR: "10.0.1.0/30"})
		s.IPv4.CIDRs[0].AllocationPolicy = v1alpha1.AllocationDrain
	})
	useless := byHand("10.9.0.0/32", "web-0")
	useless.Status.Conditions = []metav1.Condition{{Type: v1alpha1.PinReady, Status: metav1.ConditionFalse, Reason: v1alpha1.PinNotInPool}}
	useful := byHand("10.0.0.1/32", "web-0")
	useful.Status.Conditions = []metav1.Condition{{Type: v1alpha1.PinReady, Status: metav1.ConditionFalse, Reason: v1alpha1.PinNotClaimed}}
	space := func(name, team string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"team": team}}}
	}
	never := kept("10.0.0.0/32", "web-0", 1, nil)
	never.Status.Conditions[0].Status, never.Status.Conditions[0].LastTransitionTime = metav1.ConditionFalse, metav1.NewTime(never.CreationTimestamp.Add(time.Second))
	pending := web("web-0")
	pending.Spec.NodeName = ""
	byLabel := keeping(func(s *v1alpha1.PodIPPoolSpec) { s.PodAddresses.OwnerLabel = vmLabel })
	ofVM := func(since *time.Time) *v1alpha1.PodIPPin {
		pin := kept("10.0.0.0/32", "", 1, since)
		pin.Spec = crd.PinSpec(fixtures.Prefix("10.0.0.0/32"), crd.OwnerByLabel("default", vmLabel, "db"))
		return pin
	}
	runs := launcher("virt-launcher-abcde", "db")
	for name, test := range map[string]struct {
		pool    *v1alpha1.PodIPPool
		objects []client.Object
		pods    []*corev1.Pod
		others  *ciliumpool.View
		want    string // pins
		told    string
		again   time.Duration
	}{
		"two pods":            {pods: []*corev1.Pod{web("web-1"), web("web-0")}, want: "10.0.0.0 web-0, 10.0.0.1 web-1", again: time.Minute},
		"both families":       {pool: dual, pods: []*corev1.Pod{web("web-0")}, want: "10.0.0.0 web-0, fd00:: web-0", again: time.Minute},
		"not selected":        {pods: []*corev1.Pod{unlabeled}},
		"a generated name":    {pods: []*corev1.Pod{generated}},
		"it names a pool":     {pods: []*corev1.Pod{asking}},
		"on another's node":   {pool: elsewhere, pods: []*corev1.Pod{web("web-0")}, again: nodeAgain},
		"not deployed strict": {pods: []*corev1.Pod{lax}, want: "10.0.0.0 web-0", told: "from now on 10.0.0.0 is kept for pod default/web-0; this pod may have another address", again: time.Minute},
		"a long name":         {pods: []*corev1.Pod{long}, told: "select no pod with a name of more than 63 characters"},
		"another selects it":  {pods: []*corev1.Pod{web("web-0")}, others: fixtures.Picking("blue", map[string]string{"app": "web"}, nil), told: "CiliumPodIPPool blue selects this pod, too"},
		"it has a pin":        {objects: []client.Object{byHand("10.0.0.3/32", "web-0")}, pods: []*corev1.Pod{web("web-0")}, want: "10.0.0.3 web-0"},
		"its pin was deleted": {objects: []client.Object{moved}, pods: []*corev1.Pod{web("web-0", "10.0.0.2")}, want: "10.0.0.2 web-0", again: time.Minute},
		"full": {
			pods: []*corev1.Pod{web("web-0"), web("web-1"), web("web-2"), web("web-3"), web("web-4")},
			want: "10.0.0.0 web-0, 10.0.0.1 web-1, 10.0.0.2 web-2, 10.0.0.3 web-3", again: time.Minute,
			told: "no ipv4 address is free for pod default/web-4 in PodIPPool p: add a CIDR, or delete PodIPPins of owners that are gone",
		},
		"its namespace's share": {
			objects: []client.Object{space("default", "a"), space("other", "b"), kept("10.0.0.0/32", "web-5", 1, ago(0))}, pods: []*corev1.Pod{web("web-0"), web("web-1")},
			want: "10.0.0.0 web-5, 10.0.0.1 web-0", told: "its namespace keeps half of PodIPPool p already", again: time.Minute,
		},
		"the share of the only one": {
			pool: keeping(func(s *v1alpha1.PodIPPoolSpec) {
				s.PodAddresses.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}
			}),
			objects: []client.Object{space("default", "a"), space("other", "b"), kept("10.0.0.0/32", "web-5", 1, ago(0)), kept("10.0.0.1/32", "web-6", 1, ago(0))},
			pods:    []*corev1.Pod{web("web-0")}, want: "10.0.0.0 web-5, 10.0.0.1 web-6, 10.0.0.2 web-0", again: time.Minute,
		},
		"no node has ever held it":        {pool: keeping(func(s *v1alpha1.PodIPPoolSpec) { s.PodAddresses.ReleaseAfter = v1alpha1.Never }), objects: []client.Object{never}},
		"none has held a pod's":           {objects: []client.Object{never}, pods: []*corev1.Pod{web("web-0")}, want: "10.0.0.0 web-0", again: time.Minute},
		"paused":                          {pool: keeping(func(s *v1alpha1.PodIPPoolSpec) { s.Paused = new(true) }), objects: []client.Object{kept("10.0.0.0/32", "web-1", 1, ago(time.Hour))}, pods: []*corev1.Pod{web("web-0")}, want: "10.0.0.0 web-1"},
		"gone for an hour":                {objects: []client.Object{kept("10.0.0.0/32", "web-0", 1, ago(time.Hour))}},
		"gone for less":                   {objects: []client.Object{kept("10.0.0.0/32", "web-0", 1, ago(59*time.Minute))}, want: "10.0.0.0 web-0", again: time.Minute},
		"gone since next year":            {objects: []client.Object{kept("10.0.0.0/32", "web-0", 1, ago(-8760*time.Hour))}, want: "10.0.0.0 web-0", again: time.Hour},
		"its node holds it":               {objects: []client.Object{kept("10.0.0.0/32", "web-0", 1, nil)}, want: "10.0.0.0 web-0"},
		"bound":                           {objects: []client.Object{kept("10.0.0.0/32", "web-0", 1, ago(time.Hour))}, pods: []*corev1.Pod{web("web-0")}, want: "10.0.0.0 web-0", again: time.Hour},
		"pending":                         {objects: []client.Object{kept("10.0.0.0/32", "web-0", 1, ago(time.Hour)), pending}, want: "10.0.0.0 web-0", again: time.Hour},
		"by hand":                         {objects: []client.Object{byHand("10.0.0.0/32", "web-0")}, want: "10.0.0.0 web-0"},
		"never":                           {pool: keeping(func(s *v1alpha1.PodIPPoolSpec) { s.PodAddresses.ReleaseAfter = v1alpha1.Never }), objects: []client.Object{kept("10.0.0.0/32", "web-0", 1, ago(time.Hour))}, want: "10.0.0.0 web-0"},
		"of no pool any more":             {objects: []client.Object{kept("10.9.0.0/32", "web-0", 1, ago(time.Hour))}, want: "10.9.0.0 web-0", again: 167 * time.Hour},
		"of none for a week":              {objects: []client.Object{kept("10.9.0.0/32", "web-0", 1, ago(168*time.Hour))}},
		"an invalid pool":                 {pool: keeping(func(s *v1alpha1.PodIPPoolSpec) { s.IPv4.CIDRs[0].CIDR = "10.0.0.1/30" }), objects: []client.Object{kept("10.9.0.0/32", "web-0", 1, ago(168*time.Hour))}, want: "10.9.0.0 web-0"},
		"a pool that keeps none any more": {pool: keeping(func(s *v1alpha1.PodIPPoolSpec) { s.PodAddresses = nil }), objects: []client.Object{kept("10.0.0.0/32", "web-0", 1, ago(168*time.Hour)), kept("10.0.0.1/32", "web-1", 1, ago(time.Hour))}, want: "10.0.0.1 web-1", again: 167 * time.Hour},
		"its address drains":              {pool: drains, objects: []client.Object{moved}, pods: []*corev1.Pod{web("web-0", "10.0.0.2")}, want: "10.0.1.0 web-0", again: time.Minute},
		"another pool takes its range over": {
			objects: []client.Object{moved, kept("10.0.0.2/32", "web-0", 1, ago(0)), fixtures.Edited(fixtures.PodIPPool("a", 1, "10.0.0.0/30"), func(s *v1alpha1.PodIPPoolSpec) {
				s.IPv4.BlockSize, s.IPv4.CIDRs[0].AllocationPolicy = 32, v1alpha1.AllocationDrain
			})},
			pods: []*corev1.Pod{web("web-0", "10.0.0.2")}, want: "10.0.0.2 web-0", again: time.Hour,
		},
		"it names its address":   {pods: []*corev1.Pod{naming("web-0", "10.0.0.3")}, want: "10.0.0.3 web-0", again: time.Minute},
		"of both families":       {pool: dual, pods: []*corev1.Pod{naming("web-0", "fd00::2, 10.0.0.3")}, want: "10.0.0.3 web-0, fd00::2 web-0", again: time.Minute},
		"it names another's":     {objects: []client.Object{byHand("10.0.0.3/32", "web-9")}, pods: []*corev1.Pod{naming("web-0", "10.0.0.3")}, want: "10.0.0.3 web-9", told: "the annotation cilium-pool.io/address is not followed: 10.0.0.3 is kept for pod default/web-9"},
		"it names a held one":    {objects: []client.Object{fixtures.BlockObject("10.0.0.3/32", ipalloc.InService)}, pods: []*corev1.Pod{naming("web-0", "10.0.0.3")}, told: "node n holds 10.0.0.3"},
		"of no pool":             {pods: []*corev1.Pod{naming("web-0", "10.9.0.3")}, told: "10.9.0.3 is in no PodIPPool that keeps addresses for pod default/web-0"},
		"of a range that drains": {pool: drains, pods: []*corev1.Pod{naming("web-0", "10.0.0.3")}, told: "PodIPPool p does not give 10.0.0.3 away: 10.0.0.0/30 has allocationPolicy Drain"},
		"it names a word":        {pods: []*corev1.Pod{naming("web-0", "db")}, told: `in its annotation cilium-pool.io/address, "db" is no address`},
		"it names two":           {pods: []*corev1.Pod{naming("web-0", "10.0.0.3,10.0.0.2")}, told: "10.0.0.3 and 10.0.0.2 are two ipv4 addresses"},
		"another is kept":        {objects: []client.Object{byHand("10.0.0.1/32", "web-0")}, pods: []*corev1.Pod{naming("web-0", "10.0.0.3")}, want: "10.0.0.1 web-0", told: "10.0.0.1 is kept for pod default/web-0 already"},
		"its share has ended": {
			objects: []client.Object{space("default", "a"), space("other", "b"), kept("10.0.0.0/32", "web-5", 1, nil), kept("10.0.0.1/32", "web-6", 1, nil)}, pods: []*corev1.Pod{naming("web-0", "10.0.0.3")},
			want: "10.0.0.0 web-5, 10.0.0.1 web-6", told: "its namespace keeps half of PodIPPool p already",
		},
		"by a label":           {pool: byLabel, pods: []*corev1.Pod{launcher("virt-launcher-abcde", "db"), launcher("virt-launcher-fghjk", "db"), launcher("virt-launcher-lmnpq", "web")}, want: "10.0.0.0 vm.kubevirt.io/name=db, 10.0.0.1 vm.kubevirt.io/name=web", again: time.Minute},
		"without the label":    {pool: byLabel, pods: []*corev1.Pod{web("web-0")}},
		"a label in capitals":  {pool: byLabel, pods: []*corev1.Pod{launcher("virt-launcher-abcde", "DB")}, told: `the value "DB" must be lower case`},
		"the label's pod runs": {pool: byLabel, objects: []client.Object{ofVM(ago(time.Hour)), runs}, want: "10.0.0.0 vm.kubevirt.io/name=db", again: time.Hour},
		"no pod has the label": {pool: byLabel, objects: []client.Object{ofVM(ago(time.Hour))}},
		"the range drains":     {pool: keeping(func(s *v1alpha1.PodIPPoolSpec) { s.IPv4.CIDRs[0].AllocationPolicy = v1alpha1.AllocationDrain }), objects: []client.Object{kept("10.0.0.0/32", "web-0", 1, ago(0))}},
		"two, the older stays": {objects: []client.Object{kept("10.0.0.0/32", "web-0", 2, ago(0)), kept("10.0.0.1/32", "web-0", 1, ago(0))}, pods: []*corev1.Pod{web("web-0")}, want: "10.0.0.1 web-0", again: time.Hour},
		"two, by hand stays":   {objects: []client.Object{kept("10.0.0.0/32", "web-0", 1, nil), useful}, pods: []*corev1.Pod{web("web-0")}, want: "10.0.0.1 web-0"},
		"three, one is useless": {
			objects: []client.Object{kept("10.0.0.0/32", "web-0", 1, ago(59*time.Minute)), kept("10.0.0.1/32", "web-0", 2, ago(30*time.Minute)), useless},
			want:    "10.0.0.0 web-0, 10.0.0.1 web-0, 10.9.0.0 web-0", again: time.Minute,
		},
		"two, one is useless": {objects: []client.Object{kept("10.0.0.0/32", "web-0", 1, nil), useless}, pods: []*corev1.Pod{web("web-0")}, want: "10.0.0.0 web-0, 10.9.0.0 web-0"},
	} {
		t.Run(name, func(t *testing.T) {
			k, b := newKeeper(t, test.pool, test.others, test.pods, test.objects...)
			for _, off := range []bool{true, false} {
				k.ReadOnly = off
				before := len(b.Calls)
				result, err := k.Reconcile(t.Context(), fakeapi.RequestOf("pods"))
				if err != nil {
					t.Fatal(err)
				}
				if off && len(b.Calls) > before {
					t.Errorf("off, it writes %v", b.Calls)
				}
				if !off && result.RequeueAfter != test.again {
					t.Errorf("again after %s, want %s", result.RequeueAfter, test.again)
				}
			}
			pinsAre(t, b, test.want)
			told := strings.Join(b.EventsOf(event.ReasonAddressNotKept), "\n")
			if !strings.Contains(told, test.told) || test.told == "" && told != "" {
				t.Errorf("told %q, want %q", told, test.told)
			}
			if _, err := k.Reconcile(t.Context(), fakeapi.RequestOf("pods")); err != nil {
				t.Fatal(err)
			}
			pinsAre(t, b, test.want)
			if again := b.EventsOf(event.ReasonAddressNotKept); len(again) > 0 {
				t.Errorf("told again %v", again)
			}
		})
	}
}

func newKeeper(t *testing.T, pool *v1alpha1.PodIPPool, others *ciliumpool.View, pods []*corev1.Pod, objects ...client.Object) (*Keeper, *fakeapi.Cluster) {
	t.Helper()
	if pool == nil {
		pool = keeping()
	}
	all := []client.Object{fixtures.Node(), pool.DeepCopy()}
	for _, o := range objects {
		all = append(all, o.DeepCopyObject().(client.Object))
	}
	b := fakeapi.New(t, ciliumnode.MultiPool, all...)
	k := &Keeper{
		Cache: b.Cached(), Live: b.Live(), Client: b.API, Ledger: b.Ledger, Pools: b.Pools, Pods: state.NewPods(),
		CiliumPools: b.CiliumPools(), Events: b.Events, Counters: b.Shared, Clock: b.Clock,
	}
	for _, o := range objects {
		if namespace, ok := o.(*corev1.Namespace); ok {
			k.Pods.SetNamespace(namespace.Name, state.PoolRequestOf(&namespace.ObjectMeta))
		}
	}
	k.Pods.OwnBy(vmLabel)
	for _, pod := range pods {
		k.Pods.Set(state.ReadPodWithRequest(pod), b.Clock.Now())
	}
	if others != nil {
		k.CiliumPools.Set(others)
	}
	return k, b
}

// pinsAre compares the API server's pins, each written as address and owner.
func pinsAre(t *testing.T, b *fakeapi.Cluster, want string) {
	t.Helper()
	list, got := &v1alpha1.PodIPPinList{}, []string{}
	if err := b.API.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	for _, pin := range list.Items {
		read, err := crd.PinFrom(&pin)
		if err != nil {
			t.Fatal(err)
		}
		_, owner, _ := strings.Cut(read.Owner, "/")
		got = append(got, fmt.Sprintf("%s %s", read.CIDR.Addr(), owner))
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, strings.Join(got, ", ")); diff != "" {
		t.Errorf("pins (-want +got):\n%s", diff)
	}
}

// A write without an answer, or after another leader's, leaves no pod with two pins, and no address that stays
// reserved.
func TestKeeperCreates(t *testing.T) {
	for name, fate := range map[string]fakeapi.Fate{"refused": fakeapi.Refused, "unheard": fakeapi.Unheard} {
		t.Run(name, func(t *testing.T) {
			k, b := newKeeper(t, nil, nil, []*corev1.Pod{web("web-0"), web("web-1")})
			free := func(want uint64) {
				t.Helper()
				cut, _ := b.Pools.Get("p").Cut(ipalloc.IPv4)
				if n := b.Ledger.Free(cut); n != want {
					t.Errorf("%d addresses are free, want %d", n, want)
				}
			}
			b.Fate = func(string) fakeapi.Fate { return fate }
			if _, err := k.Reconcile(t.Context(), fakeapi.RequestOf("pods")); err == nil {
				t.Error("no error")
			}
			free(4)
			b.Fate = func(string) fakeapi.Fate { return fakeapi.Done }
			if fate == fakeapi.Unheard { // the watch is late: the pin exists already
				if result, err := k.Reconcile(t.Context(), fakeapi.RequestOf("pods")); err != nil || result.RequeueAfter != time.Second {
					t.Errorf("%v, %v", result, err)
				}
				b.Ledger.Pins.Set(crd.Pin{CIDR: fixtures.Prefix("10.0.0.0/32"), Owner: "default/web-0"})
			}
			if _, err := k.Reconcile(t.Context(), fakeapi.RequestOf("pods")); err != nil {
				t.Error(err)
			}
			pinsAre(t, b, "10.0.0.0 web-0, 10.0.0.1 web-1")
			free(2)
			b.Clock.SetTime(b.Clock.Now().Add(time.Minute)) // the watch has never shown them: somebody deleted them
			k.Pods = state.NewPods()
			if _, err := k.Reconcile(t.Context(), fakeapi.RequestOf("pods")); err != nil {
				t.Error(err)
			}
			free(4 - uint64(len(b.Ledger.Pins.All())))
		})
	}
}

// A webhook that fails for one pod stops no other pod, nor the release of pins. The keeper asks an API server
// without an answer once.
func TestKeeperGoesOn(t *testing.T) {
	webhook := apierrors.NewInternalError(errors.New("failed calling webhook"))
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"a failing webhook": {webhook, "10.0.0.0 web-1"},
		"overload":          {apierrors.NewTooManyRequests("slow down", 1), "10.0.0.3 web-5"},
		"no answer":         {fakeapi.ErrLine, "10.0.0.3 web-5"},
	} {
		t.Run(name, func(t *testing.T) {
			k, b := newKeeper(t, nil, nil, []*corev1.Pod{web("web-0"), web("web-1")}, kept("10.0.0.3/32", "web-5", 1, ago(time.Hour)))
			for range 2 {
				b.Refuse = map[string]error{"create PodIPPin": test.err} // of the first pod
				b.Before = func(call string) {
					if call == "create PodIPPin" && len(b.Calls) > 1 {
						b.Refuse = nil
					}
				}
				b.Calls = nil
				if _, err := k.Reconcile(t.Context(), fakeapi.RequestOf("pods")); !errors.Is(err, test.err) {
					t.Errorf("error %v, want %v", err, test.err)
				}
			}
			pinsAre(t, b, test.want)
		})
	}
}

// An event of a second pod of an owner names the first one.
func TestKeeperTellsWhoHasTheAddress(t *testing.T) {
	pin := kept("10.0.0.0/32", "", 1, nil)
	pin.Spec = crd.PinSpec(fixtures.Prefix("10.0.0.0/32"), crd.OwnerByLabel("default", vmLabel, "db"))
	pool := keeping(func(s *v1alpha1.PodIPPoolSpec) { s.PodAddresses.OwnerLabel = vmLabel })
	k, b := newKeeper(t, pool, nil, []*corev1.Pod{launcher("virt-launcher-abcde", "db", "10.0.0.0"), launcher("virt-launcher-fghjk", "db")}, pin)
	k.CiliumPools.Set(ciliumpool.Read(ciliumpool.New("zz.db.default.vm.kubevirt.io.name.3-1.labels.cilium-pool.io", [2]int{32, 0}, ciliumpool.Marks{})))
	for range 2 {
		if _, err := k.Reconcile(t.Context(), fakeapi.RequestOf("pods")); err != nil {
			t.Fatal(err)
		}
	}
	told := b.EventsOf(event.ReasonAddressInUse)
	want := "it waits for 10.0.0.0, which is kept for pods with vm.kubevirt.io/name=db in default: pod default/virt-launcher-abcde on node n has it until it ends"
	if len(told) != 1 || !strings.Contains(told[0], want) {
		t.Errorf("told %q", told)
	}
}
