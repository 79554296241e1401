package informer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	restwatch "k8s.io/client-go/rest/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	nodeObject = `{"apiVersion":"cilium.io/v2","kind":"CiliumNode","metadata":{"managedFields":[{"fieldsType":"FieldsV1","fieldsV1":{"f:spec":{}},"manager":"agent"}],` +
		`"name":"n","resourceVersion":"7"},"spec":{"bootid":"},{\",\"object\":{","ipam":{"podCIDRs":["10.0.0.0/27"],"pool":{"10.0.0.1":{}}}},` +
		`"status":{"ipam":{"used":{"10.0.0.1":{"owner":"default/a"}}}}}`
	bookmark = `{"apiVersion":"cilium.io/v2","kind":"CiliumNode","metadata":{"annotations":{"k8s.io/initial-events-end":"true"},"name":"","resourceVersion":"9"},"spec":{},"status":{}}`
	expired  = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old","reason":"Expired","code":410}`
)

func codecs(t testing.TB) (plain runtime.NegotiatedSerializer, quick onePass) {
	t.Helper()
	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	kind := ciliumv2.SchemeGroupVersion.WithKind(ciliumv2.CNKindDefinition)
	plain = serializer.NewCodecFactory(scheme).WithoutConversion()
	return plain, onePass{plain, kind, reflect.TypeFor[ciliumv2.CiliumNode]()}
}

// decoderOf returns the decoder that client-go builds from a serializer for a JSON watch.
func decoderOf(t testing.TB, s runtime.NegotiatedSerializer, stream string) *restwatch.Decoder {
	t.Helper()
	info, ok := runtime.SerializerInfoForMediaType(s.SupportedMediaTypes(), runtime.ContentTypeJSON)
	if !ok {
		t.Fatal("no JSON")
	}
	frames := info.StreamSerializer.NewFrameReader(io.NopCloser(bytes.NewReader([]byte(stream))))
	return restwatch.NewDecoder(streaming.NewDecoder(frames, info.StreamSerializer.Serializer), s.DecoderToVersion(info.Serializer, ciliumv2.SchemeGroupVersion))
}

type decoded struct {
	Type   watch.EventType
	Object runtime.Object
	Err    string
}

func decodeAll(d *restwatch.Decoder) []decoded {
	var out []decoded
	for {
		kind, obj, err := d.Decode()
		if errors.Is(err, io.EOF) {
			return out
		}
		e := decoded{Type: kind, Object: obj}
		if err != nil {
			e.Err = "failed" // messages differ
		}
		if out = append(out, e); err != nil {
			return out
		}
	}
}

// Whatever the API server sends is decoded as apimachinery's serializers decode it, without
// managed fields.
func TestOnePassDecodesAlike(t *testing.T) {
	event := func(kind, object string) string {
		return fmt.Sprintf("{%q:%q,%q:%s}\n", "type", kind, "object", object)
	}
	tests := map[string]string{
		"added, modified, deleted":    event("ADDED", nodeObject) + event("MODIFIED", nodeObject) + event("DELETED", nodeObject),
		"bookmark":                    event("BOOKMARK", bookmark),
		"error":                       event("ERROR", expired),
		"spaces":                      `{ "type": "ADDED", "object": ` + nodeObject + " }\n" + event("ADDED", nodeObject),
		"object first":                `{"object":` + nodeObject + `,"type":"ADDED"}` + "\n",
		"keys in another order":       event("ADDED", `{"kind":"CiliumNode","apiVersion":"cilium.io/v2","metadata":{"name":"n"},"spec":{},"status":{}}`),
		"a field too many":            `{"type":"ADDED","object":` + nodeObject + `,"more":1}` + "\n",
		"unknown type of event":       event("RENAMED", nodeObject),
		"wrong type of field":         event("ADDED", `{"apiVersion":"cilium.io/v2","kind":"CiliumNode","metadata":{"name":7}}`),
		"cut off":                     event("ADDED", nodeObject)[:200],
		"the last line lacks its end": event("ADDED", nodeObject) + event("ADDED", nodeObject)[:200],
		"nothing":                     "",
		"larger than any buffer":      event("ADDED", strings.Replace(nodeObject, `"bootid":"`, `"bootid":"`+strings.Repeat("{}[]", 3*lineBuffer), 1)) + event("DELETED", nodeObject),
		"brackets in managed fields":  event("ADDED", strings.Replace(nodeObject, `"f:spec"`, `"k:{\"a\\\":\"]\"}"`, 1)),
		"managed fields in strings":   event("ADDED", strings.Replace(nodeObject, `"default/a"`, `"\"managedFields\":[1],"`, 1)),
		"no other metadata":           event("ADDED", `{"apiVersion":"cilium.io/v2","kind":"CiliumNode","metadata":{"managedFields":[]},"spec":{},"status":{}}`),
	}
	for name, stream := range tests {
		t.Run(name, func(t *testing.T) {
			plain, quick := codecs(t)
			want, got := decodeAll(decoderOf(t, plain, stream)), decodeAll(decoderOf(t, quick, stream))
			for _, d := range slices.Concat(want, got) { // onePass leaves them out only where it decodes
				if o, ok := d.Object.(client.Object); ok {
					o.SetManagedFields(nil)
				}
			}
			if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
				t.Errorf("-apimachinery +onePass:\n%s", diff)
			}
		})
	}
}

// Managed fields are removed before the object is decoded, except for whether a client
// applies it.
func TestOnePassLeavesOutManagedFields(t *testing.T) {
	entry := func(operation string) string {
		return strings.Replace(nodeObject, `"manager":"agent"`, `"manager":"agent","operation":"`+operation+`"`, 1)
	}
	tests := map[string]struct {
		object string
		want   []metav1.ManagedFieldsEntry
	}{
		"updated": {entry("Update"), []metav1.ManagedFieldsEntry{{Operation: "Update"}}},
		"applied": {entry("Apply"), []metav1.ManagedFieldsEntry{{Operation: "Apply"}}},
		"neither, though a key reads like it": {
			strings.Replace(entry("Update"), `"f:spec"`, `"k:{\"operation\":\"Apply\"}"`, 1), []metav1.ManagedFieldsEntry{{Operation: "Update"}},
		},
		"none": {`{"apiVersion":"cilium.io/v2","kind":"CiliumNode","metadata":{"name":"n"},"spec":{"ipam":{"pool":{"10.0.0.1":{}}}}}`, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, quick := codecs(t)
			_, obj, err := decoderOf(t, quick, `{"type":"ADDED","object":`+test.object+"}\n").Decode()
			if err != nil {
				t.Fatal(err)
			}
			cn := obj.(*ciliumv2.CiliumNode)
			if diff := cmp.Diff(test.want, cn.ManagedFields); diff != "" || cn.Name != "n" || len(cn.Spec.IPAM.Pool) != 1 {
				t.Errorf("managed fields (-want +got):\n%s\nof %+v", diff, cn)
			}
		})
	}
}

// The fast path is taken, and not only its fallback: the object is not copied.
func TestOnePassCutsEvents(t *testing.T) {
	_, quick := codecs(t)
	info, _ := runtime.SerializerInfoForMediaType(quick.SupportedMediaTypes(), runtime.ContentTypeJSON)
	data := []byte(`{"type":"ADDED","object":` + nodeObject + "}\n")
	var event metav1.WatchEvent
	if _, _, err := info.StreamSerializer.Decode(data, nil, &event); err != nil {
		t.Fatal(err)
	}
	if event.Type != "ADDED" || string(event.Object.Raw) != nodeObject {
		t.Fatalf("%s with object %s", event.Type, event.Object.Raw)
	}
	copy(data[len(`{"type":"ADDED","object":`):], `{"x`)
	if !bytes.HasPrefix(event.Object.Raw, []byte(`{"x`)) {
		t.Error("the object was copied")
	}
}

// twoBlocks returns a CiliumNode with two blocks, all of whose addresses are in use.
func twoBlocks() string {
	var pool, used, fields []string
	for i := range 60 {
		pool = append(pool, fmt.Sprintf(`"10.0.0.%d":{}`, i))
		used = append(used, fmt.Sprintf(`"10.0.0.%d":{"owner":"default/pod-%d"}`, i, i))
		fields = append(fields, fmt.Sprintf(`"f:10.0.0.%d":{".":{},"f:owner":{}}`, i))
	}
	all := func(of []string) string { return "{" + strings.Join(of, ",") + "}" }
	return strings.NewReplacer(`{"10.0.0.1":{}}`, all(pool), `{"10.0.0.1":{"owner":"default/a"}}`, all(used), `{"f:spec":{}}`, all(fields)).Replace(nodeObject)
}

type named struct {
	name string
	runtime.NegotiatedSerializer
}

func decoders(b *testing.B) []named {
	plain, quick := codecs(b)
	return []named{{"apimachinery", plain}, {"onePass", quick}}
}

// BenchmarkDecodeWatch decodes 100 events of a CiliumNode with two blocks.
func BenchmarkDecodeWatch(b *testing.B) {
	const events = 100
	stream := strings.Repeat(`{"type":"ADDED","object":`+twoBlocks()+"}\n", events)
	for _, of := range decoders(b) {
		b.Run(of.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(stream)))
			for b.Loop() {
				if got := decodeAll(decoderOf(b, of, stream)); len(got) != events {
					b.Fatal(len(got))
				}
			}
		})
	}
}

// BenchmarkDecodeResponse decodes the response to a patch of that CiliumNode.
func BenchmarkDecodeResponse(b *testing.B) {
	body := []byte(twoBlocks())
	for _, of := range decoders(b) {
		b.Run(of.name, func(b *testing.B) {
			info, _ := runtime.SerializerInfoForMediaType(of.SupportedMediaTypes(), runtime.ContentTypeJSON)
			d, data := of.DecoderToVersion(info.Serializer, ciliumv2.SchemeGroupVersion), make([]byte, len(body))
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				copy(data, body)
				cn := &ciliumv2.CiliumNode{}
				if _, _, err := d.Decode(data, nil, cn); err != nil || len(cn.Spec.IPAM.Pool) != 60 {
					b.Fatal(err)
				}
			}
		})
	}
}
