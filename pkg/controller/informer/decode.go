package informer

import (
	"bytes"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
)

// onePass decodes watches of one custom resource in JSON. The serializers of apimachinery
// parse every event four times and check its syntax as often: for the kind of the event,
// for its object's bytes, for the kind of the object, and for the object. Here the kind
// is known, and an event is cut where its object begins. What does not begin as the API
// server writes that kind, such as a Status, goes to those serializers.
type onePass struct {
	runtime.NegotiatedSerializer
	kind   schema.GroupVersionKind
	create func() (runtime.Object, error)
}

// SupportedMediaTypes returns those of apimachinery, with an eventDecoder for JSON.
func (s onePass) SupportedMediaTypes() []runtime.SerializerInfo {
	types := slices.Clone(s.NegotiatedSerializer.SupportedMediaTypes())
	for i := range types {
		if types[i].MediaType == runtime.ContentTypeJSON {
			stream := *types[i].StreamSerializer
			stream.Serializer = eventDecoder{stream.Serializer}
			types[i].StreamSerializer = &stream
		}
	}
	return types
}

// DecoderToVersion returns a decoder of objects.
func (s onePass) DecoderToVersion(d runtime.Decoder, gv runtime.GroupVersioner) runtime.Decoder {
	return objectDecoder{
		Decoder: s.NegotiatedSerializer.DecoderToVersion(d, gv),
		kind:    s.kind, create: s.create,
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
	kind   schema.GroupVersionKind
	begin  []byte
	create func() (runtime.Object, error)
}

// Decode decodes an object. As everywhere in clients, it has no kind of its own.
func (d objectDecoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if into != nil || !bytes.HasPrefix(data, d.begin) {
		return d.Decoder.Decode(data, defaults, into)
	}
	obj, err := d.create()
	if err != nil {
		return nil, nil, err
	}
	if err := json.Unmarshal(data, obj); err != nil {
		return nil, &d.kind, fmt.Errorf("decoding %s: %w", d.kind.Kind, err)
	}
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return obj, &d.kind, nil
}
