package apiclient

import (
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
)

// lenient decodes CiliumNodes in JSON by ciliumnode.Decode: one value that Cilium's type cannot
// hold would otherwise end the watch and the list of all of them.
type lenient struct{ runtime.NegotiatedSerializer }

// DecoderToVersion returns a decoder of objects.
func (s lenient) DecoderToVersion(d runtime.Decoder, gv runtime.GroupVersioner) runtime.Decoder {
	return lenientDecoder{s.NegotiatedSerializer.DecoderToVersion(d, gv)}
}

type lenientDecoder struct{ runtime.Decoder }

// Decode decodes an object, into another one if the caller has one. As everywhere in clients, the
// object has no kind of its own. The kind in data is asked for last: to look for it first would scan
// all of it twice.
func (d lenientDecoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	obj, kind, err := decodeNodes(data, into)
	switch kind.Kind {
	case ciliumv2.CNKindDefinition, ciliumv2.CNKindDefinition + "List":
		return obj, kind, err
	}
	return d.Decoder.Decode(data, defaults, into) // such as a Status
}

// decodeNodes decodes a CiliumNodeList if the caller has one, and else a CiliumNode.
func decodeNodes(data []byte, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if _, isList := into.(*ciliumv2.CiliumNodeList); isList {
		return decoded(data, into, ciliumnode.DecodeList)
	}
	return decoded(data, into, ciliumnode.Decode)
}

// decoded decodes data into an object if it is of the type, and else into a new one. It returns the kind that
// data names, "" if none can be read.
func decoded[T any, P interface {
	*T
	runtime.Object
}](data []byte, into runtime.Object, decode func([]byte, P) error) (runtime.Object, *schema.GroupVersionKind, error) {
	obj, ok := into.(P)
	if !ok {
		obj = new(T)
	}
	err := decode(data, obj)
	kind := obj.GetObjectKind().GroupVersionKind()
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return obj, &kind, err
}
