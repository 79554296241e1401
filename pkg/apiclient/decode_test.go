package apiclient

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	restwatch "k8s.io/client-go/rest/watch"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
)

const (
	nodeObject = `{"apiVersion":"cilium.io/v2","kind":"CiliumNode","metadata":{"managedFields":[{"fieldsType":"FieldsV1","fieldsV1":{"f:spec":{}},"manager":"agent"}],` +
		`"name":"n","resourceVersion":"7"},"spec":{"bootid":"x","ipam":{"podCIDRs":["10.0.0.0/27"],"pool":{"10.0.0.1":{}}}},` +
		`"status":{"ipam":{"used":{"10.0.0.1":{"owner":"default/a"}}}}}`
	bookmark = `{"apiVersion":"cilium.io/v2","kind":"CiliumNode","metadata":{"annotations":{"k8s.io/initial-events-end":"true"},"name":"","resourceVersion":"9"},"spec":{},"status":{}}`
	expired  = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old","reason":"Expired","code":410}`
)

// strangeObject is a CiliumNode with a value that Cilium's type cannot hold.
var strangeObject = strings.Replace(nodeObject, `"10.0.0.0/27"`, `"10.0.0.0/27","10.020.0.0/24"`, 1)

func isStrange(t *testing.T, obj runtime.Object, err error) {
	t.Helper()
	cn, ok := obj.(*ciliumv2.CiliumNode)
	if err != nil || !ok {
		t.Fatalf("%T: %v", obj, err)
	}
	v := ciliumnode.NewView(cn)
	if len(v.PodCIDRs) != 1 || len(v.Addresses.Pool) != 1 || len(v.BadFields) != 1 || v.BadFields[0].Path != "spec.ipam.podCIDRs[1]" {
		t.Errorf("read as %+v", v)
	}
}

// decodeAll decodes a watch in JSON as client-go does.
func decodeAll(t *testing.T, s runtime.NegotiatedSerializer, stream string) (out []watch.Event, failed bool) {
	t.Helper()
	info, ok := runtime.SerializerInfoForMediaType(s.SupportedMediaTypes(), runtime.ContentTypeJSON)
	if !ok {
		t.Fatal("no JSON")
	}
	frames := info.StreamSerializer.NewFrameReader(io.NopCloser(bytes.NewReader([]byte(stream))))
	d := restwatch.NewDecoder(streaming.NewDecoder(frames, info.StreamSerializer.Serializer), s.DecoderToVersion(info.Serializer, ciliumv2.SchemeGroupVersion))
	for {
		kind, obj, err := d.Decode()
		if err != nil {
			return out, !errors.Is(err, io.EOF)
		}
		out = append(out, watch.Event{Type: kind, Object: obj})
	}
}

func codecs(t *testing.T) runtime.NegotiatedSerializer {
	t.Helper()
	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	return serializer.NewCodecFactory(scheme).WithoutConversion()
}

func eventOf(kind, object string) string { return `{"type":"` + kind + `","object":` + object + "}\n" }

// Values that Cilium's type can hold are decoded as apimachinery decodes them.
func TestLenientDecodesAlike(t *testing.T) {
	for name, stream := range map[string]string{
		"added, modified, deleted": eventOf("ADDED", nodeObject) + eventOf("MODIFIED", nodeObject) + eventOf("DELETED", nodeObject),
		"bookmark":                 eventOf("BOOKMARK", bookmark),
		"error":                    eventOf("ERROR", expired),
		"without a name":           eventOf("ADDED", `{"apiVersion":"cilium.io/v2","kind":"CiliumNode","metadata":{"name":7}}`),
		"cut off":                  eventOf("ADDED", nodeObject) + eventOf("ADDED", nodeObject)[:200],
	} {
		t.Run(name, func(t *testing.T) {
			plain := codecs(t)
			want, wantFailed := decodeAll(t, plain, stream)
			got, failed := decodeAll(t, lenient{plain}, stream)
			if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Prefix{})); diff != "" || failed != wantFailed {
				t.Errorf("failed %t, want %t; -apimachinery +lenient:\n%s", failed, wantFailed, diff)
			}
		})
	}
}

// A value that Cilium's type cannot hold does not end a watch.
func TestLenientDecodesStrangeCiliumNodes(t *testing.T) {
	got, failed := decodeAll(t, lenient{codecs(t)}, eventOf("ADDED", strangeObject)+eventOf("MODIFIED", nodeObject))
	if failed || len(got) != 2 {
		t.Fatalf("%d events, failed %t", len(got), failed)
	}
	isStrange(t, got[0].Object, nil)
}
