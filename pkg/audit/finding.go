package audit

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
)

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
	// Says is the fault.
	Says string
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
	return f.group() == g.group() && f.Says == g.Says
}

// Persisting returns the findings of now that were already there before.
func Persisting(before, now []Finding) []Finding {
	was := make(map[string]bool, len(before))
	for i := range before {
		was[before[i].key()] = true
	}
	var out []Finding
	for i := range now {
		if was[now[i].key()] {
			out = append(out, now[i])
		}
	}
	return out
}

// inOrder sorts findings: errors first, then as the catalogue lists the reasons, then by object,
// message and address.
func inOrder(findings []Finding) {
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
			strings.Compare(a.Says, b.Says),
			a.Subject.Compare(b.Subject),
		)
	})
}
