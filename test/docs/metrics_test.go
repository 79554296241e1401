package docs

import (
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/cilium-pool/cilium-pool-operator/pkg/controller"
)

// metric is what docs/metrics.md says about one.
type metric struct{ Type, Labels string }

// registered collects what is registered with it.
type registered struct {
	t       *testing.T
	metrics map[string]metric
}

var descOf = regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: \{([^}]*)\}`)

func (r registered) Register(c prometheus.Collector) error {
	kind := "gauge"
	if _, ok := c.(*prometheus.CounterVec); ok {
		kind = "counter"
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
	if _, err := controller.New(controller.Connections{Clock: clock.RealClock{}}, controller.Settings{Registry: code}); err != nil {
		t.Fatal(err)
	}
	page := read(t, "docs/metrics.md")
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
		t.Errorf("metrics (-code +docs/metrics.md):\n%s", diff)
	}
	// Queries, on any page, ask for metrics that exist.
	for _, path := range files(t, isMarkdown) {
		for _, name := range regexp.MustCompile(`\bcilium_pool_[a-z_]+`).FindAllString(read(t, path), -1) {
			if _, ok := code.metrics[name]; !ok {
				t.Errorf("%s: there is no metric %s", path, name)
			}
		}
	}
}
