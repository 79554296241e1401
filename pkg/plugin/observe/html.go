package observe

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterview"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/addressmap"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/list"
	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
)

const (
	// mostFull and mostEmpty are the numbers of the fullest and the emptiest nodes that a sheet names.
	mostFull  = 8
	mostEmpty = 4
)

// sheet is the page as HTML.
type sheet struct {
	*report
	Cluster, Version, Time string
	Assigned               string
	Families               []familySheet
	Rows                   []poolSheet
	// If says more than the meters about what-if: without it, it has no lines. Way is the end of the page.
	If, Way section
	Still   *addressmap.Still
}

// familySheet is about the addresses of a family.
type familySheet struct {
	Name    string
	Figures []figure
	Levels  []level
	Full    []nodeSheet
	Empty   []nodeSheet
	// Between counts the nodes that neither list names.
	Between string
	// NearlyFull counts nodes with less than a tenth of their addresses free; "": there is none.
	NearlyFull string
	// Now and Then compare addresses that nodes hold: both nil without what-if.
	Now, Then *meter
}

// figure is a number that the page begins with.
type figure struct{ Number, Words, Note string }

// meter is a bar of parts.
type meter struct {
	Words string
	Parts []part
}

// part has a class of colour, and a width in percent.
type part struct{ Class, Width string }

// level counts the nodes of a fullness.
type level struct {
	Words, Number string
	Meter         meter

	count int
}

type nodeSheet struct {
	Node, InUse string
	Meter       meter
}

type poolSheet struct {
	list.PoolRow
	Ranges                  string
	NodeNumber, Held, InUse string
	Meter                   meter
}

//go:embed report.html
var page string

// WriteHTML writes the report about a named cluster as one file, with its map. version is the plugin's.
func WriteHTML(w io.Writer, c *clusterview.Cluster, pools []v1alpha1.PodIPPool, name, version string) error {
	r, err := reportOf(c, pools)
	if err != nil {
		return err
	}
	still, err := addressmap.StillOf(c, name)
	if err != nil {
		return err
	}
	t, err := template.New("report").Parse(page)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := t.Execute(&out, r.sheet(still, name, version)); err != nil {
		return err
	}
	_, err = w.Write(out.Bytes())
	return err
}

func (r *report) sheet(still *addressmap.Still, name, version string) sheet {
	s := sheet{
		report: r, Cluster: name, Version: version, Time: r.Time.UTC().Format("2 January 2006, 15:04 UTC"), Assigned: r.assigner(), Still: still,
		Way: r.way(),
	}
	r.each(func(f ipalloc.Family) { s.Families = append(s.Families, r.familySheet(f)) })
	for _, p := range r.Pools {
		s.Rows = append(s.Rows, r.poolSheet(p))
	}
	if r.WhatIf != nil {
		s.If.Title = r.thenTitle()
		r.WhatIf.describe(&s.If)
	}
	return s
}

func (r *report) familySheet(f ipalloc.Family) familySheet {
	held := r.Held.of(f)
	used := r.Used.of(f)
	s := familySheet{Name: familyWords(f.String()), Figures: []figure{
		{digits(held), "addresses held", "by " + nodeCount(r.Nodes)},
		{digits(used), "in use", cli.Percent(used, held) + " of the held ones"},
		{digits(held - used), "idle", "held, and not in use"},
		r.outcome(f),
	}}
	nodes := slices.DeleteFunc(slices.Clone(r.use), func(n nodeUse) bool { return n.Family != f.String() })
	slices.SortStableFunc(nodes, func(a, b nodeUse) int {
		return cmp.Compare(float64(b.Used)/float64(b.Held), float64(a.Used)/float64(a.Held))
	})
	s.Levels = levels(nodes)
	if n := len(slices.DeleteFunc(slices.Clone(nodes), func(n nodeUse) bool { return !n.isNearlyFull() })); n > 0 {
		s.NearlyFull = nodeCount(n) + " with less than a tenth of their addresses free"
	}
	if len(nodes) <= mostFull+mostEmpty {
		s.Full = nodeSheets(nodes)
	} else {
		s.Full = nodeSheets(nodes[:mostFull])
		s.Empty = nodeSheets(nodes[len(nodes)-mostEmpty:])
		s.Between = nodeCount(len(nodes) - mostFull - mostEmpty)
	}
	if r.WhatIf != nil && r.WhatIf.Replaced.of(f) > 0 {
		s.Now, s.Then = r.WhatIf.meters(f)
	}
	return s
}

// outcome is the figure about this operator.
func (r *report) outcome(f ipalloc.Family) figure {
	if r.WhatIf == nil {
		free := 0
		for _, p := range r.Pools {
			if p.Family == f.String() {
				free += int(p.Free)
			}
		}
		return figure{digits(free), "free blocks", "in the pools of cilium-pool-operator"}
	}
	with := "with cilium-pool-operator"
	if r.Served {
		with = "with these pools"
	}
	now := r.WhatIf.Replaced.of(f)
	then := r.WhatIf.Held.of(f)
	if now == 0 {
		return figure{"–", "not served", with}
	}
	if then > now {
		return figure{digits(then - now), "more than now", with}
	}
	return figure{digits(now - then), "would come free", cli.Percent(now-then, now) + " of the held ones, " + with}
}

// meters compare the addresses that nodes hold now and would hold.
func (w *whatIf) meters(f ipalloc.Family) (now, then *meter) {
	held := w.Replaced.of(f)
	would := w.Held.of(f)
	used := w.used.of(f)
	most := max(held, would)
	now = &meter{Words: digits(held) + " held, " + digits(used) + " in use"}
	now.add("used", used, most)
	now.add("idle", held-used, most)
	then = &meter{Words: digits(would) + " held, " + digits(used) + " in use"}
	then.add("used", used, most)
	then.add("idle", would-used, most)
	if would < held {
		then.Words += ", " + digits(held-would) + " free"
		then.add("freed", held-would, most)
	}
	return now, then
}

func (m *meter) add(class string, n, whole int) {
	if n > 0 && whole > 0 {
		m.Parts = append(m.Parts, part{class, width(100 * float64(n) / float64(whole))})
	}
}

func width(percent float64) string { return fmt.Sprintf("%.3f", percent) }

// levels counts nodes by the steps of the map's colours.
func levels(nodes []nodeUse) []level {
	out := []level{{Words: "idle"}, {Words: "to 25%"}, {Words: "to 50%"}, {Words: "to 75%"}, {Words: "below 100%"}, {Words: "full"}}
	for _, n := range nodes {
		out[n.level()].count++
	}
	most := slices.MaxFunc(out, func(a, b level) int { return cmp.Compare(a.count, b.count) }).count
	for i := range out {
		l := &out[i]
		l.Number = digits(l.count)
		l.Meter.Words = suggest.Count(l.count, "node")
		l.Meter.add(fmt.Sprintf("ramp%d", i), l.count, most)
	}
	slices.Reverse(out)
	return out
}

// level is the place of a node on the ramp of the map (words.js).
func (u nodeUse) level() int {
	if u.Used <= 0 {
		return 0
	}
	if u.Used >= u.Held {
		return 5
	}
	return 1 + (4*u.Used-1)/u.Held
}

func nodeSheets(nodes []nodeUse) []nodeSheet {
	var out []nodeSheet
	for _, n := range nodes {
		s := nodeSheet{Node: n.Node, InUse: digits(n.Used) + " of " + digits(n.Held), Meter: meter{Words: cli.Percent(n.Used, n.Held)}}
		s.Meter.add(fmt.Sprintf("ramp%d", n.level()), n.Used, n.Held)
		out = append(out, s)
	}
	return out
}

func (r *report) poolSheet(p list.PoolRow) poolSheet {
	held := p.Blocks.Held()
	s := poolSheet{
		PoolRow: p, Ranges: suggest.Few(p.CIDRs), NodeNumber: digits(p.Nodes),
		Held:  digits(held) + " of " + digits(int(p.Assignable)),
		InUse: digits(p.Used) + " of " + digits(p.Addresses),
	}
	s.Family = familyWords(p.Family)
	share := 100.0
	if isRestUnknown(p) {
		s.Held = digits(held)
	} else if p.Assignable > 0 {
		share = min(100, 100*float64(held)/float64(p.Assignable))
	}
	if p.Addresses == 0 || held == 0 {
		s.Meter.Words = "nothing held"
		return s
	}
	used := share * float64(p.Used) / float64(p.Addresses)
	s.Meter.Words = fmt.Sprintf("%.0f%% in use, %.0f%% idle, %.0f%% free", used, share-used, 100-share)
	s.Meter.Parts = []part{{"used", width(used)}, {"idle", width(share - used)}}
	return s
}

func familyWords(name string) string { return strings.Replace(name, "ipv", "IPv", 1) }

func nodeCount(n int) string {
	if n == 1 {
		return "1 node"
	}
	return digits(n) + " nodes"
}

// digits writes a number with commas, or a very large one as a power of two.
func digits(n int) string {
	if n >= 1<<40 {
		return cli.Many(uint64(n))
	}
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
