package informer

import (
	"bytes"
	"errors"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// pruned decodes the objects of one kind in protobuf without what no decision needs, which is
// most of a pod or a Node: volumes, probes, environment, images, managed fields. It is cut out
// of the bytes before they are decoded, so that none of it is allocated. Anything but a single
// object of the kind, such as a Status or a list that is not streamed, is decoded whole.
type pruned struct {
	runtime.NegotiatedSerializer
	kind   schema.GroupVersionKind
	object kept
}

// DecoderToVersion returns a decoder of objects.
func (s pruned) DecoderToVersion(d runtime.Decoder, gv runtime.GroupVersioner) runtime.Decoder {
	return prunedDecoder{
		Decoder: s.NegotiatedSerializer.DecoderToVersion(d, gv),
		begin:   append(bytes.Clone(protobufPrefix), encodedKind(s.kind)...), message: messageOf(s.object),
	}
}

type prunedDecoder struct {
	runtime.Decoder
	begin   []byte
	message kept
}

// Decode decodes an object, and changes data.
func (d prunedDecoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if bytes.HasPrefix(data, d.begin) {
		left, err := d.message.prune(data[len(protobufPrefix):], false)
		if err != nil {
			return nil, nil, err
		}
		data = data[:len(protobufPrefix)+len(left)]
	}
	return d.Decoder.Decode(data, defaults, into)
}

// protobufPrefix begins each object in protobuf. A runtime.Unknown follows
// (k8s.io/apimachinery v0.36.3, pkg/runtime/serializer/protobuf/protobuf.go).
var protobufPrefix = []byte("k8s\x00")

// encodedKind encodes the kind of an object, with which its runtime.Unknown begins.
func encodedKind(kind schema.GroupVersionKind) []byte {
	field := func(to []byte, number protowire.Number, value []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(to, number, protowire.BytesType), value)
	}
	meta := field(nil, 1, []byte(kind.GroupVersion().String()))
	return field(nil, 1, field(meta, 2, []byte(kind.Kind)))
}

// messageOf is what is kept of the runtime.Unknown that holds an object (k8s.io/apimachinery
// v0.36.3, pkg/runtime/generated.proto).
func messageOf(object kept) kept {
	return kept{
		1: nil,    // typeMeta
		2: object, // raw
		3: nil,    // contentEncoding
		4: nil,    // contentType
	}
}

// kept are the fields of a protobuf message to keep, by number, and what to keep of each: nil
// keeps all of it.
type kept map[protowire.Number]kept

// The numbers are those of core/v1/generated.proto (k8s.io/api v0.36.3) and of
// pkg/apis/meta/v1/generated.proto (k8s.io/apimachinery v0.36.3).
var (
	// podMeta also has what Reflectors read: the version, and the annotation that ends a list.
	podMeta = kept{
		1:  nil, // name
		3:  nil, // namespace
		5:  nil, // uid
		6:  nil, // resourceVersion
		8:  nil, // creationTimestamp
		9:  nil, // deletionTimestamp
		11: nil, // labels
		12: nil, // annotations
	}
	// boundPod is what state.ReadPodWithRequest reads.
	boundPod = kept{
		1: podMeta,
		2: { // spec
			2:  container, // containers
			20: container, // initContainers
			10: nil,       // nodeName
			11: nil,       // hostNetwork
		},
		3: { // status
			1:  nil, // phase
			12: nil, // podIPs
		},
	}
	container = kept{
		8:  {2: nil}, // resources.requests
		24: nil,      // restartPolicy
	}
	// agentPod is what state.ReadAgent reads.
	agentPod = kept{
		1: podMeta,
		2: {10: nil}, // spec.nodeName
		3: { // status
			2: nil, // conditions
			8: nil, // containerStatuses
		},
	}
	// service is what exclude.OfService reads.
	service = kept{
		1: podMeta,
		2: { // spec
			5: nil, // externalIPs
			8: nil, // loadBalancerIP
		},
		3: {1: {1: {1: nil}}}, // status.loadBalancer.ingress.ip
	}
	// node is what stripNode keeps, whole or in part.
	node = kept{
		1: { // metadata, without managedFields
			1:  nil, // name
			5:  nil, // uid
			6:  nil, // resourceVersion
			7:  nil, // generation
			8:  nil, // creationTimestamp
			9:  nil, // deletionTimestamp
			10: nil, // deletionGracePeriodSeconds
			11: nil, // labels
			12: nil, // annotations
			13: nil, // ownerReferences
			14: nil, // finalizers
		},
		2: { // spec
			4: nil, // unschedulable
			5: nil, // taints
		},
		3: { // status
			1: nil, // capacity
			2: nil, // allocatable
			4: nil, // conditions
			5: nil, // addresses
		},
	}
)

var errMalformed = errors.New("an object in malformed protobuf")

// prune cuts from a message, in place, the fields that are not kept, and on request those of
// which nothing is left. That is harmless where fields are messages, which are merged if they
// are repeated, or are of a list in which empty ones do not count.
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
		switch {
		case !keep:
		case inner == nil:
			out = append(out, field...)
		case kind != protowire.BytesType:
			return nil, errMalformed
		default:
			value, _ := protowire.ConsumeBytes(field[tag:])
			value, err := inner.prune(value, true)
			if err != nil {
				return nil, err
			}
			if len(value) > 0 || !dropEmpty { // it still lies behind what is written here
				out = protowire.AppendVarint(append(out, field[:tag]...), uint64(len(value)))
				out = append(out, value...)
			}
		}
	}
	return out, nil
}
