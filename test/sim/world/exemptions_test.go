package world

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	iputil "github.com/cilium/cilium/pkg/ip"
	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/adopt"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/agent"
)

// small is a world of one operator and two nodes in which nothing has happened.
func small(t *testing.T, change func(*Config)) *World {
	t.Helper()
	settings := config.Settings{
		Defaults:       crd.Defaults{Policy: expand.DefaultPolicy(), Cooldown: time.Minute, NodeGoneCooldown: 5 * time.Minute},
		AgentNamespace: "kube-system", AgentSettle: time.Minute, NodeWorkers: 1,
	}
	c := Config{
		Nodes: 2, PodsPerNode: 2, Operators: 1, UpdateRate: 15 * time.Second, Settings: settings, Upgraded: settings,
		Pools: []*v1alpha1.PodIPPool{{ObjectMeta: metav1.ObjectMeta{Name: "main"}, Spec: v1alpha1.PodIPPoolSpec{
			IPv4: &v1alpha1.IPv4Ranges{BlockSize: 29, CIDRs: []v1alpha1.PoolCIDR{{CIDR: "10.0.0.0/26"}}},
		}}},
	}
	if change != nil {
		change(&c)
	}
	w := New(c)
	t.Cleanup(w.Close)
	return w
}

// TestIsLost checks that a block belongs to a lost pod only if a pod of its machine without an
// endpoint names one of its addresses.
func TestIsLost(t *testing.T) {
	cidr := netip.MustParsePrefix("10.0.0.0/29")
	inside, outside := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.9")
	tests := map[string]struct {
		node     string // of the pod
		says     netip.Addr
		endpoint netip.Addr
		want     bool
	}{
		"lost":                        {node: "n1", says: inside, want: true},
		"on another node":             {node: "n2", says: inside},
		"of another block":            {node: "n1", says: outside},
		"with its endpoint":           {node: "n1", says: inside, endpoint: inside},
		"with an endpoint elsewhere":  {node: "n1", says: inside, endpoint: outside},
		"whose endpoint is in it yet": {node: "n1", says: outside, endpoint: inside},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := small(t, nil)
			on := w.machine(test.node)
			on.kubelet.newPod("p1", "")
			pod := on.kubelet.podObject("p1").DeepCopy()
			pod.Status.PodIPs = []corev1.PodIP{{IP: test.says.String()}}
			w.must(w.api.Update(pod, true))
			if test.endpoint.IsValid() {
				on.endpoints["p1"] = &endpoint{pod: pod, v4: test.endpoint}
			}
			if got := w.modeRules.isLost(w.machine("n1"), cidr); got != test.want {
				t.Errorf("lost %t, want %t", got, test.want)
			}
		})
	}
}

// TestRunsWithout checks that a Node may remain without a podCIDR only if its agent reports one
// of that family that is not a block of the node.
func TestRunsWithout(t *testing.T) {
	const own = "10.0.0.0/29"
	tests := map[string]struct {
		says, holder string // the podCIDR that the agent says; who holds the block own
		want         bool
	}{
		"nothing is said":               {holder: "n1"},
		"the node's block":              {says: own, holder: "n1"},
		"a block that has gone":         {says: own, want: true},
		"another node's":                {says: own, holder: "n2", want: true},
		"one of the other family alone": {says: "fd00::/125"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := small(t, func(c *Config) { c.Settings.Mode = ciliumnode.Kubernetes })
			cn := &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
			if test.says != "" {
				cn.Spec.IPAM.PodCIDRs = []iputil.Prefix{iputil.PrefixFrom(netip.MustParsePrefix(test.says))}
			}
			w.must(w.api.Create(cn))
			if test.holder != "" {
				w.must(w.api.Create(&v1alpha1.PodIPBlock{
					ObjectMeta: metav1.ObjectMeta{Name: crd.BlockName(netip.MustParsePrefix(own))},
					Spec:       v1alpha1.PodIPBlockSpec{CIDR: own, NodeName: test.holder, PoolName: "main"},
				}))
			}
			if got := w.settled.runsWithout(w.machine("n1"), ipalloc.IPv4); got != test.want {
				t.Errorf("got %t, want %t", got, test.want)
			}
		})
	}
}

// TestOfTheHour checks that windows excuse few writes per minute of an object. More of them,
// and writes of other kinds, count like any write.
func TestOfTheHour(t *testing.T) {
	w := small(t, func(c *Config) { c.Maintenance = &Maintenance{} })
	old := w.api.Get(KindPool, "main").(*v1alpha1.PodIPPool)
	now := old.DeepCopy()
	status := Version{Kind: KindPool, Key: "main", Old: old, New: now}
	for range 3 {
		for i := range perMinute {
			if !w.rules.ofTheHour(status) {
				t.Fatalf("write %d of the minute is not of the hour", i+1)
			}
		}
		if w.rules.ofTheHour(status) {
			t.Errorf("write %d of the minute is still of the hour", perMinute+1)
		}
		w.clock.now = w.clock.now.Add(time.Minute)
	}
	edited := now.DeepCopy()
	edited.Generation++
	if w.rules.ofTheHour(Version{Kind: KindPool, Key: "main", Old: old, New: edited}) {
		t.Error("an edit of the spec is of the hour")
	}
	if w.rules.ofTheHour(Version{Kind: KindPool, Key: "main", New: now}) {
		t.Error("a new pool is of the hour")
	}
	w.cfg.Maintenance = nil
	if w.rules.ofTheHour(status) {
		t.Error("without windows a write is of the hour")
	}
}

// TestOneNeed checks that a second claim for a need is excused only if pools or labels have
// changed since the operator received them.
func TestOneNeed(t *testing.T) {
	tests := map[string]struct {
		before, since func(w *World)
		found         bool
	}{
		"nothing has changed":           {found: true},
		"a pool had changed before":     {before: editMain, found: true},
		"a pool has changed since":      {since: editMain},
		"a pool's status has":           {since: func(w *World) { w.must(w.api.Update(statusOf(w), true)) }, found: true},
		"the Node got other labels":     {since: func(w *World) { label(w, "n1") }},
		"another Node got other labels": {since: func(w *World) { label(w, "n2") }, found: true},
		"the first was listed before":   {before: listFirst},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := small(t, nil)
			for _, m := range w.machines {
				m.discover()
			}
			if test.before != nil {
				test.before(w)
			}
			o := w.operators[0]
			w.Do(Action{Start, o.name, ""})
			w.processes.show()
			w.users.pin(netip.MustParsePrefix("10.0.0.0/29"), "main", "n1")
			o.unheard("10.0.0.0-29")
			if test.since != nil {
				test.since(w)
			}
			w.rules.writer = o
			w.rules.checkOneNeed(Version{Kind: KindBlock, Key: "10.0.0.8-29", New: crd.NewBlock(netip.MustParsePrefix("10.0.0.8/29"), "main", "n1", "")})
			if found := len(w.Violations) > 0; found != test.found {
				t.Errorf("found %v, want %t", w.Violations, test.found)
			}
		})
	}
}

func editMain(w *World) { w.poolUsers.editPool("min-free") }

func listFirst(w *World) {
	cn := w.api.Get(KindCiliumNode, "n1").DeepCopyObject().(*ciliumv2.CiliumNode)
	cn.Spec.IPAM.PodCIDRs = []iputil.Prefix{iputil.PrefixFrom(first)}
	w.must(w.api.Update(cn, false))
}

func label(w *World, node string) { w.users.label(node, "zone=east") }

func statusOf(w *World) *v1alpha1.PodIPPool {
	p := w.api.Get(KindPool, "main").(*v1alpha1.PodIPPool).DeepCopy()
	p.Status.Conditions = []metav1.Condition{{Type: "Ready"}}
	return p
}

// TestFitsOld checks that migrate abort may refuse a node only if its old mode cannot express
// what the node has.
func TestFitsOld(t *testing.T) {
	given := netip.MustParsePrefix("10.0.4.0/28")
	tests := map[string]struct {
		from    adopt.Source
		adopted bool
		more    bool   // a block of its own beside it
		other   string // what is adopted as well
		uses    string
		want    bool
	}{
		"as it came":                    {from: adopt.ClusterPool, adopted: true, uses: "10.0.4.1", want: true},
		"with another block":            {from: adopt.ClusterPool, adopted: true, more: true},
		"to multi-pool mode, with that": {from: adopt.MultiPool, adopted: true, more: true, want: true},
		"with a block of its own alone": {from: adopt.ClusterPool},
		"with both families":            {from: adopt.ClusterPool, adopted: true, other: "fd00::/124", uses: "fd00::1", want: true},
		"with two of a family":          {from: adopt.ClusterPool, adopted: true, other: "10.0.4.32/28"},
		"with an address outside":       {from: adopt.ClusterPool, adopted: true, uses: "10.9.9.9"},
		"the same, to multi-pool mode":  {from: adopt.MultiPool, adopted: true, uses: "10.9.9.9"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := small(t, func(c *Config) {
				c.Move = &Move{From: test.from, Given: [][]netip.Prefix{{given}, {netip.MustParsePrefix("10.0.4.16/28")}}}
			})
			b := crd.NewBlock(given, "main", "n1", "")
			b.Finalizers = nil
			if test.adopted {
				b.Labels = map[string]string{v1alpha1.AdoptedLabel: string(test.from)}
			}
			w.must(w.api.Create(b))
			if test.other != "" {
				b := crd.NewBlock(netip.MustParsePrefix(test.other), "main", "n1", "")
				b.Labels = map[string]string{v1alpha1.AdoptedLabel: string(test.from)}
				w.must(w.api.Create(b))
			}
			if test.more {
				w.users.pin(netip.MustParsePrefix("10.0.0.0/29"), "main", "n1")
			}
			m := w.machine("n1")
			if test.uses != "" {
				m.endpoints["p1"] = &endpoint{pod: &corev1.Pod{}, v4: netip.MustParseAddr(test.uses)}
			}
			if got := w.migration.fitsOld(m); got != test.want {
				t.Errorf("fits %t, want %t", got, test.want)
			}
		})
	}
}

// TestExcludedCombinations checks that what users do not do in combination with something else,
// they do without it.
func TestExcludedCombinations(t *testing.T) {
	tests := map[string]struct {
		what    Action
		faults  Faults
		against func(w *World)
	}{
		"a block of another size, where watches begin anew": {
			what: Action{BlockMake, "n1", wide}, faults: BlockEdits, against: func(w *World) { w.cfg.Faults |= Relist },
		},
		"an old first list, while a block is torn away": {
			what: Action{Start, "op1", "stale"}, faults: StaleList, against: func(w *World) { w.rules.torn["10.0.0.0-29"] = tornBlock{} },
		},
		"a podCIDR taken, while a block is torn away": {
			what: Action{CNEdit, "n1", "cidr"}, faults: Edits, against: func(w *World) { w.rules.torn["10.0.0.0-29"] = tornBlock{} },
		},
		"a CiliumNode deleted, of an entry written by hand": {
			what: Action{CNDelete, "n1", ""}, faults: CiliumNodeGone, against: func(w *World) {
				w.cfg.Spare = []v1alpha1.PoolCIDR{{CIDR: "172.16.0.0/29"}}
				cn := w.api.Get(KindCiliumNode, "n1").(*ciliumv2.CiliumNode).DeepCopy()
				cn.Spec.IPAM.Pool = ipamtypes.AllocationMap{"172.16.0.1": {}}
				w.must(w.api.Update(cn, false))
			},
		},
		"an entry written by hand, of what is a block": {
			what: Action{CNEdit, "n1", "foreign"}, faults: Edits, against: func(w *World) { w.users.pin(netip.MustParsePrefix("172.16.0.0/29"), "main", "n2") },
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := small(t, func(c *Config) { c.Faults = test.faults })
			for _, m := range w.machines {
				m.discover()
			}
			if !w.Can(test.what) {
				t.Fatalf("%s never happens", test.what)
			}
			test.against(w)
			if w.Can(test.what) {
				t.Errorf("%s may happen", test.what)
			}
			for _, a := range w.Enabled() {
				if a.Verb == test.what.Verb && strings.HasPrefix(a.Who, "n") && a != test.what {
					return // the rest of what is like it goes on
				}
			}
			if test.what.Who != "op1" {
				t.Errorf("nothing like %s may happen", test.what)
			}
		})
	}
}

// TestExcuses checks that an address that a user removed from a node is excused on that node
// only, until it is back and the node's agent has seen it.
func TestExcuses(t *testing.T) {
	w := small(t, nil)
	n1, n2 := w.machine("n1"), w.machine("n2")
	n1.read = 5
	tests := map[string]struct {
		e    excuse
		on   *machine
		want bool
	}{
		"gone":                        {excuse{node: "n1"}, n1, true},
		"gone from another node":      {excuse{node: "n2"}, n1, false},
		"none":                        {excuse{}, n2, false},
		"back, and not seen":          {excuse{node: "n1", back: 6}, n1, true},
		"back, and seen by its agent": {excuse{node: "n1", back: 5}, n1, false},
	}
	for name, test := range tests {
		if got := test.e.holds(test.on); got != test.want {
			t.Errorf("%s: excused %t, want %t", name, got, test.want)
		}
	}
}

// TestAgentSeesItsOwnWrite checks that in multi-pool mode an agent writes its list only after
// it has seen every version of it, and that it then does.
func TestAgentSeesItsOwnWrite(t *testing.T) {
	w := small(t, func(c *Config) {
		c.Settings.Mode, c.Upgraded.Mode, c.Faults = ciliumnode.MultiPool, ciliumnode.MultiPool, Lag
	})
	m := w.machine("n1")
	w.Do(Action{AgentStart, "n1", ""})
	if !m.mayReport() {
		t.Fatal("an agent that has seen all does not write")
	}
	cn := w.api.Get(KindCiliumNode, "n1").DeepCopyObject().(*ciliumv2.CiliumNode)
	touch(cn)
	w.must(w.api.Update(cn, false))
	if m.mayReport() {
		t.Error("an agent writes that has not seen the last version")
	}
	w.Do(Action{AgentSee, "n1", ""})
	if !m.mayReport() {
		t.Error("an agent that has seen all again does not write")
	}
}

// TestMarkedThoughNotReported checks that the addresses of an agent that reports nothing of a
// family are not kept only if it does not run the family.
func TestMarkedThoughNotReported(t *testing.T) {
	cn := &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	v4, v6 := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")
	tests := map[string]struct {
		families []agent.Family
		addr     netip.Addr
		settled  bool
		broken   string
	}{
		"a family not run":                 {[]agent.Family{agent.IPv4}, v6, true, ""},
		"the one that is run":              {[]agent.Family{agent.IPv4}, v4, true, "its agent reports nothing"},
		"both are run":                     {[]agent.Family{agent.IPv4, agent.IPv6}, v6, true, "its agent reports nothing"},
		"not run, by an agent that starts": {[]agent.Family{agent.IPv4}, v6, false, "its agent had just started"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := small(t, func(c *Config) { c.Families = test.families })
			w.operators[0].start(0)
			w.rules.writer = w.operators[0]
			w.rules.checkGuards(&flight{name: "n1", settled: test.settled}, cn, test.addr)
			var got string
			for _, v := range w.Violations {
				got += v.Text
			}
			if (got == "") != (test.broken == "") || !strings.Contains(got, test.broken) {
				t.Errorf("got %q, want %q", got, test.broken)
			}
		})
	}
}
