package ciliumnode

import (
	"encoding"
	stdjson "encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"strconv"
	"strings"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"k8s.io/apimachinery/pkg/util/json"
)

// BadField is a value in a CiliumNode that Cilium's type cannot hold. An agent of Cilium
// v1.20 or later cannot decode such an object either, and then sees no change of any
// CiliumNode (pkg/ip/netip.go, Prefix, v1.20.1).
type BadField struct {
	// Path names the field, e.g. spec.ipam.podCIDRs[1].
	Path string `json:"path"`
	// Text is the value in JSON.
	Text string `json:"text"`
}

func (b BadField) String() string { return b.Path + ": " + b.Text }

// badFields is the annotation that passes BadFields from Decode on to NewView. It exists in memory
// only.
const badFields = "cilium-pool.io/bad-fields"

// encoded is a value in JSON.
type encoded = stdjson.RawMessage

// decodeReadable decodes the readable parts of a CiliumNode that Cilium's type cannot hold.
func decodeReadable(data []byte, cn *ciliumv2.CiliumNode, failed error) error {
	*cn = ciliumv2.CiliumNode{}
	var bad []BadField
	readable(reflect.ValueOf(cn).Elem(), data, "", &bad)
	if cn.Name == "" {
		return failed
	}
	text, err := json.Marshal(bad)
	if err != nil {
		return err
	}
	if cn.Annotations == nil {
		cn.Annotations = map[string]string{}
	}
	cn.Annotations[badFields] = string(text)
	return nil
}

// badFieldsOf returns the fields that Decode has left out.
func badFieldsOf(cn *ciliumv2.CiliumNode) []BadField {
	var bad []BadField
	if text := cn.Annotations[badFields]; text != "" {
		_ = json.Unmarshal([]byte(text), &bad) // which Decode wrote
	}
	return bad
}

// readable decodes data into v, or else each part of it that v can hold. It adds the rest to bad.
func readable(v reflect.Value, data []byte, path string, bad *[]BadField) {
	if json.Unmarshal(data, v.Addr().Interface()) == nil {
		return
	}
	v.SetZero()
	// A type with an encoding of its own has no readable parts.
	if _, whole := v.Addr().Interface().(encoding.TextUnmarshaler); whole {
		*bad = append(*bad, BadField{path, string(data)})
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		var parts map[string]encoded
		if json.Unmarshal(data, &parts) == nil {
			readableFields(v, parts, path, bad)
			return
		}
	case reflect.Map:
		var parts map[string]encoded
		if json.Unmarshal(data, &parts) == nil {
			v.Set(reflect.MakeMap(v.Type()))
			for key, part := range parts {
				readablePart(v, part, fmt.Sprintf("%s[%q]", path, key), bad, func(value reflect.Value) {
					v.SetMapIndex(reflect.ValueOf(key).Convert(v.Type().Key()), value)
				})
			}
			return
		}
	case reflect.Slice:
		var parts []encoded
		if json.Unmarshal(data, &parts) == nil {
			for i, part := range parts {
				readablePart(v, part, path+"["+strconv.Itoa(i)+"]", bad, func(value reflect.Value) { v.Set(reflect.Append(v, value)) })
			}
			return
		}
	}
	*bad = append(*bad, BadField{path, string(data)})
}

// readablePart decodes an element of a map or slice and puts it there, unless no part of it can be
// held.
func readablePart(container reflect.Value, data []byte, path string, bad *[]BadField, put func(reflect.Value)) {
	value := reflect.New(container.Type().Elem()).Elem()
	count := len(*bad)
	readable(value, data, path, bad)
	if lost := (*bad)[count:]; len(lost) != 1 || lost[0].Path != path {
		put(value)
	}
}

func readableFields(v reflect.Value, parts map[string]encoded, path string, bad *[]BadField) {
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		data, ok := parts[name]
		if name == "" && v.Type().Field(i).Anonymous {
			readableFields(v.Field(i), parts, path, bad)
		} else if ok {
			readable(v.Field(i), data, strings.TrimPrefix(path+"."+name, "."), bad)
		}
	}
}

// texts returns the podCIDRs to write: cidrs, and the texts of BadFields.
func (v *View) texts(cidrs []netip.Prefix) []string {
	return append(textsOf(cidrs), badTexts(v.BadFields, "spec.ipam.podCIDRs[")...)
}

func textsOf[P fmt.Stringer](cidrs []P) []string {
	out := make([]string, 0, len(cidrs))
	for _, p := range cidrs {
		out = append(out, p.String())
	}
	return out
}

// badTexts returns the texts in the fields with paths that begin so.
func badTexts(bad []BadField, begin string) []string {
	var out []string
	for _, b := range bad {
		var text string
		if strings.HasPrefix(b.Path, begin) && json.Unmarshal([]byte(b.Text), &text) == nil {
			out = append(out, text)
		}
	}
	return out
}

// poolCIDRs is an entry of spec.ipam.pools.allocated.
type poolCIDRs struct {
	ipamtypes.IPAMPoolAllocation

	// bad are the texts among its CIDRs that are none.
	bad []string
}

func (e poolCIDRs) empty() bool { return len(e.CIDRs)+len(e.bad) == 0 }

// MarshalJSON writes the entry with its bad texts.
func (e poolCIDRs) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		ipamtypes.IPAMPoolAllocation

		CIDRs []string `json:"cidrs,omitempty"`
	}{e.IPAMPoolAllocation, append(textsOf(e.CIDRs), e.bad...)})
}
