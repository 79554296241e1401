package whois

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/audit"
	"github.com/cilium-pool/cilium-pool-operator/pkg/audit/auditcmd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cluster"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/output"
)

func TestParseInstant(t *testing.T) {
	zone := time.FixedZone("CST", 8*3600)
	now := time.Date(2026, 3, 1, 9, 30, 0, 0, zone)
	tests := map[string]struct {
		given string
		want  time.Time // zero: refused
	}{
		"time of day":            {"09:05", time.Date(2026, 3, 1, 9, 5, 0, 0, zone)},
		"with seconds":           {"09:05:07", time.Date(2026, 3, 1, 9, 5, 7, 0, zone)},
		"now":                    {"09:30", now},
		"yesterday's":            {"14:05", time.Date(2026, 2, 28, 14, 5, 0, 0, zone)},
		"day and time":           {"2026-01-02 14:05", time.Date(2026, 1, 2, 14, 5, 0, 0, zone)},
		"day, time and seconds":  {"2026-01-02 14:05:06", time.Date(2026, 1, 2, 14, 5, 6, 0, zone)},
		"with a zone":            {"2026-01-02T14:05:00Z", time.Date(2026, 1, 2, 14, 5, 0, 0, time.UTC)},
		"how long ago":           {"1h30m", now.Add(-90 * time.Minute)},
		"yet to come":            {given: "2026-03-01 09:31"},
		"yet to come, in a zone": {given: "2026-03-01T01:31:00Z"},
		"in -1 minutes":          {given: "-1m"},
		"no time":                {given: "yesterday"},
		"nothing":                {given: ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parseInstant(test.given, now)
			if (err != nil) != test.want.IsZero() {
				t.Fatalf("error is %v", err)
			}
			if err == nil && !got.Equal(test.want) {
				t.Errorf("%s is read as %s, want %s", test.given, got, test.want)
			}
		})
	}
}

// day returns noon of a day in January.
func day(n int) time.Time { return time.Date(2026, 1, n, 12, 0, 0, 0, time.UTC) }

func heldBlock(cidr, node string, since int) v1alpha1.PodIPBlock {
	b := crd.NewBlock(netip.MustParsePrefix(cidr), "main", node, "")
	b.CreationTimestamp = metav1.NewTime(day(since))
	return *b
}

func restingBlock(cidr, node string, since, until int, reason expand.Reason) v1alpha1.PodIPBlock {
	b := heldBlock(cidr, node, since)
	crd.SetBlockPhase(&b, ipalloc.CoolingDown, reason, "", day(until))
	return b
}

// mainPool returns a pool 10.20.0.0/24.
func mainPool() v1alpha1.PodIPPool {
	p := v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: "main", UID: "p", Generation: 1}}
	p.Spec.IPv4 = &v1alpha1.IPv4Ranges{BlockSize: 29, CIDRs: []v1alpha1.PoolCIDR{{CIDR: "10.20.0.0/24"}}}
	return p
}

// recorded returns the history of that pool since a day; 0: it has none.
func recorded(since int, returned ...v1alpha1.ReturnedBlock) []v1alpha1.PodIPPoolHistory {
	if since == 0 {
		return nil
	}
	pool, at := mainPool(), metav1.NewTime(day(since))
	h := crd.NewHistory(&pool)
	h.ReturnedBlocks, h.ReturnedBlocksSince = returned, &at
	return []v1alpha1.PodIPPoolHistory{*h}
}

func gaveBack(cidr, node string, since, until int) v1alpha1.ReturnedBlock {
	return v1alpha1.ReturnedBlock{
		CIDR: cidr, NodeName: node, Since: metav1.NewTime(day(since)), Until: metav1.NewTime(day(until)), Reason: "Returned",
	}
}

func TestHeldAt(t *testing.T) {
	const cidr = "10.20.0.0/29"
	tests := map[string]struct {
		record []v1alpha1.PodIPPoolHistory
		blocks []v1alpha1.PodIPBlock
		at     int
		held   []string // "node since-until", days
		before string
		after  string
		known  bool
	}{
		"held since, and still": {
			record: recorded(0), blocks: []v1alpha1.PodIPBlock{heldBlock(cidr, "a", 3)}, at: 5,
			held: []string{"a 3-"}, known: true,
		},
		"held by another, before the one that holds it now": {
			record: recorded(1, gaveBack(cidr, "b", 2, 4)), blocks: []v1alpha1.PodIPBlock{heldBlock(cidr, "a", 5)}, at: 3,
			held: []string{"b 2-4"}, known: true,
		},
		"between the two": {
			record: recorded(1, gaveBack(cidr, "b", 2, 4)), blocks: []v1alpha1.PodIPBlock{heldBlock(cidr, "a", 6)}, at: 5,
			before: "b 2-4", after: "a 6-", known: true,
		},
		"the nearest of many": {
			record: recorded(1, gaveBack(cidr, "b", 2, 4), gaveBack(cidr, "c", 5, 6), gaveBack(cidr, "d", 8, 9)), at: 7,
			before: "c 5-6", after: "d 8-9", known: true,
		},
		"the instant at which it was claimed":    {record: recorded(1, gaveBack(cidr, "b", 2, 4)), at: 2, held: []string{"b 2-4"}, known: true},
		"the instant at which it was back":       {record: recorded(1, gaveBack(cidr, "b", 2, 4)), at: 4, before: "b 2-4", known: true},
		"another block":                          {record: recorded(1, gaveBack("10.20.0.8/29", "b", 2, 4)), at: 3, known: true},
		"farther back than the record":           {record: recorded(5, gaveBack(cidr, "b", 4, 6)), at: 3, after: "b 4-6"},
		"farther back, but held by one it lists": {record: recorded(5, gaveBack(cidr, "b", 2, 6)), at: 3, held: []string{"b 2-6"}, known: true},
		"no record":                              {record: recorded(0), at: 3},
		"it cools down, and is listed too": {
			record: recorded(1, gaveBack(cidr, "a", 2, 4)),
			blocks: []v1alpha1.PodIPBlock{restingBlock(cidr, "a", 2, 4, expand.Returned)}, at: 3,
			held: []string{"a 2-4"}, known: true,
		},
		"it cools down": {
			record: recorded(1), blocks: []v1alpha1.PodIPBlock{restingBlock(cidr, "a", 2, 4, expand.NodeGone)}, at: 5,
			before: "a 2-4", known: true,
		},
		"its Node is back, which the record does not say yet": {
			record: recorded(1, gaveBack(cidr, "a", 2, 4)), blocks: []v1alpha1.PodIPBlock{heldBlock(cidr, "a", 2)}, at: 5,
			held: []string{"a 2-"}, known: true,
		},
		"an unreadable record": {record: recorded(1, gaveBack("nonsense", "b", 2, 4)), at: 3, known: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := &audit.Snapshot{Time: day(20), Pools: []v1alpha1.PodIPPool{mainPool()}, Histories: test.record, Blocks: test.blocks}
			p := heldAt(cluster.New(s, nil, auditcmd.Operator{Settings: controller.DefaultSettings()}), netip.MustParseAddr("10.20.0.5"), day(test.at))
			var held []string
			for i := range p.Held {
				held = append(held, days(&p.Held[i]))
			}
			if diff := cmp.Diff(test.held, held); diff != "" {
				t.Errorf("held (-want +got):\n%s", diff)
			}
			if before, after := days(p.Before), days(p.After); before != test.before || after != test.after {
				t.Errorf("before it was %q, after %q, want %q and %q", before, after, test.before, test.after)
			}
			if p.known() != test.known {
				t.Errorf("known is %t, want %t", p.known(), test.known)
			}
		})
	}
}

func days(t *tenure) string {
	if t == nil {
		return ""
	}
	until := ""
	if t.Until != nil {
		until = t.Until.Format("2")
	}
	return t.Node + " " + t.Since.Format("2") + "-" + until
}

// The answer about the past shows how far back it goes, and claims no more than is known.
func TestPastText(t *testing.T) {
	one, ofEarlier := []v1alpha1.PodIPPool{mainPool()}, recorded(5)
	ofEarlier[0].OwnerReferences[0].UID = "earlier"
	tests := map[string]struct {
		pools     []v1alpha1.PodIPPool
		histories []v1alpha1.PodIPPoolHistory
		unread    string
		want      string
	}{
		"no pool":      {want: "It lies in no pool now."},
		"no record":    {pools: one, want: "There is no record of pool main: the operator has yet to write its PodIPPoolHistory"},
		"no right":     {pools: one, unread: "you may not", want: "There is no record of pool main: you may not."},
		"a record":     {pools: one, histories: recorded(5), want: "The record of pool main goes back to " + instant(day(5)) + "."},
		"an older one": {pools: one, histories: ofEarlier, want: "There is no record of pool main: the operator has yet to write"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := &audit.Snapshot{Time: day(20), Pools: test.pools, Histories: test.histories, HistoriesUnread: test.unread}
			p := heldAt(cluster.New(s, nil, auditcmd.Operator{Settings: controller.DefaultSettings()}), netip.MustParseAddr("10.20.0.5"), day(3))
			var out output.Text
			p.describe(&out)
			for _, want := range []string{"Who held 10.20.0.5 at " + instant(day(3)) + " is not known.", test.want} {
				if !strings.Contains(out.String(), want) {
					t.Errorf("%q is not said:\n%s", want, &out)
				}
			}
		})
	}
}

func TestEndedUser(t *testing.T) {
	start, end := metav1.NewTime(day(2)), metav1.NewTime(day(4))
	ran := func(ip string, statuses ...corev1.ContainerStatus) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "job"},
			Spec:       corev1.PodSpec{NodeName: "a"},
			Status: corev1.PodStatus{
				StartTime: &start, PodIPs: []corev1.PodIP{{IP: "fd00::5"}, {IP: ip}}, ContainerStatuses: statuses,
			},
		}
	}
	ended := func(at metav1.Time) corev1.ContainerStatus {
		return corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: at}}}
	}
	never := ran("10.20.0.5", ended(end))
	never.Status.StartTime = nil
	tests := map[string]struct {
		pod *corev1.Pod
		had []int // days
	}{
		"its last container counts": {ran("10.20.0.5", ended(start), ended(end)), []int{2, 3, 4}},
		"its end is unknown":        {ran("10.20.0.5"), []int{2, 3, 4, 5}},
		"another address":           {ran("10.20.0.6", ended(end)), nil},
		"it never started":          {never, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			u, ok := endedUser(test.pod, netip.MustParseAddr("10.20.0.5"))
			var had []int
			for d := 1; ok && d <= 5; d++ {
				if u.had(day(d)) {
					had = append(had, d)
				}
			}
			if diff := cmp.Diff(test.had, had); diff != "" {
				t.Errorf("days (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNaming(t *testing.T) {
	tests := map[string]struct {
		address, text string
		want          bool
	}{
		"a URL":                {"10.0.0.5", `Get "http://10.0.0.5:8080/": refused`, true},
		"a sentence":           {"10.0.0.5", "it had 10.0.0.5.", true},
		"the text":             {"10.0.0.5", "10.0.0.5", true},
		"one that ends so":     {"10.0.0.5", "110.0.0.5", false},
		"one that begins so":   {"10.0.0.5", "10.0.0.53", false},
		"a longer number":      {"10.0.0.5", "10.0.0.5.1", false},
		"a second one":         {"10.0.0.5", "10.0.0.53 and 10.0.0.5", true},
		"dots are dots":        {"10.0.0.5", "10.0.005", false},
		"IPv6 in a URL":        {"fd00::5", `Get "http://[fd00::5]:8080/"`, true},
		"IPv6 in capitals":     {"fd00::5", "FD00::5", true},
		"IPv6 that begins so":  {"fd00::5", "fd00::5a", false},
		"IPv6 that is longer":  {"fd00::5", "fd00::5:1", false},
		"IPv6 that ends alike": {"fd00::5", "1:fd00::5", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := naming(netip.MustParseAddr(test.address)).MatchString(test.text); got != test.want {
				t.Errorf("%q names %s: %t, want %t", test.text, test.address, got, test.want)
			}
		})
	}
}
