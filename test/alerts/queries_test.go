package alerts

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
)

// metric is the entry of a metric in docs/reference/metrics.md; other tests compare that page with
// the code, and with the metrics that a running operator exports.
type metric struct {
	labels []string
	own    bool // one of ours, with labels that the page lists
}

// nameLabel is the label of a selector that has the name of its metric.
const nameLabel = "__name__"

// bucketLabel is the label of the buckets of a histogram.
const bucketLabel = "le"

// clusterLabel is the label that a Prometheus of several clusters has on each series.
const clusterLabel = "cluster"

var quoted = regexp.MustCompile("`([^`]+)`")

func documented(t *testing.T) map[string]metric {
	t.Helper()
	found := map[string]metric{}
	for line := range strings.Lines(read(t, "docs/reference/metrics.md")) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || !strings.Contains(cells[1], "`") {
			continue
		}
		name := quoted.FindStringSubmatch(cells[1])[1]
		m := metric{own: strings.HasPrefix(name, "cilium_pool_")}
		if m.own {
			for _, l := range quoted.FindAllStringSubmatch(cells[3], -1) {
				m.labels = append(m.labels, l[1])
			}
		}
		found[name] = m
	}
	return found
}

// check reports the parts of a query that no component exports: metrics, labels, and values of the
// labels that have only a few.
func check(t *testing.T, where, query string, known map[string]metric, page string) {
	t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(query)
	if err != nil {
		t.Errorf("%s: %v\n%s", where, err, query)
		return
	}
	for _, matchers := range parser.ExtractSelectors(expr) {
		name := ""
		for _, m := range matchers {
			if m.Name == nameLabel {
				name = m.Value
			}
		}
		base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
		m, ok := known[name]
		if !ok {
			m, ok = known[base]
		}
		if !ok && name != "up" {
			t.Errorf("%s: nothing exports %q", where, name)
			continue
		}
		for _, l := range matchers {
			if !m.own || l.Name == nameLabel || l.Name == clusterLabel || l.Name == bucketLabel {
				continue
			}
			if !slices.Contains(m.labels, l.Name) {
				t.Errorf("%s: %s has no label %s", where, name, l.Name)
			}
			if slices.Contains([]string{"state", "decision", "step", "kind", "write", "result"}, l.Name) {
				for _, value := range strings.Split(l.Value, "|") {
					if !strings.Contains(page, "`"+value+"`") {
						t.Errorf("%s: docs/reference/metrics.md knows no %s %q", where, l.Name, value)
					}
				}
			}
		}
	}
}

func TestAlertsQueryWhatIsExported(t *testing.T) {
	known, page := documented(t), read(t, "docs/reference/metrics.md")
	for _, r := range alerts(t).Groups[0].Rules {
		check(t, r.Alert, r.Expr, known, page)
	}
}

func TestPagesQueryWhatIsExported(t *testing.T) {
	known, page := documented(t), read(t, "docs/reference/metrics.md")
	queries := regexp.MustCompile("(?s)```promql\n(.*?)```").FindAllStringSubmatch(page, -1)
	if len(queries) == 0 {
		t.Fatal("docs/reference/metrics.md has no queries")
	}
	for _, q := range queries {
		check(t, "docs/reference/metrics.md", q[1], known, page)
	}
}

type panel struct {
	ID      int
	Type    string
	Title   string
	GridPos struct{ X, Y, W, H int }
	Targets []struct {
		RefID      string
		Expr       string
		Datasource struct{ UID string }
	}
}

type dashboard struct {
	UID        string
	Title      string
	Panels     []panel
	Templating struct {
		List []struct {
			Name  string
			Type  string
			Query json.RawMessage
		}
	}
}

// variables replaces Grafana's own variables in a query.
var variables = strings.NewReplacer("$__rate_interval", "5m", "$__range", "1h")

func TestDashboard(t *testing.T) {
	var d dashboard
	if err := json.Unmarshal([]byte(read(t, "charts/cilium-pool-operator/files/dashboard.json")), &d); err != nil {
		t.Fatal(err)
	}
	known, page := documented(t), read(t, "docs/reference/metrics.md")
	declared := map[string]bool{}
	for _, v := range d.Templating.List {
		declared[v.Name] = true
		if v.Type == "query" {
			var q struct{ Query string }
			if err := json.Unmarshal(v.Query, &q); err != nil {
				t.Fatal(err)
			}
			m := regexp.MustCompile(`^label_values\((\w+)(?:\{cluster=~"\$cluster"\})?, (\w+)\)$`).FindStringSubmatch(q.Query)
			if m == nil {
				t.Fatalf("variable %s: %s", v.Name, q.Query)
			}
			if known, ok := known[m[1]]; !ok || m[2] != "job" && m[2] != clusterLabel && !slices.Contains(known.labels, m[2]) {
				t.Errorf("variable %s uses a metric or label that is not exported: %s", v.Name, q.Query)
			}
		}
	}
	if len(d.Panels) == 0 || d.UID == "" || d.Title == "" {
		t.Fatal("no panels, or no name")
	}
	queries := 0
	for _, p := range d.Panels {
		where := fmt.Sprintf("panel %q", p.Title)
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("%s asks for nothing", where)
		}
		for _, target := range p.Targets {
			queries++
			query := variables.Replace(target.Expr)
			for _, v := range regexp.MustCompile(`\$(\w+)`).FindAllStringSubmatch(query, -1) {
				if !declared[v[1]] {
					t.Errorf("%s: no variable $%s", where, v[1])
				}
			}
			if target.Datasource.UID != "${datasource}" || !declared["datasource"] {
				t.Errorf("%s names a fixed data source: %q", where, target.Datasource.UID)
			}
			check(t, where, query, known, page)
			if selectors := strings.Count(query, "{"); selectors == 0 || selectors != strings.Count(query, `{cluster=~"$cluster"`) {
				t.Errorf("%s mixes clusters: %s", where, query)
			}
		}
	}
	t.Logf("%d panels, %d queries", len(d.Panels), queries)
	layout(t, d.Panels)
}

// layout checks that panels have unique IDs, and lie on the grid without overlap.
func layout(t *testing.T, panels []panel) {
	t.Helper()
	ids := map[int]string{}
	for i, p := range panels {
		if other, taken := ids[p.ID]; taken {
			t.Errorf("panels %q and %q have the id %d", other, p.Title, p.ID)
		}
		ids[p.ID] = p.Title
		if g := p.GridPos; g.X < 0 || g.W < 1 || g.H < 1 || g.X+g.W > 24 {
			t.Errorf("panel %q lies off the grid: %+v", p.Title, g)
		}
		for _, q := range panels[:i] {
			a, b := p.GridPos, q.GridPos
			if a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
				t.Errorf("panels %q and %q overlap", p.Title, q.Title)
			}
		}
	}
}
