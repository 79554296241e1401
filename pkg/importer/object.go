package importer

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
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
	switch {
	case o.Kind == "" && o.In != "":
		return "values " + o.In
	case o.Kind == "":
		return "values"
	case o.Name == "":
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
	o.APIVersion, o.Kind = text(content["apiVersion"]), text(content["kind"])
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
				o.Kind, o.APIVersion = kind, text(content["apiVersion"])
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
	r.remark(true, o, field, "cannot be read: "+err.Error(), "Fix it and import it again")
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
