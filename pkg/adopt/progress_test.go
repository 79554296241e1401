package adopt

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

func TestSourceOf(t *testing.T) {
	ours, labelled := claimed("10.0.0.0/24", "n"), adopted("10.0.0.0/24", "n")
	kubernetes := labelled
	kubernetes.AdoptedFrom = string(Kubernetes)
	leaving, leavingMulti := labelled, labelled
	leaving.Deleting, leavingMulti.Deleting = true, true
	leavingMulti.AdoptedFrom = string(MultiPool)
	one := prefixes("10.0.0.0/24")
	tests := map[string]struct {
		facts Facts
		want  Source
		given []netip.Prefix
	}{
		"a new node":                              {Facts{}, None, nil},
		"cluster-pool":                            {Facts{PodCIDRs: one}, ClusterPool, one},
		"the Node's podCIDRs are others":          {Facts{PodCIDRs: one, NodePodCIDRs: prefixes("10.244.0.0/24")}, ClusterPool, one},
		"kubernetes":                              {Facts{PodCIDRs: one, NodePodCIDRs: one}, Kubernetes, one},
		"the same, and the mode is cluster-pool":  {Facts{Mode: "cluster-pool", PodCIDRs: one, NodePodCIDRs: one}, ClusterPool, one},
		"kubernetes, and no CiliumNode yet":       {Facts{Mode: "kubernetes", NodePodCIDRs: one}, Kubernetes, one},
		"the Node's podCIDRs, not in use":         {Facts{Mode: "crd", NodePodCIDRs: one}, None, nil},
		"multi-pool":                              {Facts{Allocated: one}, MultiPool, one},
		"by hand":                                 {Facts{Published: addrs("10.0.0.1"), Reported: true}, CRD, nil},
		"by hand, beside ours":                    {Facts{PodCIDRs: one, Published: addrs("10.0.0.1", "10.9.0.1"), Reported: true, Blocks: []crd.Block{ours}}, CRD, one},
		"by hand, beside ours, not reported yet":  {Facts{Published: addrs("10.9.0.1"), Blocks: []crd.Block{ours}}, CRD, nil},
		"left from crd mode, in multi-pool mode":  {Facts{Allocated: one, Published: addrs("10.9.0.1"), Blocks: []crd.Block{ours}}, None, one},
		"ours":                                    {Facts{PodCIDRs: one, Published: addrs("10.0.0.1"), Reported: true, Blocks: []crd.Block{ours}}, None, one},
		"ours, not reported yet":                  {Facts{PodCIDRs: one, Published: addrs("10.0.0.1"), Blocks: []crd.Block{ours}}, None, one},
		"ours, and foreign podCIDRs":              {Facts{PodCIDRs: prefixes("10.9.0.0/24"), Published: addrs("10.0.0.1"), Reported: true, Blocks: []crd.Block{ours}}, None, prefixes("10.9.0.0/24")},
		"adopted, and half of it is not":          {Facts{PodCIDRs: prefixes("10.0.0.0/24", "10.9.0.0/24"), Blocks: []crd.Block{labelled}}, ClusterPool, prefixes("10.0.0.0/24", "10.9.0.0/24")},
		"moved":                                   {Facts{PodCIDRs: one, Published: addrs("10.0.0.1"), Reported: true, Blocks: []crd.Block{labelled}}, ClusterPool, one},
		"adopted from kubernetes, no CiliumNode":  {Facts{NodePodCIDRs: one, Blocks: []crd.Block{kubernetes}}, Kubernetes, one},
		"published, and leaves":                   {Facts{PodCIDRs: one, Published: addrs("10.0.0.1"), Blocks: []crd.Block{leaving}}, ClusterPool, one},
		"given back, but published, and leaves":   {Facts{PodCIDRs: one, Published: addrs("10.0.0.1"), Allocated: prefixes("10.1.0.0/24"), Blocks: []crd.Block{leavingMulti}}, MultiPool, prefixes("10.1.0.0/24")},
		"not given back, published, and leaves":   {Facts{PodCIDRs: one, Published: addrs("10.0.0.1"), Allocated: one, Blocks: []crd.Block{leavingMulti}}, MultiPool, one},
		"named twice, once with bits of the host": {Facts{PodCIDRs: one, Allocated: []netip.Prefix{netip.MustParsePrefix("10.0.0.7/24")}}, MultiPool, one},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			from, given := SourceOf(tt.facts)
			if from != tt.want {
				t.Errorf("from %q, want %q", from, tt.want)
			}
			if diff := cmp.Diff(tt.given, given, compareNetip(), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("given (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStep(t *testing.T) {
	main := pool(t, "main", 27, "10.0.0.0/16")
	all := main.Usable(prefix("10.0.1.0/28"))
	standing := func(change ...func(*Progress)) Progress {
		s := Progress{
			Node:   Node{Name: "n", From: ClusterPool, AssignedCIDRs: prefixes("10.0.1.0/28")},
			Blocks: []crd.Block{adopted("10.0.1.0/28", "n")}, Settled: true,
			Publishable: func(b crd.Block) []netip.Addr { return main.Usable(b.CIDR) },
		}
		for _, c := range change {
			c(&s)
		}
		return s
	}
	published := func(s *Progress) { s.Published = all }
	moved := func(s *Progress) { s.Reported = true }
	toMultiPool := func(s *Progress) { s.Whole = true }
	listed := func(s *Progress) { s.Listed = prefixes("10.0.1.0/28") }
	tests := map[string]struct {
		s    Progress
		want Step
	}{
		"nothing is done":                {standing(func(s *Progress) { s.Blocks = nil }), Old},
		"one of two":                     {standing(func(s *Progress) { s.AssignedCIDRs = prefixes("10.0.1.0/28", "10.0.2.0/28") }), Old},
		"adopted":                        {standing(), Adopted},
		"half published":                 {standing(func(s *Progress) { s.Published = all[:3] }), Adopted},
		"published":                      {standing(published), Published},
		"but for an address in use":      {standing(published, func(s *Progress) { s.Used = usedBy("10.0.1.0", "default/a") }), Adopted},
		"its range drains":               {standing(func(s *Progress) { s.Publishable = func(crd.Block) []netip.Addr { return nil } }), Published},
		"moved, a moment ago":            {standing(published, moved, func(s *Progress) { s.Settled = false }), Moved},
		"moved, and a pod is to come":    {standing(published, moved, func(s *Progress) { s.Unreported = 1 }), Moved},
		"settled":                        {standing(published, moved), Settled},
		"settled, and has grown since":   {standing(moved, func(s *Progress) { s.Blocks = append(s.Blocks, claimed("10.0.3.0/27", "n")) }), Settled},
		"settled, and its block is gone": {standing(moved, func(s *Progress) { s.Blocks = []crd.Block{claimed("10.0.3.0/27", "n")} }), Settled},
		"finished":                       {standing(published, moved, func(s *Progress) { s.From = None }), Finished},
		"on its way back":                {standing(published, moved, func(s *Progress) { s.Back = "cluster-pool" }), Returning},
		"by hand":                        {standing(moved, func(s *Progress) { s.From, s.AssignedCIDRs, s.Published = CRD, nil, addrs("10.0.2.1") }), Old},
		"by hand, adopted":               {standing(moved, func(s *Progress) { s.From, s.AssignedCIDRs, s.Published = CRD, nil, addrs("10.0.1.1") }), Adopted},
		"not listed in multi-pool mode":  {standing(toMultiPool, published), Adopted},
		"listed in multi-pool mode":      {standing(toMultiPool, listed), Published},
		"settled in multi-pool mode":     {standing(toMultiPool, listed, moved), Settled},
		"by hand, settled":               {standing(moved, published, func(s *Progress) { s.From, s.AssignedCIDRs = CRD, nil }), Settled},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tt.s.Step(); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestReached(t *testing.T) {
	steps := Steps()
	for i, s := range steps {
		for j, want := range steps {
			if got := s.Reached(want); got != (i >= j) {
				t.Errorf("%s has reached %s: %t", s, want, got)
			}
		}
		if Returning.Reached(s) {
			t.Errorf("a node on its way back has reached %s", s)
		}
	}
}

func TestRefusal(t *testing.T) {
	back := func(to Source, change ...func(*ReturnFacts)) ReturnFacts {
		b := ReturnFacts{
			To: to, PodCIDRs: prefixes("10.0.1.0/24"), NodePodCIDRs: prefixes("10.0.1.0/24"),
			Blocks: []crd.Block{adopted("10.0.1.0/24", "n")}, Used: usedBy("10.0.1.5", "default/a"),
		}
		for _, c := range change {
			c(&b)
		}
		return b
	}
	grown := func(b *ReturnFacts) {
		b.Blocks, b.PodCIDRs = append(b.Blocks, claimed("10.0.9.0/27", "n")), prefixes("10.0.1.0/24", "10.0.9.0/27")
	}
	tests := map[string]struct {
		back ReturnFacts
		want string // a part of the reason; "": it can
	}{
		"its one old block": {back(ClusterPool), ""},
		"to kubernetes":     {back(Kubernetes), ""},
		"a block of each family": {back(ClusterPool, func(b *ReturnFacts) {
			b.Blocks, b.PodCIDRs = append(b.Blocks, adopted("fd00::/122", "n")), append(b.PodCIDRs, prefix("fd00::/122"))
		}), ""},
		"two blocks":                  {back(ClusterPool, grown), "10.0.1.0/24 and 10.0.9.0/27"},
		"two blocks to multi-pool":    {back(MultiPool, grown), ""},
		"one, that is not its old":    {back(ClusterPool, func(b *ReturnFacts) { b.Blocks = []crd.Block{claimed("10.0.1.0/24", "n")} }), "none that it came with"},
		"it drains":                   {back(ClusterPool, func(b *ReturnFacts) { b.Blocks[0].Phase = ipalloc.Draining }), "Draining"},
		"not what its Node has":       {back(Kubernetes, func(b *ReturnFacts) { b.NodePodCIDRs = prefixes("10.0.2.0/24") }), "podCIDRs of its Node"},
		"foreign podCIDRs":            {back(ClusterPool, func(b *ReturnFacts) { b.PodCIDRs = prefixes("10.0.1.0/24", "10.7.0.0/24") }), "what is no block"},
		"podCIDRs do not name it":     {back(ClusterPool, func(b *ReturnFacts) { b.PodCIDRs = nil }), "do not name its block"},
		"a pod elsewhere":             {back(ClusterPool, func(b *ReturnFacts) { b.Used = usedBy("10.7.0.5", "default/b") }), "default/b has 10.7.0.5"},
		"a pod elsewhere, multi-pool": {back(MultiPool, func(b *ReturnFacts) { b.Used = usedBy("10.7.0.5", "default/b") }), "default/b has 10.7.0.5"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := tt.back.Refusal()
			if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
