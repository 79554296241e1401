// Package etcd lists and watches Kubernetes objects where the API server stores them. etcd
// keeps every version until it is compacted, minutes later, so a watch resumes from the
// version where it broke off, whatever was killed in between; an API server that has just
// started knows nothing of earlier versions.
//
// It never writes. It uses the JSON gateway of etcd, and reads objects in the forms in which
// kube-apiserver v1.36 stores them by default: protobuf for built-in kinds, JSON for those of
// CRDs.
package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane/gateway"
)

// Store reads from an etcd cluster.
type Store struct {
	// Managers keeps the managedFields of objects, which are large.
	Managers bool

	gateway *gateway.Client
	decoder runtime.Decoder
}

// New returns a Store for the etcd whose members listen on these unix sockets; it uses any of
// them. The scheme must know the kinds that are read.
func New(scheme *runtime.Scheme, sockets ...string) *Store {
	return &Store{decoder: serializer.NewCodecFactory(scheme).UniversalDeserializer(), gateway: gateway.New(sockets...)}
}

// List reads a list at exactly the version that the options request, else at the newest.
func (s *Store) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	k, err := kindOf(list)
	if err != nil {
		return err
	}
	at, err := version(opts)
	if err != nil {
		return err
	}
	partial, metadataOnly := list.(*metav1.PartialObjectMetadataList)
	kvs, at, err := s.gateway.Range(ctx, k.prefix, at, metadataOnly)
	if err != nil {
		return fmt.Errorf("list %s in etcd: %w", k.prefix, err)
	}
	list.SetResourceVersion(strconv.FormatUint(at, 10))
	if metadataOnly {
		for _, kv := range kvs {
			item := metav1.PartialObjectMetadata{}
			k.name(&item, kv)
			partial.Items = append(partial.Items, item)
		}
		return nil
	}
	items := make([]runtime.Object, len(kvs))
	for i, kv := range kvs {
		if items[i], err = s.decode(kv); err != nil {
			return err
		}
	}
	return meta.SetList(list, items)
}

// Watch delivers the changes after a version. It ends when etcd ends, and with an error
// "Expired" if etcd has been compacted beyond that version.
func (s *Store) Watch(ctx context.Context, list client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
	k, err := kindOf(list)
	if err != nil {
		return nil, err
	}
	from, err := version(opts)
	if err != nil {
		return nil, err
	}
	var req watchRequest
	req.Create.Key, req.Create.RangeEnd = []byte(k.prefix), gateway.End(k.prefix)
	req.Create.StartRevision, req.Create.Fragment = from+1, true
	ctx, cancel := context.WithCancel(ctx)
	answer, err := s.gateway.Post(ctx, "/v3/watch", req)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("watch %s in etcd: %w", k.prefix, err)
	}
	w := &watcher{store: s, kind: k, results: make(chan watch.Event), done: ctx.Done(), stop: cancel}
	go func() {
		defer close(w.results)
		defer answer.Close()
		defer cancel()
		w.deliver(json.NewDecoder(answer))
	}()
	return w, nil
}

// Requests and responses of a watch (etcd v3.6, api/etcdserverpb/rpc.proto).

type watchRequest struct {
	Create struct {
		Key           []byte `json:"key"`
		RangeEnd      []byte `json:"range_end"`
		StartRevision uint64 `json:"start_revision,string"`
		Fragment      bool   `json:"fragment"`
	} `json:"create_request"`
}

type watchResponse struct {
	Result struct {
		Canceled        bool    `json:"canceled"`
		CancelReason    string  `json:"cancel_reason"`
		CompactRevision uint64  `json:"compact_revision,string"`
		Events          []event `json:"events"`
	} `json:"result"`
	Error *struct {
		Message string `json:"message"`
	} `json:"error"`
}

type event struct {
	Type string           `json:"type"` // PUT if it is missing, else DELETE
	KV   gateway.KeyValue `json:"kv"`
}

type watcher struct {
	store   *Store
	kind    kind
	results chan watch.Event
	done    <-chan struct{}
	stop    context.CancelFunc
}

func (w *watcher) ResultChan() <-chan watch.Event { return w.results }
func (w *watcher) Stop()                          { w.stop() }

func (w *watcher) deliver(from *json.Decoder) {
	for {
		var got watchResponse
		if from.Decode(&got) != nil || got.Error != nil {
			return // etcd ended
		}
		if got.Result.CompactRevision > 0 {
			expired := apierrors.NewResourceExpired(fmt.Sprintf("etcd was compacted at %d", got.Result.CompactRevision))
			w.send(watch.Event{Type: watch.Error, Object: &expired.ErrStatus})
			return
		}
		if got.Result.Canceled {
			return
		}
		for _, e := range got.Result.Events {
			if !w.one(e) {
				return
			}
		}
	}
}

// one sends one event; it returns false when the watch is over.
func (w *watcher) one(e event) bool {
	if e.Type == "DELETE" {
		object := w.kind.object()
		w.kind.name(object, e.KV)
		return w.send(watch.Event{Type: watch.Deleted, Object: object})
	}
	object, err := w.store.decode(e.KV)
	if err != nil {
		status := apierrors.NewInternalError(err).Status()
		w.send(watch.Event{Type: watch.Error, Object: &status})
		return false
	}
	return w.send(watch.Event{Type: watch.Modified, Object: object})
}

func (w *watcher) send(e watch.Event) bool {
	select {
	case w.results <- e:
		return true
	case <-w.done:
		return false
	}
}

func (s *Store) decode(kv gateway.KeyValue) (client.Object, error) {
	decoded, _, err := s.decoder.Decode(kv.Value, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("read %s of etcd: %w", kv.Key, err)
	}
	object, ok := decoded.(client.Object)
	if !ok {
		return nil, fmt.Errorf("read %s of etcd: %T is no object", kv.Key, decoded)
	}
	if block, ok := object.(*v1alpha1.PodIPBlock); ok && block.Status.Phase == "" {
		block.Status.Phase = v1alpha1.PhaseInService // the API server also applies the CRD's default when it reads
	}
	object.SetResourceVersion(strconv.FormatUint(kv.ModRevision, 10))
	if !s.Managers {
		object.SetManagedFields(nil)
	}
	return object, nil
}

// kind describes where objects of a kind are stored.
type kind struct {
	prefix string
	object func() client.Object
}

// name sets the name and namespace of an object from its key, and its resourceVersion.
func (k kind) name(o client.Object, kv gateway.KeyValue) {
	name := strings.TrimPrefix(string(kv.Key), k.prefix)
	if namespace, rest, found := strings.Cut(name, "/"); found {
		o.SetNamespace(namespace)
		name = rest
	}
	o.SetName(name)
	o.SetResourceVersion(strconv.FormatUint(kv.ModRevision, 10))
}

var errKind = errors.New("no kind that is read from etcd")

func kindOf(list client.ObjectList) (kind, error) {
	name := strings.TrimSuffix(list.GetObjectKind().GroupVersionKind().Kind, "List")
	switch list.(type) {
	case *corev1.NodeList:
		name = "Node"
	case *corev1.PodList:
		name = "Pod"
	case *coordinationv1.LeaseList:
		name = "Lease"
	case *ciliumv2.CiliumNodeList:
		name = "CiliumNode"
	case *v1alpha1.PodIPBlockList:
		name = "PodIPBlock"
	case *v1alpha1.PodIPPoolList:
		name = "PodIPPool"
	}
	switch name {
	case "Node":
		return kind{gateway.Nodes, func() client.Object { return &corev1.Node{} }}, nil
	case "Pod":
		return kind{gateway.Pods, func() client.Object { return &corev1.Pod{} }}, nil
	case "Lease":
		return kind{gateway.Leases, func() client.Object { return &coordinationv1.Lease{} }}, nil
	case "CiliumNode":
		return kind{gateway.CiliumNodes, func() client.Object { return &ciliumv2.CiliumNode{} }}, nil
	case "PodIPBlock":
		return kind{gateway.Blocks, func() client.Object { return &v1alpha1.PodIPBlock{} }}, nil
	case "PodIPPool":
		return kind{gateway.Pools, func() client.Object { return &v1alpha1.PodIPPool{} }}, nil
	}
	return kind{}, fmt.Errorf("%w: %T %s", errKind, list, name)
}

// version returns the resourceVersion that options request, or 0.
func version(opts []client.ListOption) (uint64, error) {
	var o client.ListOptions
	o.ApplyOptions(opts)
	if o.Raw == nil || o.Raw.ResourceVersion == "" {
		return 0, nil
	}
	at, err := strconv.ParseUint(o.Raw.ResourceVersion, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("resourceVersion: %w", err)
	}
	return at, nil
}
