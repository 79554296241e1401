// Package audit reports faults of a cluster: addresses on two nodes, pods on addresses without an
// owner, blocks and CiliumNodes that disagree, stuck handshakes. Check is a pure function from a
// snapshot of objects to findings.
//
// It never talks to Kubernetes, reads a clock, logs, or repairs anything. Package clusterread
// reads snapshots.
package audit

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterread"
	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/frrconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// Settings are the facts that the audit cannot read from the cluster: the operator's settings, and
// a time to wait.
type Settings struct {
	config.Settings

	// StuckAfter is the longest time of a state that should end on its own.
	StuckAfter time.Duration
}

// Check returns the findings of a snapshot, sorted by severity. In a changing
// cluster some are transient: see Persisting.
func Check(s *clusterread.Objects, set Settings) []Finding {
	x := newIndex(s, set)
	found := &findings{seen: map[string]bool{}}
	for i := range s.Pools {
		(&poolCheck{x, found, &s.Pools[i], x.cluster.Pools.Get(s.Pools[i].Name)}).check()
	}
	checkPins(s, found)
	checkOwners(x, found)
	for _, key := range s.RoutesLeft {
		found.add(FRRConfigurationLeft, Finding{Object: Object{Kind: "FRRConfiguration", Namespace: key.Namespace, Name: key.Name}}, "the operator wrote it, and maintains it no more")
	}
	if s.Leader.Missing() != "" {
		found.add(NoOperatorLeads, Finding{Object: Object{Kind: "Lease", Namespace: s.Leader.Lease.Namespace, Name: s.Leader.Lease.Name}}, "%s", s.Leader.Problem)
	}
	checkRouteFaults(x, found)
	checkCilium(x, found)
	checkTimes(x, found)
	checkBlocks(x, found)
	owners := map[netip.Addr]Object{}
	for _, n := range x.nodes {
		(&nodeCheck{x, found, n}).check(owners)
	}
	acrossNodes(x, found)
	sortFindings(found.found)
	return found.found
}

// checkRouteFaults reports what frr-k8s says of Nodes that exist.
func checkRouteFaults(x *index, found *findings) {
	for _, report := range x.snapshot.RouteFaults {
		if n := x.byName[report.Node]; n == nil || n.obj == nil {
			continue
		}
		reason := BGPSessionDown
		if report.Kind == frrconfig.NodeStateKind {
			reason = FRRConfigurationRefused
		}
		finding := Finding{Object: Object{Kind: report.Kind, Namespace: report.Namespace, Name: report.Name}, Others: []Object{nodeObject(report.Node)}}
		found.add(reason, finding, "node %s: %s", report.Node, report.Fault)
	}
}

// checkTimes looks for times that the operator counts from, and that are in the future.
func checkTimes(x *index, found *findings) {
	check := func(object Object, subject string, moment time.Time) {
		if moment.After(x.now.Add(state.ClockSkew)) {
			found.add(TimeInFuture, Finding{Object: object}, "%s at %s", subject, moment.UTC().Format(time.RFC3339))
		}
	}
	for i := range x.allBlocks {
		b := &x.allBlocks[i]
		check(blockObject(b.Name), "is "+b.Phase.String(), b.Since)
		check(blockObject(b.Name), "was created", b.Created)
	}
	for i := range x.snapshot.Pins {
		pin := &x.snapshot.Pins[i]
		if ready := meta.FindStatusCondition(pin.Status.Conditions, v1alpha1.PinReady); ready != nil {
			check(Object{Kind: "PodIPPin", Name: pin.Name}, "has a condition that changed", ready.LastTransitionTime.Time)
		}
	}
	for _, n := range x.nodes {
		if n.obj != nil {
			check(nodeObject(n.name), "was created", n.obj.CreationTimestamp.Time)
		}
		if n.view != nil && x.assigner(n.name) != nodeObject(n.name) {
			check(x.assigner(n.name), "was created", n.view.Created)
		}
	}
}

// findings collects findings, each once.
type findings struct {
	found []Finding
	seen  map[string]bool
}

// add adds a finding: f with a reason and the fault.
func (fs *findings) add(r Reason, f Finding, format string, args ...any) {
	f.Reason = r
	f.Message = fmt.Sprintf(format, args...)
	if key := f.key(); !fs.seen[key] {
		fs.seen[key] = true
		fs.found = append(fs.found, f)
	}
}

func nodeObject(name string) Object { return Object{Kind: "Node", Name: name} }

func blockObject(name string) Object { return Object{Kind: "PodIPBlock", Name: name} }

func poolObject(name string) Object { return Object{Kind: "PodIPPool", Name: name} }

// aboutBlock begins a finding about a block.
func aboutBlock(b *crd.Block, others ...Object) Finding {
	return Finding{Object: blockObject(b.Name), Others: others, Subject: b.CIDR}
}

// Severity is how severe a finding is.
type Severity string

// Severities.
const (
	// Error: traffic is or can be harmed, or an address can be assigned twice.
	Error Severity = "error"
	// Warning: no pod is harmed, but the state is not as it should be.
	Warning Severity = "warning"
)

// Object names an object of the cluster.
type Object struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// String is Kind/name, or Kind/namespace/name.
func (o Object) String() string {
	if o.Namespace == "" {
		return o.Kind + "/" + o.Name
	}
	return o.Kind + "/" + o.Namespace + "/" + o.Name
}

// Finding is one thing that is wrong with one object.
type Finding struct {
	Reason Reason
	Object Object
	// Others are other objects involved.
	Others []Object
	// Subject is the address or CIDR concerned. Invalid: the object as a whole.
	Subject netip.Prefix
	// Note adds to the subject: its owner or age.
	Note string
	// Message is the fault.
	Message string
}

// key identifies a finding across snapshots.
func (f *Finding) key() string {
	return f.group() + "\x00" + f.Subject.String()
}

// group is the part of a key that does not name an address or CIDR.
func (f *Finding) group() string {
	var s strings.Builder
	s.WriteString(string(f.Reason) + "\x00" + f.Object.String())
	for _, o := range f.Others {
		s.WriteString("\x00" + o.String())
	}
	return s.String()
}

// together reports whether a report shows f and g as one, with the addresses of
// both.
func (f *Finding) together(g *Finding) bool {
	return f.group() == g.group() && f.Message == g.Message
}

// Persisting returns the findings of now that were already there before.
func Persisting(earlier, now []Finding) []Finding {
	known := make(map[string]bool, len(earlier))
	for i := range earlier {
		known[earlier[i].key()] = true
	}
	var out []Finding
	for i := range now {
		if known[now[i].key()] {
			out = append(out, now[i])
		}
	}
	return out
}

// sortFindings sorts findings: errors first, then as the catalogue lists the reasons, then by object,
// message and address.
func sortFindings(findings []Finding) {
	rank := map[Reason]int{}
	for i, e := range Catalogue() {
		rank[e.Reason] = i
		if e.Severity == Warning {
			rank[e.Reason] += 1000
		}
	}
	slices.SortFunc(findings, func(a, b Finding) int {
		return cmp.Or(
			cmp.Compare(rank[a.Reason], rank[b.Reason]),
			strings.Compare(a.group(), b.group()),
			strings.Compare(a.Message, b.Message),
			a.Subject.Compare(b.Subject),
		)
	})
}
