package importer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// unwrap returns o and, if it is an object of a Helm or GitOps controller, the values of charts in
// it; for values it returns the values of subcharts. Values have no kind.
func unwrap(o Object) ([]Object, error) {
	var all []Object
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
		all = append(all, values...)
		return err
	}
	for _, at := range placesOf(o) {
		for _, key := range []string{"valuesContent", "values", "valuesObject"} {
			if err := add(at.content, at.path, key); err != nil {
				return nil, err
			}
		}
		for _, key := range []string{"valuesFrom", "valuesSecrets", "valueFiles", "parameters", "set"} {
			if at.content[key] != nil {
				o.Elsewhere = append(o.Elsewhere, at.path+"."+key)
			}
		}
	}
	if o.Kind == "" {
		all = append(all, subcharts(o)...)
	}
	return append([]Object{o}, all...), nil
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
	all := []place{{path + ".source.helm", fields(spec, "source", "helm")}}
	sources, _ := spec["sources"].([]any)
	for i, s := range sources {
		source, _ := s.(map[string]any)
		all = append(all, place{fmt.Sprintf("%s.sources[%d].helm", path, i), fields(source, "helm")})
	}
	return all
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

// subcharts returns the values of charts of Cilium and of Calico's operator in values of a chart
// that depends on them, and the Installation in values of Calico's operator.
func subcharts(o Object) []Object {
	var all []Object
	if spec := fields(o.content, "installation"); spec != nil {
		all = append(all, Object{
			APIVersion: "operator.tigera.io/v1", Kind: "Installation", Name: "default", Source: o.Source, In: o.In, content: map[string]any{"spec": spec},
		})
	}
	for _, key := range slices.Sorted(maps.Keys(o.content)) {
		sub := fields(o.content, key)
		if fields(sub, "ipam") == nil && fields(sub, "installation") == nil {
			continue
		}
		in := "in " + key
		if o.In != "" {
			in += " " + o.In
		}
		one := Object{Source: o.Source, In: in, content: sub}
		all = append(append(all, one), subcharts(one)...)
	}
	return all
}

// Found describes objects that no pool could be made of, and the place of their values instead.
func Found(objects []Object) string {
	const most = 5
	var parts []string
	for _, o := range objects[:min(len(objects), most)] {
		part := o.String()
		if len(o.Elsewhere) > 0 {
			part += ", which has values in " + strings.Join(o.Elsewhere, ", ") + ": pass these as a file"
		}
		parts = append(parts, part)
	}
	if more := len(objects) - most; more > 0 {
		parts = append(parts, fmt.Sprintf("%d more", more))
	}
	return strings.Join(parts, "; ")
}
