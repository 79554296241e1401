package state

import (
	stdcmp "cmp"
	"testing"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumpool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// A pod's own annotations take precedence over its namespace's, and annotations of a family over
// annotations for both. Pods that name no pool are selected by labels: a pod that more than one pool
// selects gets no address at all. All of this is as in Cilium.
func TestPoolChoice(t *testing.T) {
	type labelled = map[string]string
	web, prod := labelled{"app": "web"}, labelled{"env": "prod"}
	six := fixtures.Picking("six", web, nil)
	six.MaskSize = [2]int{ipalloc.IPv6: six.MaskSize[ipalloc.IPv4]}
	strict, names := labelled{RequireAnnotation: "true"}, labelled{poolAnnotation: "red"}
	picks := func(name string, pods, namespaces labelled) []*ciliumpool.View {
		return []*ciliumpool.View{fixtures.Picking(name, pods, namespaces)}
	}
	two := []*ciliumpool.View{fixtures.Picking("blue", web, nil), fixtures.Picking("green", nil, prod)}
	blue := [2]string{"blue"}
	tests := map[string]struct {
		pod, namespace   labelled // annotations
		pools            []*ciliumpool.View
		want             [2]string
		unlabelled, gone bool // the pod has no label; its namespace is unknown
	}{
		"nothing":           {},
		"both families":     {pod: labelled{poolAnnotation: "blue"}, want: [2]string{"blue", "blue"}},
		"one family":        {pod: labelled{v6PoolAnnotation: "blue"}, want: [2]string{ipalloc.IPv6: "blue"}},
		"its own first":     {pod: labelled{poolAnnotation: "blue", v4PoolAnnotation: "green"}, want: [2]string{"green", "blue"}},
		"the namespace":     {namespace: labelled{poolAnnotation: "blue"}, want: [2]string{"blue", "blue"}},
		"the pod first":     {pod: labelled{v4PoolAnnotation: "green"}, namespace: labelled{poolAnnotation: "blue"}, want: [2]string{"green", "blue"}},
		"back to default":   {pod: labelled{poolAnnotation: "default"}, namespace: labelled{poolAnnotation: "blue"}},
		"other annotations": {pod: labelled{"ipam.cilium.io/skip-masquerade": "true"}},

		"by the pod":              {pools: picks("blue", web, nil), want: blue},
		"by the namespace":        {pools: picks("blue", nil, prod), want: blue},
		"by both":                 {pools: picks("blue", web, prod), want: blue},
		"the namespace is not":    {pools: picks("blue", web, web)},
		"the pod is not":          {pools: picks("blue", prod, prod)},
		"all pods":                {pools: picks("blue", labelled{}, nil), unlabelled: true, want: blue},
		"by its name":             {pools: picks("blue", labelled{"io.kubernetes.pod.name": "a"}, nil), want: blue},
		"by its namespace's name": {pools: picks("blue", labelled{"io.kubernetes.pod.namespace": "team"}, nil), want: blue},
		"the default one":         {pools: picks("default", web, nil)},
		"one of another family":   {pools: []*ciliumpool.View{six}, want: [2]string{ipalloc.IPv6: "six"}},
		"one for each family":     {pools: append(picks("blue", web, nil), six), want: [2]string{"blue", "six"}},
		"two":                     {pools: two, want: [2]string{noPool}},
		"two, and it names one":   {pools: two, pod: names, want: [2]string{"red", "red"}},
		"annotations go first":    {pools: picks("blue", web, nil), namespace: names, want: [2]string{"red", "red"}},
		"must be picked, and is":  {pools: picks("blue", web, nil), pod: strict, want: [2]string{"blue", noPool}},
		"must be picked":          {pod: strict, want: [2]string{noPool, noPool}},
		"all of it must":          {namespace: strict, want: [2]string{noPool, noPool}},
		"no such namespace":       {pools: picks("blue", nil, prod), gone: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pods, nothing := NewPods(), PoolRequest{}
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "a", UID: "a", Annotations: test.pod, Labels: labelled{"app": "web", "tier": ""}}}
			pod.Spec.NodeName = "n"
			if test.unlabelled {
				pod.Labels = nil
			}
			pods.Set(ReadPodWithRequest(pod), fixtures.Noon())
			if !test.gone {
				namespace := PoolRequestOf(&metav1.ObjectMeta{Annotations: test.namespace, Labels: prod})
				if first, again := pods.SetNamespace("team", namespace), pods.SetNamespace("team", namespace); len(first) != 1 || len(again) > 0 {
					t.Errorf("the namespace is news for %v, and again for %v", first, again)
				}
			}
			got := [2]string{}
			for _, f := range ipalloc.Families() {
				got[f] = pods.PoolChoices("n", PickingOf(test.pools...)).Of("team/a", f).Pool
			}
			if got != test.want {
				t.Errorf("it requests %q, want %q", got, test.want)
			}
			if pods.Set(ReadPodWithRequest(pod), fixtures.Noon()) {
				t.Error("the same pod again is news")
			}
			pod.Annotations = map[string]string{poolAnnotation: "other"}
			if !pods.Set(ReadPodWithRequest(pod), fixtures.Noon()) || pods.PoolChoices("n", nil).Of("team/a", ipalloc.IPv4).Pool != "other" {
				t.Error("another annotation is no news")
			}
			if pods.SetNamespace("team", nothing); len(pods.namespaces) > 0 {
				t.Errorf("namespaces are kept that request nothing: %v", pods.namespaces)
			}
		})
	}
}

// An agent that runs a family, or is configured for it, needs an address of it to start.
func TestUnservedFamily(t *testing.T) {
	const (
		runs    = "no PodIPPool gives ipv6 to node n, and its agent runs ipv6: it does not start without an address"
		later   = "no PodIPPool gives ipv6 to node n, and its agent is to run ipv6 from its next start (enable-ipv6): it does not start without an address"
		ofPool  = "no PodIPPool gives ipv6 of Cilium's pool default to node n, and its agent runs ipv6: it does not start without an address"
		another = "fd00::/126"
	)
	dual := map[string]string{"enable-ipv4": "true", "enable-ipv6": "true"}
	six := fixtures.Pooled(4, "10.0.0.0/30")
	six.Spec.IPAM.Pools.Requested[0].Needed.IPv6Addrs = 4
	for name, test := range map[string]struct {
		mode   ciliumnode.Mode
		data   map[string]string
		on     map[string]string // a CiliumNodeConfig for the node
		cn     *ciliumv2.CiliumNode
		agent  *corev1.Pod
		spoil  func(*Cluster, *corev1.Node)
		blocks []string
		want   []string
	}{
		"one family":             {data: map[string]string{"enable-ipv4": "true", "enable-ipv6": "false"}},
		"not known":              {},
		"both":                   {data: dual, want: []string{runs}},
		"on the node":            {data: map[string]string{"enable-ipv6": "false"}, on: dual, want: []string{runs}},
		"on all but":             {data: dual, on: map[string]string{"enable-ipv6": "false"}},
		"at its next start":      {data: dual, cn: fixtures.IPv4Agent(), agent: fixtures.AgentPod("a", "c", true), want: []string{later}},
		"it has restarted":       {data: dual, cn: fixtures.IPv4Agent(), agent: fixtures.AgentPod("a", "c", false), want: []string{runs}},
		"no agent":               {data: dual, agent: &corev1.Pod{}},
		"a pool has it":          {data: dual, spoil: func(c *Cluster, _ *corev1.Node) { c.Pools.Delete("p"); c.Pools.Set(fixtures.DualStack()) }},
		"it has a block":         {data: dual, blocks: []string{another}},
		"it has an address":      {data: dual, cn: fixtures.Publishing(fixtures.CiliumNode("n", "1"), "fd00::1")},
		"opted out":              {data: dual, spoil: func(_ *Cluster, n *corev1.Node) { n.Labels = map[string]string{v1alpha1.OptOutLabel: "true"} }},
		"no pool at all":         {data: dual, spoil: func(c *Cluster, _ *corev1.Node) { c.Pools.Delete("p") }},
		"paused":                 {data: dual, spoil: func(c *Cluster, _ *corev1.Node) { c.Paused = true }},
		"its labels are to come": {data: dual, spoil: func(_ *Cluster, n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "labels-come"}} }},
		"kubernetes":             {mode: ciliumnode.Kubernetes, data: dual, want: []string{runs}},
		"kubernetes, by another": {mode: ciliumnode.Kubernetes, data: dual, spoil: func(_ *Cluster, n *corev1.Node) { n.Spec.PodCIDRs = []string{another} }},
		"multi-pool":             {mode: ciliumnode.MultiPool, cn: six, want: []string{ofPool}},
		"multi-pool, one family": {mode: ciliumnode.MultiPool, cn: fixtures.Pooled(4)},
	} {
		t.Run(name, func(t *testing.T) {
			c, node := clusterOf(), fixtures.Node()
			c.Mode, c.Cilium, c.Defaults.CiliumPools = test.mode, &ciliumconfig.Latest{}, test.mode.ManyPools()
			c.Pools.Set(fixtures.Edited(fixtures.PodIPPool("late", 2, "10.9.0.0/28"), func(s *v1alpha1.PodIPPoolSpec) {
				s.NodeSelector, s.Priority = &metav1.LabelSelector{MatchLabels: map[string]string{"zone": "x"}}, 9
			}))
			config := &ciliumconfig.Config{Data: test.data}
			if test.on != nil {
				config.Overrides = []ciliumconfig.Override{{Defaults: test.on, NodeSelector: &metav1.LabelSelector{}}}
			}
			c.Cilium.Set(config)
			for _, cidr := range test.blocks {
				c.Ledger.Upsert(fixtures.Block(cidr, "six", "n", 1))
			}
			if test.agent == nil {
				test.agent = fixtures.AgentPod("a", "c", true)
			}
			c.Agents.Set(ReadAgent(test.agent), fixtures.Noon())
			if test.spoil != nil {
				test.spoil(c, node)
			}
			switch {
			case test.mode == ciliumnode.Kubernetes:
				c.Ledger.UpsertCiliumNode(test.mode.View(node))
			case test.cn != nil:
				c.Ledger.UpsertCiliumNode(test.mode.View(test.cn))
			}
			var got []string
			for _, u := range c.Snapshot("n", node, fixtures.Noon()).Unserved {
				got = append(got, u.Message)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			checkTwins(t, c, node)
		})
	}
}

// A pod that asks for a Cilium pool gets an address only if a PodIPPool serves it on the node. The
// pod and its node are told why none does, who asks, and a similar name.
func TestUnservedPods(t *testing.T) {
	const (
		why   = "no PodIPPool gives ipv4 of Cilium's pool "
		bleu  = why + "bleu to node n, as none has this ciliumPoolName (did you mean blue?); "
		mars  = why + "mars to node n, as none has this ciliumPoolName; "
		green = why + "green to node n, as none has this ciliumPoolName; "
		red   = why + "red to node n, as the PodIPPools that serve it do not select this node: reds; "
		six   = why + "six to node n, as the PodIPPools that serve it have no ipv4: sixes; "
		asks  = "the annotation of pod default/web asks for it"
	)
	elsewhere := fixtures.Edited(fixtures.PodIPPool("reds", 1, "10.6.0.0/28"), func(s *v1alpha1.PodIPPoolSpec) {
		s.CiliumPoolName, s.NodeSelector = "red", &metav1.LabelSelector{MatchLabels: map[string]string{"zone": "x"}}
	})
	sixes := fixtures.Edited(fixtures.DualStack(), func(s *v1alpha1.PodIPPoolSpec) { s.CiliumPoolName, s.IPv4 = "six", nil })
	sixes.Name = "sixes"
	requests := func(pools ...string) func(*ciliumv2.CiliumNode) {
		return func(cn *ciliumv2.CiliumNode) {
			cn.Spec.IPAM.Pools.Requested = nil
			for _, pool := range pools {
				cn.Spec.IPAM.Pools.Requested = append(cn.Spec.IPAM.Pools.Requested, ipamtypes.IPAMPoolRequest{Pool: pool, Needed: ipamtypes.IPAMPoolDemand{IPv4Addrs: 3}})
			}
		}
	}
	byDefault := map[string]string{"ipam-default-ip-pool": "mars"}
	reserves := func(pool string) map[string]string {
		return map[string]string{ciliumconfig.PreAllocationSetting: "default=8," + pool + "=8"}
	}
	const reserve = "Cilium's setting ipam-multi-pool-pre-allocation asks for it: the agent does not start again without an address"
	const isDefault = "Cilium's setting ipam-default-ip-pool makes it the node's default: the agent does not start without an address"
	for name, test := range map[string]struct {
		annotation, value string
		namespace         map[string]string // annotations
		ips               []string
		picks             []string          // CiliumPodIPPools that select the pod
		settings          map[string]string // in a CiliumNodeConfig
		cn                func(*ciliumv2.CiliumNode)
		want              string // of the pod
		node              string // if it differs
		requested         int
		taken             string // by another node
	}{
		"none":                       {},
		"the default one":            {value: "default"},
		"one that is served":         {value: "blue"},
		"a wrong name":               {value: "bleu", want: bleu + asks},
		"a wrong name in a family":   {annotation: v4PoolAnnotation, value: "bleu", want: bleu + asks},
		"an unknown name":            {value: "green", want: green + asks},
		"of the namespace":           {namespace: map[string]string{poolAnnotation: "bleu"}, want: bleu + "the annotation of namespace default asks for it"},
		"one of another zone":        {value: "red", want: red + asks},
		"one of the other family":    {value: "six", want: six + asks},
		"by a selector":              {picks: []string{"red"}, want: red + "CiliumPodIPPool red selects pod default/web"},
		"by two selectors":           {picks: []string{"red", "blue"}, want: "agents give no ipv4 address to pod default/web, as several CiliumPodIPPools select it: blue, red"},
		"it has an address":          {value: "red", ips: []string{"10.6.0.1"}},
		"a family not run":           {annotation: v6PoolAnnotation, value: "bleu"},
		"a selector is required":     {annotation: RequireAnnotation, value: "true", want: "agents give no ipv4 address to pod default/web, as no CiliumPodIPPool selects it, and the annotation ipam.cilium.io/require-pool-match of pod default/web requires one"},
		"by the namespace":           {namespace: map[string]string{RequireAnnotation: "true"}, want: "agents give no ipv4 address to pod default/web, as no CiliumPodIPPool selects it, and the annotation ipam.cilium.io/require-pool-match of namespace default requires one"},
		"the agent asks as well":     {value: "green", cn: requests("default", "green"), want: green + asks, requested: 3},
		"the agent alone":            {cn: requests("default", "green"), node: green + "its agent asks for it", requested: 3},
		"its reserve":                {cn: requests("default", "green"), settings: reserves("green"), node: green + reserve, requested: 3},
		"its next reserve":           {settings: reserves("green"), node: green + reserve},
		"a reserve of none":          {settings: map[string]string{ciliumconfig.PreAllocationSetting: "default=8,green=0"}},
		"a reserve that is served":   {settings: reserves("blue")},
		"of a full pool":             {settings: reserves("blue"), taken: "10.8.0.0/28", node: "no PodIPPool gives ipv4 of Cilium's pool blue to node n, as none has a free block; " + reserve},
		"the node's default":         {cn: requests("mars"), settings: byDefault, want: mars + "pod default/web names no pool, and Cilium's setting ipam-default-ip-pool makes this one the node's default", node: mars + isDefault, requested: 3},
		"not by the pod":             {value: "default", cn: requests("mars"), settings: byDefault, node: mars + isDefault, requested: 3},
		"the default one is served":  {cn: requests("blue"), settings: map[string]string{"ipam-default-ip-pool": "blue"}},
		"the default of its restart": {cn: requests("default"), settings: byDefault, node: mars + isDefault},
		"listed by others": {value: "green", cn: func(cn *ciliumv2.CiliumNode) {
			cn.Spec.IPAM.Pools.Allocated = append(cn.Spec.IPAM.Pools.Allocated, ipamtypes.IPAMPoolAllocation{Pool: "green", CIDRs: fixtures.CiliumNode("", "", "10.7.0.0/28").Spec.IPAM.PodCIDRs})
		}},
		"no report yet": {value: "bleu", cn: requests()},
	} {
		t.Run(name, func(t *testing.T) {
			c, cn, node := clusterOf(fixtures.Block("10.0.0.0/30", "p", "n", 1)), fixtures.Pooled(2, "10.0.0.0/30"), fixtures.Node()
			c.Mode, c.Defaults.CiliumPools, c.Cilium = ciliumnode.MultiPool, true, &ciliumconfig.Latest{}
			c.Cilium.Set(&ciliumconfig.Config{Known: true, Overrides: []ciliumconfig.Override{{Defaults: test.settings, NodeSelector: &metav1.LabelSelector{}}}})
			c.Pools = NewPools(c.Defaults, c.Ledger)
			for _, pool := range []*v1alpha1.PodIPPool{fixtures.PodIPPool("p", 1, "10.0.0.0/28"), fixtures.BluePool("10.8.0.0/28"), elsewhere, sixes} {
				c.Pools.Set(pool)
			}
			for _, pool := range test.picks {
				c.CiliumPools.Set(fixtures.Picking(pool, map[string]string{}, nil))
			}
			pod := fixtures.Pod("web", "1", "n", test.ips...)
			if test.value != "" {
				key := poolAnnotation
				if test.annotation != "" {
					key = test.annotation
				}
				pod.Annotations = map[string]string{key: test.value}
			}
			c.Pods.Set(ReadPodWithRequest(pod), fixtures.Noon())
			c.Agents.Set(ReadAgent(fixtures.AgentPod("a", "c", true)), fixtures.Noon())
			c.Pods.SetNamespace(pod.Namespace, PoolRequestOf(&metav1.ObjectMeta{Annotations: test.namespace}))
			if test.cn != nil {
				test.cn(cn)
			}
			c.Ledger.UpsertCiliumNode(c.Mode.View(cn))
			if test.taken != "" {
				c.Ledger.Upsert(fixtures.Block(test.taken, "blues", "m", 2))
			}
			s := c.Snapshot("n", node, fixtures.Noon())
			if got := s.UnservedPods()[pod.Namespace+"/web"]; got.Message != test.want || got.UID != pod.UID && test.want != "" {
				t.Errorf("the pod: %q (%s), want %q", got.Message, got.UID, test.want)
			}
			got := Unserved{}
			if len(s.Unserved) > 0 {
				got = s.Unserved[0]
			}
			if want := stdcmp.Or(test.node, test.want); got.Message != want || len(s.Unserved) > 1 {
				t.Errorf("the node: %q, want %q", got.Message, want)
			}
			if got.Requested != test.requested || got.OfAgent != (test.settings != nil && test.node != "") {
				t.Errorf("the agent asks for %d, for itself: %t", got.Requested, got.OfAgent)
			}
			checkTwins(t, c, node)
		})
	}
}

// Nodes are looked at again only if a CiliumPodIPPool came to select other pods, or has other families.
func TestChangeOfSelectedPods(t *testing.T) {
	web, db := map[string]string{"app": "web"}, map[string]string{"app": "db"}
	unpicked := func(name string) *ciliumpool.View {
		return &ciliumpool.View{Name: name, MaskSize: [2]int{ipalloc.IPv4: 27}}
	}
	changed := func(change func(*ciliumpool.View)) *ciliumpool.View {
		v := fixtures.Picking("blue", web, nil)
		change(v)
		return v
	}
	for name, test := range map[string]struct {
		was, is *ciliumpool.View
		want    bool
	}{
		"new, without a selector":   {nil, unpicked("blue"), false},
		"new":                       {nil, fixtures.Picking("blue", web, nil), true},
		"the same":                  {fixtures.Picking("blue", web, nil), fixtures.Picking("blue", web, nil), false},
		"other pods":                {fixtures.Picking("blue", web, nil), fixtures.Picking("blue", db, nil), true},
		"no longer any":             {fixtures.Picking("blue", web, nil), unpicked("blue"), true},
		"now some":                  {unpicked("blue"), fixtures.Picking("blue", web, nil), true},
		"another size":              {fixtures.Picking("blue", web, nil), changed(func(v *ciliumpool.View) { v.MaskSize[ipalloc.IPv4] = 28 }), false},
		"without IPv4":              {fixtures.Picking("blue", web, nil), changed(func(v *ciliumpool.View) { v.MaskSize[ipalloc.IPv4] = 0 }), true},
		"with IPv6":                 {fixtures.Picking("blue", web, nil), changed(func(v *ciliumpool.View) { v.MaskSize[ipalloc.IPv6] = 122 }), true},
		"never any, another family": {unpicked("blue"), &ciliumpool.View{Name: "blue"}, true},
	} {
		c := NewCiliumPools()
		if test.was != nil {
			c.Set(test.was)
		}
		if got := c.Set(test.is); got != test.want {
			t.Errorf("%s: selects others: %t", name, got)
		}
		if c.Delete(&ciliumpool.View{Name: "blue", UID: "another"}) || c.Get("blue") == nil {
			t.Errorf("%s: deleted with one of the same name", name)
		}
		if got, want := c.Delete(test.is), test.is.Selector != nil; got != want || c.Get("blue") != nil {
			t.Errorf("%s: deleted: selected pods: %t", name, got)
		}
		if c.Delete(test.is) {
			t.Errorf("%s: deleted twice", name)
		}
	}
}
