package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/sim/changes/schema"
	"github.com/cilium-pool/cilium-pool-operator/test/sim/world"
)

// stop is a spec along the way of a run.
type stop struct {
	spec spec
	// steps is how many actions may happen before the next spec; 0: all until everything
	// is at rest.
	steps int
	// forced: the spec is stored even if the schema rejects it, like an object older than a
	// rule.
	forced bool
	// pins is a block that is created by hand at the same time, and deleted at the next stop.
	pins *v1alpha1.PodIPBlock
}

// course is the result of a run.
type course struct {
	// reached are the views of the state before the first stop, and at each stop that ended at
	// rest.
	reached []view
	// end is the view once all pods are gone, if the run got that far.
	end *view
	// refused: a stop was rejected, and the run ended there.
	refused  field.ErrorList
	findings []string
}

// player plays one run.
type player struct {
	w      *world.World
	schema *schema.Schema
	pinned *v1alpha1.PodIPBlock
	course
}

// play starts with a spec, reaches the state, visits the stops and brings the world to its end.
func (s *state) play(rules *schema.Schema, first spec, stops []stop, trace func(string)) (out course) {
	p := &player{schema: rules}
	defer func() {
		if thrown := recover(); thrown != nil {
			p.findings = append(p.findings, fmt.Sprintf("panic: %v", thrown))
		}
		if p.w != nil {
			for _, v := range p.w.Violations {
				p.findings = append(p.findings, v.String())
			}
		}
		out = p.course
	}()
	pool, err := pool(first)
	if err != nil {
		p.findings = append(p.findings, err.Error())
		return
	}
	config := s.config(pool)
	config.Trace = trace
	p.w = world.New(config)
	defer p.w.Close()
	if !p.prepare(s) {
		return
	}
	p.look()
	for _, stop := range stops {
		if !p.visit(stop) {
			return
		}
	}
	p.w.Finish()
	end := look(p.w)
	p.end = &end
	return
}

// prepare brings the world into the state.
func (p *player) prepare(s *state) bool {
	if s.unready {
		return true
	}
	ok := p.w.Settle("before pods come")
	p.pods(s.pods)
	ok = ok && p.w.Settle("with pods")
	if s.base != nil {
		ok = ok && p.set(s.base, false) && p.w.Settle("in the state")
	}
	if len(s.late) > 0 {
		p.pods(s.late)
		ok = ok && p.w.Settle("with late pods")
	}
	return ok
}

func (p *player) pods(slots []string) {
	for _, slot := range slots {
		p.w.Do(world.Action{Verb: world.PodNew, Who: "n1", What: slot})
	}
}

func (p *player) look() { p.reached = append(p.reached, look(p.w)) }

// visit sets a spec and lets the world continue.
func (p *player) visit(stop stop) bool {
	if !p.set(stop.spec, stop.forced) || p.pinned != nil && !p.unpin(p.pinned) || stop.pins != nil && !p.pin(stop.pins) {
		return false
	}
	p.pinned = stop.pins
	if stop.steps > 0 {
		p.hurry(stop.steps)
		return true
	}
	if !p.w.Settle("after the change") {
		return false
	}
	if stop.pins != nil {
		p.judgePinned(stop.pins)
	}
	p.look()
	return true
}

// hurry performs some of the actions that need no decision; time passes only if they wait for
// it.
func (p *player) hurry(steps int) {
	for i := range steps {
		var going []world.Action
		for _, a := range p.w.Enabled() {
			if a.Verb.GoesOn() && a.What != "stale" {
				going = append(going, a)
			}
		}
		next := world.Action{Verb: world.Pass, Who: "time", What: time.Second.String()}
		if len(going) > 0 {
			next = going[i%len(going)]
		}
		p.w.Do(next)
	}
}

// set stores a spec unless the schema rejects it.
func (p *player) set(s spec, forced bool) bool {
	stored := p.w.API().Get(world.KindPool, poolName).(*v1alpha1.PodIPPool)
	if !forced {
		if p.refused = refusal(p.schema, s, stored); len(p.refused) > 0 {
			return false
		}
	}
	decoded, err := pool(s)
	if err != nil {
		p.findings = append(p.findings, err.Error())
		return false
	}
	next := stored.DeepCopy()
	next.Spec = decoded.Spec
	if _, err := p.w.API().Update(next, false); err != nil {
		p.findings = append(p.findings, err.Error())
		return false
	}
	return true
}

// refusal returns why the API server rejects a spec, given the stored one, if any.
func refusal(rules *schema.Schema, s spec, stored *v1alpha1.PodIPPool) field.ErrorList {
	now := spec{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "PodIPPool",
		"metadata": spec{"name": poolName}, "spec": runtime.DeepCopyJSON(s),
	}
	if stored == nil {
		return rules.Refusal(context.Background(), now, nil)
	}
	old, err := runtime.DefaultUnstructuredConverter.ToUnstructured(stored)
	if err != nil {
		panic(err)
	}
	if status, ok := old["status"]; ok {
		now["status"] = runtime.DeepCopyJSONValue(status)
	}
	return rules.Refusal(context.Background(), now, old)
}

// pool returns the object with a spec. It fails if the spec has values of another type.
func pool(s spec) (*v1alpha1.PodIPPool, error) {
	raw, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	out := &v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: poolName}}
	return out, json.Unmarshal(raw, &out.Spec)
}
