package audit

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterread"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
)

// Report is the outcome of an audit, for users and scripts.
type Report struct {
	// Time is when the last read began.
	Time time.Time `json:"time"`
	// Mode is how blocks are assigned to agents: crd, multi-pool or kubernetes.
	Mode string `json:"mode"`
	// Looks is the number of reads of the cluster.
	Looks    int    `json:"looks"`
	Looked   Looked `json:"looked"`
	Errors   int    `json:"errors"`
	Warnings int    `json:"warnings"`
	// Findings are sorted by severity. Never null.
	Findings []ReportedFinding `json:"findings"`
}

// Looked counts the objects of a snapshot.
type Looked struct {
	Nodes       int `json:"nodes"`
	CiliumNodes int `json:"ciliumNodes"`
	Pods        int `json:"pods"`
	Pools       int `json:"podIPPools"`
	Blocks      int `json:"podIPBlocks"`
	Agents      int `json:"agentPods"`
	// Addresses are the entries of all CiliumNodes' pools or, if agents are assigned whole
	// blocks, all addresses in these.
	Addresses int `json:"addresses"`
	// Unread are sources of Cilium's configuration that may not be read.
	Unread []string `json:"unread,omitempty"`
	// UnreadRoutes are kinds of frr-k8s that may not be read.
	UnreadRoutes []string `json:"unreadRoutes,omitempty"`
	// Undated are CiliumNodes with a draining block or a release entry that do not say when
	// they changed. Only a check that watches for longer than Settings.StuckAfter sees whether
	// these make progress; it has none.
	Undated int `json:"undatedCiliumNodes,omitempty"`
}

// ReportedFinding is one problem of one object.
type ReportedFinding struct {
	Severity Severity  `json:"severity"`
	Reason   Reason    `json:"reason"`
	Object   Object    `json:"object"`
	Others   []Object  `json:"others,omitempty"`
	Subjects []Subject `json:"subjects,omitempty"`
	Message  string    `json:"message"`
	Fix      string    `json:"fix"`
}

// Subject is an address or a CIDR that a finding concerns.
type Subject struct {
	Address string `json:"address"`
	// Note adds the owner or age.
	Note string `json:"note,omitempty"`
}

// NewReport groups findings, in the order of Check.
func NewReport(s *clusterread.Objects, looks int, findings []Finding) Report {
	r := Report{Time: s.Time, Mode: s.Mode.String(), Looks: looks, Looked: lookedAt(s), Findings: []ReportedFinding{}}
	entries := map[Reason]ReasonInfo{}
	for _, e := range Catalogue() {
		entries[e.Reason] = e
	}
	for i := 0; i < len(findings); {
		n := 1
		for i+n < len(findings) && findings[i+n].together(&findings[i]) {
			n++
		}
		t := problemOf(entries[findings[i].Reason], s.Mode, findings[i:i+n])
		r.Findings = append(r.Findings, t)
		if t.Severity == Error {
			r.Errors++
		} else {
			r.Warnings++
		}
		i += n
	}
	return r
}

// lookedAt counts the objects in a snapshot.
func lookedAt(s *clusterread.Objects) Looked {
	l := Looked{
		Nodes: len(s.Nodes), Pods: len(s.Pods), Pools: len(s.Pools), Blocks: len(s.Blocks), Agents: len(s.Agents),
		UnreadRoutes: s.RoutesUnread,
	}
	if s.CiliumConfig != nil {
		l.Unread = s.CiliumConfig.Denied
	}
	for i := range s.CiliumNodes {
		cn := (*ciliumNode)(&s.CiliumNodes[i])
		if cn.BlockAssignment == nil || !cn.BlockAssignment.SingleBlock || cn.BlockAssignment.HasAgent {
			l.CiliumNodes++
		}
		if a := cn.Addresses; a != nil {
			l.Addresses += len(a.Pool) + len(a.NonCanonical) + len(a.Unreadable)
		} else {
			l.Addresses += cn.ofFamily(ipalloc.IPv4) + cn.ofFamily(ipalloc.IPv6)
		}
	}
	return l
}

func problemOf(e ReasonInfo, mode ciliumnode.Mode, group []Finding) ReportedFinding {
	first := &group[0]
	t := ReportedFinding{Severity: e.Severity, Reason: e.Reason, Object: first.Object, Others: first.Others, Message: first.Message}
	for i := range group {
		if s := group[i].Subject; s.IsValid() {
			t.Subjects = append(t.Subjects, Subject{addressOrCIDR(&group[i]), group[i].Note})
		}
	}
	name := first.Object.Name
	second := ""
	address := ""
	if len(first.Others) > 0 {
		second = first.Others[0].Name
	}
	if len(t.Subjects) > 0 {
		address = t.Subjects[0].Address
	}
	t.Fix = strings.NewReplacer("`", "", "NAME", name, "OTHER", second, "ADDRESS", address).Replace(e.FixIn(mode))
	return t
}

func addressOrCIDR(f *Finding) string {
	if f.Subject.IsSingleIP() {
		return f.Subject.Addr().String()
	}
	return f.Subject.String()
}

// JSON writes the report for scripts.
func (r *Report) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(r)
}

// Text writes the report for users: per finding, a line for the fault and one for the fix, and a
// final line with the numbers of checked objects.
func (r *Report) Text(w io.Writer) error {
	var b strings.Builder
	for _, part := range []struct {
		severity Severity
		title    string
	}{{Error, "ERRORS"}, {Warning, "WARNINGS"}} {
		titled := false
		for i := range r.Findings {
			t := &r.Findings[i]
			if t.Severity != part.severity {
				continue
			}
			if !titled {
				titled = true
				fmt.Fprintln(&b, part.title)
			}
			fmt.Fprintf(&b, "  %s\n      fix: %s\n", t.line(), t.Fix)
		}
	}
	l := r.Looked
	looked := times(r.Looks)
	if r.Mode != ciliumnode.CRD.String() {
		looked += ", in " + r.Mode + " mode,"
	}
	fmt.Fprintf(&b, "%s, %s. Looked %s at %s, %s with %s, %s, %s, %s and %s.\n",
		suggest.Count(r.Errors, "error"), suggest.Count(r.Warnings, "warning"), looked, suggest.Count(l.Nodes, "Node"),
		suggest.Count(l.CiliumNodes, "CiliumNode"), suggest.Plural(l.Addresses, "address", "addresses"), suggest.Count(l.Pods, "pod"),
		suggest.Count(l.Pools, "PodIPPool"), suggest.Count(l.Blocks, "PodIPBlock"), suggest.Count(l.Agents, "agent"))
	for _, source := range l.Unread {
		fmt.Fprintf(&b, "%s may not be read: how Cilium is configured was not checked.\n", source)
	}
	for _, kind := range l.UnreadRoutes {
		fmt.Fprintf(&b, "%s may not be read: how frr-k8s announces blocks was not checked.\n", kind)
	}
	if l.Undated > 0 {
		fmt.Fprintf(&b, "%s since when. To find those that make no progress, look for longer: --watch-for 6m.\n",
			suggest.Plural(l.Undated, "CiliumNode with a drain or a release entry does not say", "CiliumNodes with a drain or a release entry do not say"))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// line formats a finding as one line.
func (t *ReportedFinding) line() string {
	var subjects []string
	for _, s := range t.Subjects {
		if s.Note != "" {
			s.Address += " (" + s.Note + ")"
		}
		subjects = append(subjects, s.Address)
	}
	object := ""
	if len(subjects) > 0 {
		object = suggest.Few(subjects) + ": "
	}
	return fmt.Sprintf("%s  %s  %s%s", t.Reason, t.Object, object, t.Message)
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}
