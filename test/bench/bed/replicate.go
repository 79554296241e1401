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
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// Prefixes of keys in etcd (--etcd-prefix of kube-apiserver: /registry).
const (
	nodeKeys       = "/registry/minions/"
	podKeys        = "/registry/pods/"
	ciliumNodeKeys = "/registry/cilium.io/ciliumnodes/"
	blockKeys      = "/registry/cilium-pool.io/podipblocks/"
)

// replicate writes into etcd, for every node but the first, copies of what it has of the
// first. All nodes are alike, and to write 50,000 pods through the API server took ten times
// as long.
func (w World) replicate(ctx context.Context, st *Stage, prefixes ...string) error {
	etcd := st.etcd()
	var templates []*template
	for _, prefix := range prefixes {
		stored, err := etcd.list(ctx, prefix)
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
	return harness.Parallel(ctx, w.Nodes-1, populateWorkers, func(ctx context.Context, i int) error {
		replace := w.replacer(i+1, uids)
		copies := make([]keyValue, len(templates))
		for k, t := range templates {
			value, err := t.encode(replace.Replace(t.text))
			if err != nil {
				return fmt.Errorf("copy %s: %w", t.key, err)
			}
			copies[k] = keyValue{Key: []byte(replace.Replace(t.key)), Value: value}
		}
		return etcd.put(ctx, copies)
	})
}

// replacer replaces everything that distinguishes the first node's objects by what node i's
// objects have instead.
func (w World) replacer(i int, uids []string) *strings.Replacer {
	var pairs []string
	names, was := w.names(i), w.names(0)
	for k := range was {
		pairs = append(pairs, was[k], names[k])
	}
	values, was := w.values(i), w.values(0)
	for k := range was {
		// A whole string, or one in managed fields, where its quotes are escaped. An
		// address may begin like a longer one.
		pairs = append(pairs, `"`+was[k]+`"`, `"`+values[k]+`"`, `"`+was[k]+`\"`, `"`+values[k]+`\"`)
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

// names are texts that only node i's objects contain, in the same order for every node.
func (w World) names(i int) []string {
	out := []string{NodeName(i), podPrefix(i), bootID(i), machineID(i)}
	for j := range w.Blocks {
		out = append(out, crd.BlockName(w.block(i, j)))
	}
	return out
}

// values are strings of node i's objects, in the same order for every node.
func (w World) values(i int) []string {
	out := []string{nodeAddress(i), zone(i), rack(i)}
	if w.Pools > 0 {
		out = append(out, w.poolOf(i))
	}
	for j := range w.Blocks {
		block := w.block(i, j)
		out = append(out, block.String())
		for _, addr := range Addresses(block) {
			out = append(out, addr.String())
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
func newTemplate(kv keyValue) (*template, error) {
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
