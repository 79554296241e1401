package node

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

func TestShortageOf(t *testing.T) {
	v4 := func(plan expand.Plan, pools ...*crd.Pool) account {
		return account{Share: &state.Share{Family: ipalloc.IPv4, Pools: pools}, plan: plan}
	}
	v6 := func(plan expand.Plan) account {
		return account{Share: &state.Share{Family: ipalloc.IPv6}, plan: plan}
	}
	east, west := fixtures.PoolOf(t, fixtures.PodIPPool("east", 1, "10.0.0.0/28")), fixtures.PoolOf(t, fixtures.PodIPPool("west", 1, "10.0.1.0/28"))
	claim := func(n int) expand.Claim { return expand.Claim{Addresses: n, Blocks: 9} }
	limited := expand.Plan{Demand: 8, Capacity: 6, Shortage: 2}
	fixed := account{Share: &state.Share{State: expand.State{BlockAssignment: &expand.BlockAssignment{SingleBlock: true}}}, plan: limited}
	blue := func(ofPods bool) account {
		return account{Share: &state.Share{CiliumPool: "blue", OfPods: ofPods}, plan: expand.Plan{Demand: 8, Claim: claim(8)}}
	}
	const pod = "shop/web-0"
	web := account{Share: &state.Share{CiliumPool: crd.CiliumPoolOfOwner(pod), OfPods: true, Pools: []*crd.Pool{west.ForCiliumPoolOfOwner(crd.CiliumPoolOfOwner(pod))}}, plan: expand.Plan{Demand: 1, Claim: claim(1)}}
	const exhausted = v1alpha1.NodePoolsExhausted
	tests := map[string]struct {
		accounts []account
		short    [2]int
		unmet    bool
		reason   string // "": no shortage
		message  string // text that it must contain
		some     bool   // others can start
	}{
		"nothing decided":                        {},
		"enough":                                 {accounts: []account{v4(expand.Plan{Demand: 3, Capacity: 6})}},
		"a claim that was met":                   {accounts: []account{v4(expand.Plan{Demand: 5, Capacity: 2, Claim: claim(7)})}},
		"only the reserve is lacking":            {[]account{v4(expand.Plan{Demand: 5, Capacity: 6, Claim: claim(3)}, east, west)}, [2]int{3, 0}, false, exhausted, "no pool that serves this node (east, west)", false},
		"pods wait":                              {[]account{v4(expand.Plan{Demand: 8, Capacity: 6, Claim: claim(6)}, east)}, [2]int{6, 0}, true, exhausted, "ipv4: no pool that serves this node", false},
		"what was claimed suffices for the pods": {[]account{v4(expand.Plan{Demand: 8, Capacity: 6, Claim: claim(6)}, east)}, [2]int{4, 0}, false, exhausted, "ipv4: no pool that serves this node", false},
		"pods run on in blocks that must leave":  {[]account{v4(expand.Plan{Demand: 8, ServedElsewhere: 8, Claim: claim(12)}, east)}, [2]int{12, 0}, false, exhausted, "ipv4: no pool that serves this node", false},
		"a limit":                                {[]account{v4(limited)}, [2]int{}, true, reasonLimitReached, "ipv4: maxBlocksPerNode, ", false},
		"the one block of a Node":                {[]account{fixed}, [2]int{}, true, reasonBlockFull, "ipv4: the block of this node is full", false},
		"no pool at all":                         {[]account{v4(expand.Plan{Demand: 1, Claim: claim(6)})}, [2]int{6, 0}, true, exhausted, "(none)", false},
		"a pool of Cilium's":                     {[]account{blue(true)}, [2]int{8, 0}, true, exhausted, "ipv4 of Cilium's pool blue: no pool", true},
		"and the default one":                    {[]account{blue(true), v4(limited)}, [2]int{8, 0}, true, exhausted, "; ipv4: no pool", false},
		"one that the agent needs to start":      {[]account{blue(false)}, [2]int{8, 0}, true, exhausted, "ipv4 of Cilium's pool blue: no pool", false},
		"an address that moves":                  {[]account{web}, [2]int{1, 0}, true, reasonMoves, "pinned to pod shop/web-0 cannot come here yet, or another", true},
		"and other pods wait":                    {[]account{web, v4(expand.Plan{Demand: 8, Capacity: 6, Claim: claim(1)}, east)}, [2]int{1, 0}, true, exhausted, "ipv4: no pool that serves this node", false},
		"and a reserve is lacking":               {[]account{v4(expand.Plan{Demand: 3, Capacity: 6, Claim: claim(1)}, east), web}, [2]int{1, 0}, true, exhausted, "ipv4: no pool that serves this node", true},
		"full pools before a limit":              {[]account{v4(expand.Plan{Demand: 3, Capacity: 6, Claim: claim(1)}), v6(limited)}, [2]int{1, 0}, true, exhausted, "ipv6: maxBlocksPerNode", false},
		"each family for itself":                 {[]account{v4(limited), v6(expand.Plan{Demand: 3, Capacity: 6, Claim: claim(1)})}, [2]int{0, 1}, true, exhausted, "allow no more addresses; ipv6: no pool", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			waiting := 0 // the metric is of pods that wait, as the condition
			for i, s := range test.accounts {
				s = newAccount(s.Share, s.plan, outcome{Shortfall: expand.Shortfall{Exhausted: test.short[s.Family]}})
				test.accounts[i] = s
				waiting += s.balance.Missing
			}
			got := shortageOf(test.accounts)
			if test.unmet != (waiting > 0) || (got != nil) != (test.reason != "") {
				t.Errorf("%d addresses are lacking, shortage %v", waiting, got)
			}
			if got != nil && (got.podsWait != test.unmet || got.reason != test.reason || got.podsWait && got.someOnly != test.some || !strings.Contains(got.message, test.message)) {
				t.Errorf("shortage %+v, want %+v", got, test)
			}
		})
	}
}

// A message says how a block leaves in the mode of its node, and why it enters a phase.
func TestPhaseMessage(t *testing.T) {
	own := fixtures.Addrs("10.0.0.1")
	cidr := fixtures.Prefix("10.0.0.0/30")
	fixed, multi := &ciliumnode.BlockAssignment{SingleBlock: true}, &ciliumnode.BlockAssignment{}
	for name, test := range map[string]struct {
		view   *ciliumnode.View
		was    crd.Block
		phase  ipalloc.Phase
		reason expand.Reason
		gone   bool
		want   string
	}{
		"a drain":                     {view: &ciliumnode.View{}, reason: expand.Deleted, phase: ipalloc.Draining, want: "goes once no pod uses an address of it"},
		"with addresses of its agent": {view: &ciliumnode.View{Own: own}, reason: expand.Deleted, phase: ipalloc.Draining, want: "has restarted"},
		"multi-pool mode":             {view: &ciliumnode.View{BlockAssignment: multi}, reason: expand.CIDRDraining, phase: ipalloc.Draining, want: "cover what its agent requests"},
		"its agent stays there":       {view: &ciliumnode.View{Own: own, BlockAssignment: multi}, reason: expand.PoolDeleted, phase: ipalloc.Draining, want: "goes once the Node is deleted"},
		"kubernetes mode":             {view: &ciliumnode.View{PodCIDRs: []netip.Prefix{cidr}, BlockAssignment: fixed}, reason: expand.Deleted, phase: ipalloc.Draining, want: "goes once the Node is deleted"},
		"never assigned to the Node":  {view: &ciliumnode.View{BlockAssignment: fixed}, reason: expand.Deleted, phase: ipalloc.Draining, want: "goes once no pod uses an address of it"},
		"demand ends a reclaim":       {was: crd.Block{Phase: ipalloc.Draining, Reason: expand.Reclaim}, phase: ipalloc.InService, want: "demand is back"},
		"people end a drain":          {was: crd.Block{Phase: ipalloc.Draining, Reason: expand.CIDRDraining}, phase: ipalloc.InService, want: "the reason for its drain is gone"},
		"the Node is gone":            {gone: true, reason: expand.NodeGone, phase: ipalloc.CoolingDown, want: "the Node is gone"},
		"Cilium left the Node":        {reason: expand.NodeGone, phase: ipalloc.CoolingDown, want: "the Node runs without Cilium"},
	} {
		t.Run(name, func(t *testing.T) {
			o := &observation{Snapshot: &state.Snapshot{Name: "n", Node: fixtures.Node()}}
			if test.view != nil {
				o.CiliumNode = test.view
			}
			if test.gone {
				o.Node = nil
			}
			test.was.CIDR = cidr
			if got := o.phaseMessage(test.was, test.phase, test.reason); !strings.Contains(got, test.want) {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

// A paused pool suppresses reports about its own family only.
func TestPausedFamilyHidesNoShortage(t *testing.T) {
	paused := fixtures.PodIPPool("p", 1, "10.0.0.0/28")
	paused.Spec.Paused = new(true)
	six := sixPool("fd00::/126")
	other := crd.NewBlock(fixtures.Prefix("fd00::/126"), "q", "m", "m-uid")
	b := newBed(t, fixtures.Node(), paused, six, other, bare())
	b.settle()
	if got := b.r.Cluster.Awaiting.Wake(ipalloc.IPv6, []string{"q"}); !slices.Equal(got, []string{"n"}) {
		t.Errorf("nodes short of addresses: %v", got)
	}
}

// What a drain waits for is reported once, in the block's status and by an event, until that changes.
func TestWaitsAreReportedOnce(t *testing.T) {
	b := newBed(t, threeBlocks(fixtures.Draining(v1alpha1.Maintenance{}), asIs)...)
	pod := state.ReadPod(fixtures.Pod("web", "uid", "n", "10.0.0.1"))
	b.r.Cluster.Pods.Set(pod, fixtures.Noon())
	for range 3 {
		b.settle()
		if is := b.block("10.0.0.0/30"); is.Obstacle.Reason != expand.WaitPods || is.Obstacle.Note != "pods default/web" {
			t.Errorf("the block waits for %s: %s", is.Obstacle.Reason, is.Obstacle.Note)
		}
	}
	of := func(e string) bool { return strings.Contains(e, "block 10.0.0.0/30 waits for Pods: pods") }
	if got := slices.DeleteFunc(b.EventsOf(event.ReasonDrainWaits), func(e string) bool { return !of(e) }); len(got) != 1 {
		t.Errorf("reported %q", got)
	}
	b.r.Cluster.Pods.Delete(pod.PodKey, fixtures.Noon())
	b.settle()
	if is := b.block("10.0.0.0/30"); is.Phase != ipalloc.Draining || is.Obstacle.Reason != expand.WaitUnsettled {
		t.Errorf("without pods the block is %s and waits for %q", is.Phase, is.Obstacle.Reason)
	}
	b.r.Cluster.Pods.Set(pod, fixtures.Noon())
	b.settle()
	if got := slices.DeleteFunc(b.EventsOf(event.ReasonDrainWaits), func(e string) bool { return !of(e) }); len(got) != 1 {
		t.Errorf("with the pod again, reported %q", got)
	}
	const waits = "cilium_pool_drain_wait_blocks ipv4 p Pods"
	if got := fakeapi.Series(t, b.r.Metrics.drains); got[waits] != 1 {
		t.Errorf("counted %v", got)
	}
	b.must(b.API.Delete(t.Context(), fixtures.Node()))
	b.Watch()
	b.r.Cluster.Pods.Delete(pod.PodKey, fixtures.Noon())
	b.settle()
	if got := fakeapi.Series(t, b.r.Metrics.drains); len(got) > 0 {
		t.Errorf("of a Node that is gone, counted %v", got)
	}
}

// hasShortage fails the test unless the Node's condition has this reason; it is True unless
// addresses suffice.
func (b *bed) hasShortage(reason string) {
	b.T.Helper()
	want := corev1.ConditionTrue
	if reason == reasonEnough {
		want = corev1.ConditionFalse
	}
	conditions := b.node().Status.Conditions
	if len(conditions) != 1 || conditions[0].Type != v1alpha1.NodeAddressShortage || conditions[0].Status != want || conditions[0].Reason != reason {
		b.T.Errorf("conditions of the Node are %v, want %s %s with reason %s", conditions, v1alpha1.NodeAddressShortage, want, reason)
	}
}

// reportsShortage fails the test unless the last event about a shortage contains this.
func (b *bed) reportsShortage(want string) {
	b.T.Helper()
	last := ""
	for _, e := range b.EventsOf(event.ReasonPodAddressShortage) {
		last = e
	}
	if !strings.Contains(last, want) {
		b.T.Errorf("the last event about a shortage is %q, want %q in it", last, want)
	}
}

// The condition of a Node is written at once when its status or reason changes, and for another message once a minute.
func TestNodeConditionIsPaced(t *testing.T) {
	b := newBed(t, fixtures.Node())
	b.r.Reporter.NodeCondition = true
	lack := func(reason, message string) *shortage {
		return &shortage{podsWait: true, reason: reason, message: message}
	}
	full := v1alpha1.NodePoolsExhausted
	for i, step := range []struct {
		lack  *shortage
		after time.Duration
		want  int
		due   time.Duration // the next write
	}{
		{},
		{lack: lack(full, "x"), want: 1},
		{lack: lack(full, "x"), after: time.Hour},
		{lack: lack(full, "y"), want: 1},
		{lack: lack(full, "z"), after: 20 * time.Second, due: 40 * time.Second},
		{lack: lack(reasonPaused, "z"), after: time.Second, want: 1},
		{lack: nil, after: time.Second, want: 1},
		{lack: nil, after: time.Hour},
		{lack: lack(full, "x"), want: 1},
		{lack: lack(full, "y"), after: 59 * time.Second, due: time.Second},
		{lack: lack(full, "y"), after: time.Second, want: 1},
	} {
		b.Clock.SetTime(b.Clock.Now().Add(step.after))
		b.Calls = nil
		due, err := b.r.Reporter.setNodeCondition(t.Context(), b.node(), step.lack)
		b.must(err)
		if step.due > 0 != !due.IsZero() || step.due > 0 && due.Sub(b.Clock.Now()) != step.due || len(b.Calls) != step.want {
			t.Errorf("step %d: writes %v, and the next at %s; want %+v", i, b.Calls, due, step)
		}
	}
}

// A shortage is reported once: by full pools, or by an event of the Node, also if the operator has restarted since.
func TestShortageIsReportedOnce(t *testing.T) {
	condition := func(reason string) []corev1.NodeCondition {
		return []corev1.NodeCondition{{Type: v1alpha1.NodeAddressShortage, Status: corev1.ConditionTrue, Reason: reason}}
	}
	for name, test := range map[string]struct {
		lack shortage
		said []corev1.NodeCondition
		want int
	}{
		"a limit":                    {lack: shortage{reason: reasonLimitReached}, want: 1},
		"the same after a restart":   {lack: shortage{reason: reasonLimitReached}, said: condition(reasonLimitReached)},
		"another after a restart":    {lack: shortage{reason: reasonLimitReached}, said: condition(reasonPaused), want: 1},
		"full pools":                 {lack: shortage{reason: v1alpha1.NodePoolsExhausted, ofPools: true}},
		"pools that cannot say that": {lack: shortage{reason: v1alpha1.NodePoolsExhausted}, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, fixtures.Node())
			b.r.Reporter.NodeCondition = true
			node := b.node()
			node.Status.Conditions = test.said
			for range 2 {
				b.r.Reporter.sendShortage(node, &test.lack, func() string { return "" })
			}
			if got := b.EventsOf(event.ReasonPodAddressShortage); len(got) != test.want {
				t.Errorf("events %q, want %d", got, test.want)
			}
		})
	}
}

// A taint that another client adds in the meantime is not lost.
func TestNodeTaintIsWrittenOnWhatWasSeen(t *testing.T) {
	b := newBed(t, fixtures.Node())
	seen := b.node()
	others := b.node()
	others.Spec.Taints = []corev1.Taint{{Key: "other", Effect: corev1.TaintEffectNoExecute}}
	b.must(b.API.Update(t.Context(), others))
	if err := b.r.Reporter.setNodeTaint(t.Context(), seen, "short", true); !apierrors.IsConflict(err) {
		t.Errorf("got %v, want a conflict", err)
	}
	b.must(b.r.Reporter.setNodeTaint(t.Context(), b.node(), "short", true))
	if taints := b.node().Spec.Taints; len(taints) != 2 {
		t.Errorf("taints are %v", taints)
	}
}
