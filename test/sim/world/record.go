package world

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
)

// stored records a version of an object, and holds it to the rules.
func (w *World) stored(v Version) {
	if w.cfg.Record != nil {
		w.cfg.Record("object", recorded(v))
	}
	w.rules.stored(v)
}

// recorded is a version of an object as a record has it.
func recorded(v Version) string {
	if v.New == nil {
		return fmt.Sprintf("%s %s deleted", v.Kind, v.Key)
	}
	text, err := json.Marshal(v.New)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf("%s %s %s", v.Kind, v.Key, text)
}

// recorder records events, if there is a record.
type recorder struct{ record func(of, line string) }

// Eventf implements events.EventRecorder.
func (r recorder) Eventf(about, _ runtime.Object, kind, reason, action, note string, args ...any) {
	if r.record != nil {
		r.record("event", fmt.Sprintf("%T %s %s %s ", about, kind, reason, action)+fmt.Sprintf(note, args...))
	}
}

// recordMetrics records the metrics of a process that ends.
func (o *Operator) recordMetrics() {
	if o.w.cfg.Record == nil || o.registry == nil {
		return
	}
	families, err := o.registry.Gather()
	if err != nil {
		panic(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			line := family.GetName()
			for _, label := range m.GetLabel() {
				line += fmt.Sprintf(" %s=%s", label.GetName(), label.GetValue())
			}
			o.w.cfg.Record("metric", fmt.Sprint(line, " ", m.GetGauge().GetValue(), m.GetCounter().GetValue(), m.GetHistogram().GetSampleCount()))
		}
	}
}
