package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/sim/changes/schema"
	"github.com/cilium-pool/cilium-pool-operator/test/sim/world"
)

// A PodIPBlock cannot be changed. So a changed one is created by hand, which pins it to its
// node, and deleted again.

// block returns the object with a spec, named after its CIDR. It fails if the spec has values
// of another type.
func block(s spec) (*v1alpha1.PodIPBlock, error) {
	raw, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	out := &v1alpha1.PodIPBlock{ObjectMeta: metav1.ObjectMeta{Name: "no-cidr"}}
	if err := json.Unmarshal(raw, &out.Spec); err != nil {
		return nil, err
	}
	if cidr, err := netip.ParsePrefix(out.Spec.CIDR); err == nil {
		out.Name = crd.BlockName(cidr)
	}
	return out, nil
}

// object returns a block as the API server receives it.
func object(s spec, name string) spec {
	return spec{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "PodIPBlock",
		"metadata": spec{"name": name}, "spec": runtime.DeepCopyJSON(s),
	}
}

// tryBlock creates a block with a change, in a state, and deletes it again.
func (s *state) tryBlock(pools, blocks *schema.Schema, c schema.Change, number int, still course) result {
	var r result
	changed := c.Apply(schema.BlockExample())
	obj, err := block(changed)
	name := "no-cidr"
	if err == nil {
		name = obj.Name
	}
	t := trial{state: s, Change: c, number: number}
	by := path{name: pinnedPath}
	if errs := blocks.Refusal(context.Background(), object(changed, name), nil); len(errs) > 0 {
		if r.refused = true; c.Wrong && !c.Named(errs) {
			r.note(t, by, "it is refused, and no message names the field: %v", errs)
		}
		return r
	}
	if err != nil {
		r.note(t, by, "it is accepted, and cannot be read: %v", err)
		return r
	}
	created := schema.BlockExample()
	if example, err := block(created); err == nil && c.To != "" {
		old := object(created, example.Name)
		now := object(changed, example.Name)
		if fmt.Sprint(now) != fmt.Sprint(old) && len(blocks.Refusal(context.Background(), now, old)) == 0 {
			r.note(t, by, "a block that is there can be changed to it")
		}
	}
	r.runs++
	out := s.pinned(pools, c, nil)
	for _, text := range out.findings {
		r.note(t, by, "%s", text)
	}
	if len(out.findings) == 0 {
		t.compare(&r, path{name: by.name, back: 2}, out, still)
	}
	return r
}

// pinnedPath is the path of a block.
const pinnedPath = "pinned"

// pinned plays the run of a block with a change that can be parsed.
func (s *state) pinned(pools *schema.Schema, c schema.Change, trace func(string)) course {
	obj, err := block(c.Apply(schema.BlockExample()))
	if err != nil {
		return course{findings: []string{err.Error()}}
	}
	return s.play(pools, s.first, []stop{{spec: s.from(), pins: obj}, {spec: s.from()}}, trace)
}

// pin creates a block by hand, and unpin deletes it.
func (p *player) pin(b *v1alpha1.PodIPBlock) bool {
	if p.w.API().Get(world.KindBlock, b.Name) != nil {
		return true // a node has it
	}
	_, err := p.w.API().Create(b)
	if err != nil {
		p.findings = append(p.findings, err.Error())
	}
	return err == nil
}

func (p *player) unpin(b *v1alpha1.PodIPBlock) bool {
	if p.w.API().Get(world.KindBlock, b.Name) == nil {
		return true // the operator has taken it back
	}
	if err := p.w.API().Delete(world.KindBlock, b.Name, nil, nil); err != nil {
		p.findings = append(p.findings, err.Error())
		return false
	}
	return true
}

// judgePinned checks that a block that overlaps another has a condition that says so.
func (p *player) judgePinned(b *v1alpha1.PodIPBlock) {
	now, ok := p.w.API().Get(world.KindBlock, b.Name).(*v1alpha1.PodIPBlock)
	if !ok {
		return
	}
	cidr := netip.MustParsePrefix(now.Spec.CIDR)
	for _, name := range p.w.API().Keys(world.KindBlock) {
		other := p.w.API().Get(world.KindBlock, name).(*v1alpha1.PodIPBlock)
		if name == b.Name || !netip.MustParsePrefix(other.Spec.CIDR).Overlaps(cidr) {
			continue
		}
		if !meta.IsStatusConditionTrue(now.Status.Conditions, v1alpha1.BlockConflict) && now.DeletionTimestamp == nil && now.Status.Phase == v1alpha1.PhaseInService {
			p.findings = append(p.findings, fmt.Sprintf("block %s overlaps %s, and no condition says so", b.Name, name))
		}
	}
}
