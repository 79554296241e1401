// Package importer turns other sources of pod addresses (Calico's IPPools, Cilium's pools and
// settings, Kubernetes' node CIDRs) into PodIPPools. For each setting that it could not carry over,
// it names the object, the field, the reason and the remedy.
//
// It is pure: bytes or objects in, pools and remarks out. It neither reads nor changes a cluster.
package importer

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// Object is a source of an import: a Kubernetes object, or the values of a Helm chart, which
// have no kind.
type Object struct {
	APIVersion, Kind, Name string
	// Source is the file it comes from, or "the cluster".
	Source string
	// In says where in another object the values are; empty: they are none, or a file.
	In string
	// Elsewhere are its fields that name other sources of values.
	Elsewhere []string

	content map[string]any
}

func (o Object) String() string {
	if o.Kind == "" && o.In != "" {
		return "values " + o.In
	}
	if o.Kind == "" {
		return "values"
	}
	if o.Name == "" {
		return o.Kind
	}
	return o.Kind + " " + o.Name
}

// group returns the API group, without the version.
func (o Object) group() string {
	group, _, ok := strings.Cut(o.APIVersion, "/")
	if !ok {
		return ""
	}
	return group
}

// Read reads YAML or JSON with one or several objects. Lists are expanded, and values of Helm
// charts inside other objects follow these.
func Read(source string, data []byte) ([]Object, error) {
	var objects []Object
	for documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data))); ; {
		doc, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", source, err)
		}
		content, err := readYAML(doc)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", source, err)
		}
		if len(content) == 0 {
			continue
		}
		for _, o := range FromContent(source, content) {
			unwrapped, err := unwrap(o)
			if err != nil {
				return nil, err
			}
			objects = append(objects, unwrapped...)
		}
	}
}

func readYAML(doc []byte) (content map[string]any, err error) {
	body, err := yaml.YAMLToJSON(doc)
	if err == nil {
		err = json.Unmarshal(body, &content) // integers stay integers
	}
	return content, err
}

// FromContent returns the object with this content, as decoded from JSON, or the objects of a
// list.
func FromContent(source string, content map[string]any) []Object {
	o := Object{Source: source, content: content}
	o.APIVersion = text(content["apiVersion"])
	o.Kind = text(content["kind"])
	o.Name = text(fields(content, "metadata")["name"])
	items, ok := content["items"].([]any)
	kind, isList := strings.CutSuffix(o.Kind, "List")
	if !ok || !isList {
		return []Object{o}
	}
	var objects []Object
	for _, item := range items {
		one, ok := item.(map[string]any)
		if !ok {
			continue
		}
		for _, o := range FromContent(source, one) {
			if o.Kind == "" {
				o.Kind = kind
				o.APIVersion = text(content["apiVersion"])
			}
			objects = append(objects, o)
		}
	}
	return objects
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

// fields follows keys down; nil: a key is missing.
func fields(content map[string]any, keys ...string) map[string]any {
	for _, k := range keys {
		content, _ = content[k].(map[string]any)
	}
	return content
}

// read decodes content, which is at field of o, as decode does. It remarks if it cannot.
func (r *Result) read(o Object, field string, content map[string]any, into any) (unknown []string, ok bool) {
	unknown, err := decode(content, into)
	if err != nil {
		r.unreadable(o, field, err)
	}
	return unknown, err == nil
}

func (r *Result) unreadable(o Object, field string, err error) {
	r.lost(o, field, "cannot be read: "+err.Error(), "Fix it and import it again")
}

// decode decodes content into a struct. It returns fields that the struct lacks; a value of the
// wrong type is an error.
func decode(content map[string]any, into any) (unknown []string, err error) {
	err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(content, into, true)
	strict, ok := runtime.AsStrictDecodingError(err)
	if !ok {
		return nil, err
	}
	for _, e := range strict.Errors() {
		name, ok := strings.CutPrefix(e.Error(), `unknown field "`)
		if !ok {
			return nil, e
		}
		unknown = append(unknown, strings.TrimSuffix(name, `"`))
	}
	return unknown, nil
}

// unwrap returns o and, if it is an object of a Helm or GitOps controller, the values of charts in
// it; for values it returns the values of subcharts. Values have no kind.
func unwrap(o Object) ([]Object, error) {
	var objects []Object
	add := func(parent map[string]any, path, key string) error {
		content, err := valuesOf(parent[key])
		field := path + "." + key
		if err != nil {
			return fmt.Errorf("reading %s: %s of %s: %w", o.Source, field, o, err)
		}
		if len(content) == 0 {
			return nil
		}
		values, err := unwrap(Object{Source: o.Source, In: "in " + field + " of " + o.String(), content: content})
		objects = append(objects, values...)
		return err
	}
	for _, place := range placesOf(o) {
		for _, key := range []string{"valuesContent", "values", "valuesObject"} {
			if err := add(place.content, place.path, key); err != nil {
				return nil, err
			}
		}
		for _, key := range []string{"valuesFrom", "valuesSecrets", "valueFiles", "parameters", "set"} {
			if place.content[key] != nil {
				o.Elsewhere = append(o.Elsewhere, place.path+"."+key)
			}
		}
	}
	if o.Kind == "" {
		objects = append(objects, nestedValues(o)...)
	}
	return append([]Object{o}, objects...), nil
}

// place is where an object has values of a chart.
type place struct {
	path    string
	content map[string]any
}

func placesOf(o Object) []place {
	switch o.group() + " " + o.Kind {
	case "helm.cattle.io HelmChartConfig", "helm.cattle.io HelmChart", "helm.toolkit.fluxcd.io HelmRelease":
		return []place{{"spec", fields(o.content, "spec")}}
	case "argoproj.io Application":
		return sourcesOf("spec", fields(o.content, "spec"))
	case "argoproj.io ApplicationSet":
		return sourcesOf("spec.template.spec", fields(o.content, "spec", "template", "spec"))
	}
	return nil
}

// sourcesOf returns the places of the sources of an Argo CD Application.
func sourcesOf(path string, spec map[string]any) []place {
	places := []place{{path + ".source.helm", fields(spec, "source", "helm")}}
	sources, _ := spec["sources"].([]any)
	for i, s := range sources {
		source, _ := s.(map[string]any)
		places = append(places, place{fmt.Sprintf("%s.sources[%d].helm", path, i), fields(source, "helm")})
	}
	return places
}

// valuesOf returns values that are written as an object or as YAML in a text.
func valuesOf(v any) (content map[string]any, err error) {
	switch v := v.(type) {
	case map[string]any:
		return v, nil
	case string:
		return readYAML([]byte(v))
	}
	return nil, nil
}

// nestedValues returns the values of charts of Cilium and of Calico's operator in values of a chart
// that depends on them, and the Installation in values of Calico's operator.
func nestedValues(o Object) []Object {
	var objects []Object
	if spec := fields(o.content, "installation"); spec != nil {
		objects = append(objects, Object{
			APIVersion: "operator.tigera.io/v1", Kind: "Installation", Name: "default", Source: o.Source, In: o.In, content: map[string]any{"spec": spec},
		})
	}
	for _, key := range slices.Sorted(maps.Keys(o.content)) {
		sub := fields(o.content, key)
		if fields(sub, "ipam") == nil && fields(sub, "installation") == nil {
			continue
		}
		source := "in " + key
		if o.In != "" {
			source += " " + o.In
		}
		one := Object{Source: o.Source, In: source, content: sub}
		objects = append(append(objects, one), nestedValues(one)...)
	}
	return objects
}

// DescribeUnconverted describes objects that no pool could be made of, and the place of their values instead.
func DescribeUnconverted(objects []Object) string {
	const most = 5
	var parts []string
	for _, o := range objects[:min(len(objects), most)] {
		part := o.String()
		if len(o.Elsewhere) > 0 {
			part += ", which has values in " + strings.Join(o.Elsewhere, ", ") + ": pass these as a file"
		}
		parts = append(parts, part)
	}
	if rest := len(objects) - most; rest > 0 {
		parts = append(parts, fmt.Sprintf("%d more", rest))
	}
	return strings.Join(parts, "; ")
}
