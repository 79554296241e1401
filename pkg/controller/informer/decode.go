package informer

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kindjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
)

// onePass decodes one custom resource in JSON: events of its watches, and the responses to
// writes. The serializers of apimachinery parse every event six times: twice to find its
// end, and twice for each of the kind of the event, its object's bytes, the kind of the
// object, and the object, where each second time checks the syntax. Here an event is a
// line, the kind is known, and the event is cut where its object begins. What does not
// begin as the API server writes that kind, such as a Status, goes to those serializers.
// Objects lose their managed fields, which are about half of a CiliumNode.
type onePass struct {
	runtime.NegotiatedSerializer
	kind schema.GroupVersionKind
	// of is the type of its objects, which are pointers to it.
	of reflect.Type
}

// SupportedMediaTypes returns those of apimachinery, with an eventDecoder for JSON.
func (s onePass) SupportedMediaTypes() []runtime.SerializerInfo {
	types := slices.Clone(s.NegotiatedSerializer.SupportedMediaTypes())
	for i := range types {
		if types[i].MediaType == runtime.ContentTypeJSON {
			stream := *types[i].StreamSerializer
			stream.Serializer, stream.Framer = eventDecoder{stream.Serializer}, lineFramer{stream.Framer}
			types[i].StreamSerializer = &stream
		}
	}
	return types
}

// DecoderToVersion returns a decoder of objects.
func (s onePass) DecoderToVersion(d runtime.Decoder, gv runtime.GroupVersioner) runtime.Decoder {
	return objectDecoder{
		Decoder: s.NegotiatedSerializer.DecoderToVersion(d, gv),
		kind:    s.kind, of: s.of,
		// Custom resources have their keys in order.
		begin: fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,`, s.kind.GroupVersion(), s.kind.Kind),
	}
}

// eventDecoder decodes events of a watch up to their objects.
type eventDecoder struct{ runtime.Serializer }

var (
	eventType   = []byte(`{"type":"`)
	eventObject = []byte(`","object":`)
)

// Decode decodes an event. Its object stays where it is in data: it must be decoded
// before the next event is read.
func (d eventDecoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	event, ok := into.(*metav1.WatchEvent)
	if !ok {
		return d.Serializer.Decode(data, defaults, into)
	}
	rest, ok := bytes.CutPrefix(data, eventType)
	name, object, found := bytes.Cut(rest, eventObject)
	object, closed := bytes.CutSuffix(bytes.TrimSpace(object), []byte("}"))
	if !ok || !found || !closed || !bytes.HasSuffix(object, []byte("}")) {
		return d.Serializer.Decode(data, defaults, into)
	}
	event.Type, event.Object.Raw = string(name), object
	return event, nil, nil
}

// objectDecoder decodes objects of one kind.
type objectDecoder struct {
	runtime.Decoder
	kind  schema.GroupVersionKind
	of    reflect.Type
	begin []byte
}

// Decode decodes an object, into the given one if there is one, and changes data. As
// everywhere in clients, the object has no kind of its own.
func (d objectDecoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	known := bytes.HasPrefix(data, d.begin)
	if into != nil {
		reflect.ValueOf(into).Elem().SetZero() // or maps would keep what data lacks
		known = known && reflect.TypeOf(into) == reflect.PointerTo(d.of)
	}
	if !known {
		if list := listOf(into, data); list != nil {
			return list, defaults, ciliumnode.DecodeList(data, list)
		}
		return d.Decoder.Decode(data, defaults, into)
	}
	obj := into
	if obj == nil {
		obj = reflect.New(d.of).Interface().(runtime.Object)
	}
	data, operations := withoutManagedFields(data)
	if err := decodeInto(obj, data); err != nil {
		return nil, &d.kind, fmt.Errorf("decoding %s: %w", d.kind.Kind, err)
	}
	if cn, ok := obj.(*ciliumv2.CiliumNode); ok && operations != nil {
		cn.ManagedFields = operations
	}
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return obj, &d.kind, nil
}

// listOf returns the CiliumNodeList to decode data into, or nil if it is something else.
func listOf(into runtime.Object, data []byte) *ciliumv2.CiliumNodeList {
	if list, ok := into.(*ciliumv2.CiliumNodeList); ok || into != nil {
		return list
	}
	if kind, err := kindjson.DefaultMetaFactory.Interpret(data); err == nil && kind.Kind == ciliumv2.CNKindDefinition+"List" {
		return &ciliumv2.CiliumNodeList{}
	}
	return nil
}

func decodeInto(obj runtime.Object, data []byte) error {
	if cn, ok := obj.(*ciliumv2.CiliumNode); ok {
		return ciliumnode.Decode(data, cn)
	}
	return json.Unmarshal(data, obj)
}

// managedFields begins metadata.managedFields. It is not found within a string, where the
// second quote would have a backslash before it.
var managedFields = []byte(`"managedFields":[`)

// What is kept of metadata.managedFields: whether there were any, and whether a client
// applies the object. Never changed.
var (
	onlyUpdates = []metav1.ManagedFieldsEntry{{Operation: metav1.ManagedFieldsOperationUpdate}}
	applies     = []metav1.ManagedFieldsEntry{{Operation: metav1.ManagedFieldsOperationApply}}
	// applied is in an entry of such a client. It is not found within a string, either.
	applied = []byte(`"operation":"Apply"`)
)

// withoutManagedFields cuts metadata.managedFields out of an object, in place, and returns
// what is kept of them. It leaves an object as it is that does not look as the API server
// writes it.
func withoutManagedFields(object []byte) ([]byte, []metav1.ManagedFieldsEntry) {
	begin := bytes.Index(object, managedFields)
	if begin < 0 {
		return object, nil
	}
	list := object[begin+len(managedFields)-1:]
	end := endOfValue(list)
	if end < 0 || end == len(list) || list[end] != ',' {
		return object, nil
	}
	operations := onlyUpdates
	if bytes.Contains(list[:end], applied) {
		operations = applies
	}
	return append(object[:begin], list[end+1:]...), operations
}

// endOfValue returns the length of the object or array at the beginning of data, or -1.
func endOfValue(data []byte) int {
	depth := 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '[', '{':
			depth++
		case ']', '}':
			if depth--; depth == 0 {
				return i + 1
			}
		case '"':
			for i++; i < len(data) && data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
		}
	}
	return -1
}
