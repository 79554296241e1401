package bed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane/gateway"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// replicate writes into etcd, for every node but the first, copies of the first
// node's keys. All nodes are alike, and to write 50,000 pods through the API server took ten times
// as long.
func (w World) replicate(ctx context.Context, st *Stage, prefixes ...string) error {
	etcd := st.etcd()
	var templates []*template
	for _, prefix := range prefixes {
		stored, err := etcd.Range(ctx, prefix)
		if err != nil {
			return err
		}
		for _, kv := range stored {
			t, err := newTemplate(kv)
			if err != nil {
				return fmt.Errorf("copy %s: %w", kv.Key, err)
			}
			templates = append(templates, t)
		}
	}
	if len(templates) == 0 {
		return nil
	}
	first := &corev1.Node{}
	if err := st.Client.Get(ctx, client.ObjectKey{Name: NodeName(0)}, first); err != nil {
		return fmt.Errorf("read node %s: %w", NodeName(0), err)
	}
	uids := []string{string(first.UID)}
	for _, t := range templates {
		uids = append(uids, t.uid)
	}
	texts := w.texts(0)
	return harness.Parallel(ctx, w.Nodes-1, populateWorkers, func(ctx context.Context, i int) error {
		replace := replacer(texts, w.texts(i+1), uids, i+1)
		copies := make([]gateway.KeyValue, len(templates))
		for k, t := range templates {
			value, err := t.encode(replace.Replace(t.text))
			if err != nil {
				return fmt.Errorf("copy %s: %w", t.key, err)
			}
			copies[k] = gateway.KeyValue{Key: []byte(replace.Replace(t.key)), Value: value}
		}
		return etcd.Put(ctx, copies)
	})
}

// replacer replaces all texts and UIDs that distinguish the first node's objects by node i's.
func replacer(first, texts, uids []string, i int) *strings.Replacer {
	var pairs []string
	for k := range first {
		pairs = append(pairs, first[k], texts[k])
	}
	for _, uid := range uids {
		pairs = append(pairs, uid, replicaUID(uid, i))
	}
	return strings.NewReplacer(pairs...)
}

// replicaUID returns the UID of node i's copy of an object, from the UID of the first node's.
func replicaUID(uid string, i int) string {
	return fmt.Sprintf("%s%012x", uid[:len(uid)-12], i)
}

// texts are the texts that only node i's objects contain, except for UIDs, in the same order for
// every node.
func (w World) texts(i int) []string {
	out := []string{NodeName(i), podPrefix(i), bootID(i), machineID(i)}
	// An address may begin like a longer one, so these are whole strings, or whole in managed
	// fields, where their quotes are escaped.
	whole := func(text string) { out = append(out, `"`+text+`"`, `"`+text+`\"`) }
	whole(nodeAddress(i))
	whole(zone(i))
	whole(rack(i))
	for j := range w.Blocks {
		block := w.block(i, j)
		out = append(out, crd.BlockName(block))
		whole(block.String())
		for _, addr := range Addresses(block) {
			whole(addr.String())
		}
	}
	return out
}

// template is an object of the first node as etcd has it.
type template struct {
	// key is its key, text the object in JSON.
	key, text, uid string
	// encode returns the value to store for an object in JSON.
	encode func(text string) ([]byte, error)
}

var protobufPrefix = []byte("k8s\x00")

// newTemplate reads a stored object: protobuf of Kubernetes' own kinds, JSON of custom
// resources.
func newTemplate(kv gateway.KeyValue) (*template, error) {
	t := &template{key: string(kv.Key), text: string(kv.Value)}
	t.encode = func(text string) ([]byte, error) { return []byte(text), nil }
	if bytes.HasPrefix(kv.Value, protobufPrefix) {
		codec := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
		obj, gvk, err := codec.Decode(kv.Value, nil, nil)
		if err != nil {
			return nil, err
		}
		data, err := json.Marshal(obj)
		if err != nil {
			return nil, err
		}
		t.text = string(data)
		t.encode = func(text string) ([]byte, error) {
			obj, err := scheme.Scheme.New(*gvk)
			if err != nil {
				return nil, err
			}
			if err := json.Unmarshal([]byte(text), obj); err != nil {
				return nil, err
			}
			obj.GetObjectKind().SetGroupVersionKind(*gvk)
			return runtime.Encode(codec, obj)
		}
	}
	var meta metav1.PartialObjectMetadata
	if err := json.Unmarshal([]byte(t.text), &meta); err != nil {
		return nil, err
	}
	if t.uid = string(meta.UID); t.uid == "" {
		return nil, errors.New("it has no UID")
	}
	return t, nil
}
