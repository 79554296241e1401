package apiclient

import (
	"bytes"
	"errors"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// pruned decodes pods in protobuf without the fields that no decision on bound pods needs, which are
// most of a pod: volumes, probes, environment, conditions, managed fields. They are cut out of the
// bytes before these are decoded, and take no memory. Anything but a single pod, such as a Status
// or a list that is not streamed, is decoded whole.
type pruned struct{ runtime.NegotiatedSerializer }

// DecoderToVersion returns a decoder of objects.
func (s pruned) DecoderToVersion(d runtime.Decoder, gv runtime.GroupVersioner) runtime.Decoder {
	return prunedDecoder{s.NegotiatedSerializer.DecoderToVersion(d, gv)}
}

type prunedDecoder struct{ runtime.Decoder }

// Decode decodes an object, and changes data.
func (d prunedDecoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if message, ok := bytes.CutPrefix(data, protobufPrefix); ok && bytes.HasPrefix(message, podType) {
		pruned, err := unknown.prune(message, false)
		if err != nil {
			return nil, nil, err
		}
		data = data[:len(protobufPrefix)+len(pruned)]
	}
	return d.Decoder.Decode(data, defaults, into)
}

var (
	// protobufPrefix begins each object in protobuf. A runtime.Unknown follows
	// (k8s.io/apimachinery v0.37.2, pkg/runtime/serializer/protobuf/protobuf.go).
	protobufPrefix = []byte("k8s\x00")
	// podType begins a pod's runtime.Unknown.
	podType = field(1, append(field(1, []byte(corev1.SchemeGroupVersion.String())), field(2, []byte("Pod"))...))
)

func field(number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), value)
}

// kept are the fields of a protobuf message to keep, by number, and the parts to keep of each: nil
// keeps all of it.
type kept map[protowire.Number]kept

// The numbers come from pkg/runtime/generated.proto and pkg/apis/meta/v1/generated.proto
// (k8s.io/apimachinery v0.37.2), and of core/v1/generated.proto (k8s.io/api v0.37.2).
var (
	// unknown is a runtime.Unknown with a pod.
	unknown = kept{
		1: nil, // typeMeta
		2: pod, // raw
		3: nil, // contentEncoding
		4: nil, // contentType
	}
	// pod has the fields that state.ReadPodWithRequest reads, and the version and the annotation
	// that ends a list, which Reflectors read.
	pod = kept{
		1: { // metadata
			1:  nil, // name
			2:  nil, // generateName
			3:  nil, // namespace
			5:  nil, // uid
			6:  nil, // resourceVersion
			8:  nil, // creationTimestamp
			11: nil, // labels
			12: nil, // annotations
		},
		2: { // spec
			2:  container, // containers
			20: container, // initContainers
			10: nil,       // nodeName
			11: nil,       // hostNetwork
		},
		3: { // status
			1:  nil, // phase
			7:  nil, // startTime
			12: nil, // podIPs
		},
	}
	container = kept{
		8:  {2: nil}, // resources.requests
		24: nil,      // restartPolicy
	}
)

var errMalformed = errors.New("decode a pod: malformed protobuf")

// prune cuts from a message, in place, the fields that are not kept, and on request fields
// left empty. That is harmless where fields are messages, because they are merged if they
// are repeated, or elements of a list whose empty ones do not count.
func (k kept) prune(message []byte, dropEmpty bool) ([]byte, error) {
	out := message[:0]
	for rest := message; len(rest) > 0; {
		number, kind, tag := protowire.ConsumeTag(rest)
		if tag < 0 {
			return nil, errMalformed
		}
		size := protowire.ConsumeFieldValue(number, kind, rest[tag:])
		if size < 0 {
			return nil, errMalformed
		}
		field := rest[:tag+size]
		rest = rest[tag+size:]
		inner, keep := k[number]
		if !keep {
			continue
		}
		if inner == nil {
			out = append(out, field...)
			continue
		}
		if kind != protowire.BytesType {
			return nil, errMalformed
		}
		value, _ := protowire.ConsumeBytes(field[tag:])
		value, err := inner.prune(value, true)
		if err != nil {
			return nil, err
		}
		if len(value) > 0 || !dropEmpty { // it still lies behind the bytes written here
			out = protowire.AppendVarint(append(out, field[:tag]...), uint64(len(value)))
			out = append(out, value...)
		}
	}
	return out, nil
}
