package docs

import (
	"go/ast"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller"
)

// metric is the entry of a metric in docs/reference/metrics.md.
type metric struct{ Type, Labels string }

// registered collects the metrics registered with it.
type registered struct {
	t       *testing.T
	metrics map[string]metric
}

var partOfHistogram = regexp.MustCompile(`_(bucket|sum|count)$`)

var descOf = regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: \{([^}]*)\}`)

func (r registered) Register(c prometheus.Collector) error {
	kind := "gauge"
	switch c.(type) {
	case *prometheus.CounterVec:
		kind = "counter"
	case *prometheus.HistogramVec:
		kind = "histogram"
	}
	descs := make(chan *prometheus.Desc, 10)
	c.Describe(descs)
	close(descs)
	for d := range descs {
		m := descOf.FindStringSubmatch(d.String())
		if m == nil {
			r.t.Fatalf("cannot read %s", d)
		}
		r.metrics[m[1]] = metric{kind, m[2]}
	}
	return nil
}

func (r registered) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		_ = r.Register(c)
	}
}

func (r registered) Unregister(prometheus.Collector) bool { return false }

func TestMetricsPage(t *testing.T) {
	code := registered{t, map[string]metric{}}
	if _, err := controller.New(controller.Environment{Clock: clock.RealClock{}}, config.Settings{Registry: code}); err != nil {
		t.Fatal(err)
	}
	page := read(t, "docs/reference/metrics.md")
	documented := map[string]metric{}
	quoted := regexp.MustCompile("`([^`]+)`")
	for _, row := range table(page, "The operator's own") {
		labels := ""
		for _, m := range quoted.FindAllStringSubmatch(row[2], -1) {
			if labels != "" {
				labels += ","
			}
			labels += m[1]
		}
		documented[quoted.FindStringSubmatch(row[0])[1]] = metric{row[1], labels}
	}
	if diff := cmp.Diff(code.metrics, documented); diff != "" {
		t.Errorf("metrics (-code +docs/reference/metrics.md):\n%s", diff)
	}
	// Queries on all pages use existing metrics.
	matches(t, files(t, isMarkdown), whole, `\bcilium_pool_[a-z_]+`, 20, func(path string, m []string) {
		if _, ok := code.metrics[partOfHistogram.ReplaceAllString(m[0], "")]; !ok {
			t.Errorf("%s: there is no metric %s", path, m[0])
		}
	})
}

// Each write is counted under a kind and a name from the table of writes.
func TestWritesOnMetricsPage(t *testing.T) {
	var documented []string
	for _, row := range table(read(t, "docs/reference/metrics.md"), "Writes") {
		for _, m := range codeSpan.FindAllStringSubmatch(row[1], -1) {
			documented = append(documented, code(row[0])+" "+m[1])
		}
	}
	sameSet(t, "docs/reference/metrics.md, writes", documented, unique(countedWrites(t)))
}

// countedWrites returns the kinds and names under which writes are counted. If a name is not a
// literal, it is a parameter, and the name is the literal that callers of that method pass.
func countedWrites(t *testing.T) []string {
	t.Helper()
	var found []string
	kindOf := map[string]string{} // by folder and method that takes the name
	all := calls(t, "pkg/controller/")
	for _, c := range all {
		if name(c.call.Fun) != "CountWrite" {
			continue
		}
		kind, write := firstText(c.call.Args[:1]), firstText(c.call.Args[2:3])
		switch {
		case kind == "":
			t.Errorf("%s: %s counts a write of a kind that is no literal", c.folder, c.method)
		case write == "":
			kindOf[c.folder+" "+c.method] = kind
		default:
			found = append(found, kind+" "+write)
		}
	}
	for _, c := range all {
		kind := kindOf[c.folder+" "+name(c.call.Fun)]
		if kind == "" {
			continue
		}
		write := firstText(c.call.Args)
		if write == "" {
			t.Errorf("%s: %s counts a write under a name that is no literal", c.folder, c.method)
		}
		found = append(found, kind+" "+write)
	}
	return found
}

// calling is a call, and the function that makes it.
type calling struct {
	folder, method string
	call           *ast.CallExpr
}

// calls returns the calls made by the functions below a folder.
func calls(t *testing.T, folder string) []calling {
	t.Helper()
	var found []calling
	inFunctions(sources(t, folder), func(file, function string, n ast.Node) {
		if call, ok := n.(*ast.CallExpr); ok {
			found = append(found, calling{path.Dir(file), function, call})
		}
	})
	return found
}

// firstText returns the first string literal, or "" if there is none.
func firstText(args []ast.Expr) string {
	for _, e := range args {
		if s, ok := text(e); ok {
			return s
		}
	}
	return ""
}

// What drains wait for is a label, whose values the page lists.
func TestDrainWaitsOnMetricsPage(t *testing.T) {
	var documented []string
	for _, row := range table(read(t, "docs/reference/metrics.md"), "The operator's own") {
		if code(row[0]) != "cilium_pool_drain_wait_blocks" {
			continue
		}
		_, list, _ := strings.Cut(row[4], "`reason` is")
		list, _, _ = strings.Cut(list, ". ")
		for _, m := range codeSpan.FindAllStringSubmatch(list, -1) {
			documented = append(documented, m[1])
		}
	}
	sameSet(t, "docs/reference/metrics.md, reasons of cilium_pool_drain_wait_blocks", documented, constants(t, "pkg/expand", "WaitReason"))
}
