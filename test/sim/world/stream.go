package world

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/informer"
)

// stream is an operator's informer of one kind: its cache, its position, and the changes that its
// handler has not received yet, because the two are not in step
// (k8s.io/client-go/tools/cache/shared_informer.go). With a store it is a reflector, which has no
// cache and delivers at once.
type stream struct {
	name    string
	kind    Kind
	wants   func(client.Object) bool
	strip   toolscache.TransformFunc
	handler toolscache.ResourceEventHandler
	store   informer.Store
	cluster *knownCluster
	agents  *knownAgents

	// later: it has yet to list, as a process does that has not read the other kinds. versionsAgo is how old its list
	// will be.
	later       bool
	versionsAgo int

	// cache holds the objects that the store last received, if there is one.
	cache map[string]client.Object
	// read is the number of versions of the kind's history that the cache has received.
	read int
	// listed are the changes of a list, received one by one before the watch continues, and
	// version is the list's.
	listed  []delta
	version string
	// undelivered are the changes that the handler has not received yet. The first initial of
	// them came with the first list.
	undelivered []notice
	initial     int
}

// delta is a change of the cache. A nil object was deleted.
type delta struct {
	key  string
	obj  client.Object
	last client.Object // of one that is gone; nil: the cache's
}

// notice is a change as the handler receives it.
type notice struct {
	old, now client.Object
	missed   bool // its deletion was not watched
}

// next returns the next change that the watch delivers, if there is one.
func (s *stream) next(a *API) (delta, bool) {
	if s.later {
		return delta{}, false
	}
	if len(s.listed) > 0 {
		return s.listed[0], true
	}
	for ; s.read < len(a.history[s.kind]); s.read++ {
		v := a.history[s.kind][s.read]
		switch {
		case v.New != nil && s.wants(v.New):
			return delta{key: v.Key, obj: v.New}, true
		case v.Old != nil && s.wants(v.Old):
			last := v.New // it no longer matches
			if last == nil {
				last = v.Old
			}
			return delta{key: v.Key, last: last}, true
		}
	}
	return delta{}, false
}

// advance moves past the next change, and reports whether it came with a list.
func (s *stream) advance() (fromList bool) {
	if len(s.listed) > 0 {
		s.listed = s.listed[1:]
		return true
	}
	s.read++
	return false
}

// take applies the next change to the cache.
func (s *stream) take(a *API) {
	d, ok := s.next(a)
	if !ok {
		return
	}
	if s.store != nil {
		s.put(d)
		return
	}
	fromList := s.advance()
	old := s.cache[d.key]
	switch {
	case d.obj == nil && old == nil:
	case d.obj == nil:
		delete(s.cache, d.key)
		n := notice{old: old, missed: d.last == nil}
		if d.last != nil {
			n.old = s.stripped(d.last)
		}
		s.undelivered = append(s.undelivered, n)
	default:
		if old != nil && fromList && old.GetResourceVersion() == d.obj.GetResourceVersion() {
			return // no handler gets repeated objects of a list
		}
		now := s.stripped(d.obj)
		s.cache[d.key] = now
		s.undelivered = append(s.undelivered, notice{old: old, now: now})
	}
}

// put gives the store the next change. The objects of a list arrive one by one, and other actions
// may happen between two of them; deletions come last, as in controller's records.Replace.
func (s *stream) put(d delta) {
	fromList := s.advance()
	old := s.cache[d.key]
	switch {
	case d.obj == nil:
		delete(s.cache, d.key)
		s.agents.gone(d.key)
		if !fromList {
			s.cluster.gone(d.last)
			s.took(s.store.Delete(shallow(d.last)))
		}
	case old == nil:
		s.cluster.there(d.obj)
		s.agents.there(d.obj)
		s.cache[d.key] = d.obj
		s.took(s.store.Add(shallow(d.obj)))
	default:
		s.cluster.there(d.obj)
		s.agents.there(d.obj)
		s.cache[d.key] = d.obj
		s.took(s.store.Update(shallow(d.obj)))
	}
	if fromList && len(s.listed) == 0 {
		s.initial = 0
		s.cluster.only(s.kind, s.cache)
		var all []any
		for _, key := range sortedKeys(s.cache) {
			all = append(all, shallow(s.cache[key]))
		}
		s.took(s.store.Replace(all, s.version))
		s.version = ""
	}
}

func (s *stream) took(err error) {
	if err != nil {
		panic(err)
	}
}

func (s *stream) stripped(obj client.Object) client.Object {
	out, err := s.strip(shallow(obj))
	if err != nil {
		panic(err)
	}
	return out.(client.Object)
}

// tell delivers the next change of the cache to the handler.
func (s *stream) tell() {
	n := s.undelivered[0]
	s.undelivered = s.undelivered[1:]
	s.cluster.tell(n)
	first := s.initial > 0
	if first {
		s.initial--
	}
	switch {
	case n.now == nil && n.missed:
		s.handler.OnDelete(toolscache.DeletedFinalStateUnknown{Key: keyOf(n.old), Obj: n.old})
	case n.now == nil:
		s.handler.OnDelete(n.old)
	case n.old == nil:
		s.handler.OnAdd(n.now, first)
	default:
		s.handler.OnUpdate(n.old, n.now)
	}
}

// begin begins with the state of some versions ago.
func (s *stream) begin(a *API, versionsAgo int) {
	s.later = false
	s.list(a, max(0, len(a.history[s.kind])-versionsAgo))
	s.initial = len(s.listed)
}

// list starts again with the state after a number of versions of the kind.
func (s *stream) list(a *API, versions int) {
	state := a.at(s.kind, versions)
	s.listed, s.read, s.version = nil, versions, "0"
	if versions > 0 {
		s.version = strconv.FormatUint(a.history[s.kind][versions-1].Version, 10)
	}
	for _, key := range sortedKeys(state) {
		if s.wants(state[key]) {
			s.listed = append(s.listed, delta{key: key, obj: state[key]})
		}
	}
	for _, key := range sortedKeys(s.cache) {
		if obj := state[key]; obj == nil || !s.wants(obj) {
			s.listed = append(s.listed, delta{key: key})
		}
	}
}

// synced reports whether the handler has received everything in the first list.
func (s *stream) synced() bool { return s.initial == 0 && !s.later }

// caches reads from the streams.
type caches struct{ *Operator }

func (c caches) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	k := kindOf(obj)
	for _, s := range c.streams {
		if s.kind != k || s.store != nil {
			continue
		}
		stored := s.cache[nameOf(key)]
		if stored != nil {
			assign(obj, stored)
			return nil
		}
		return apierrors.NewNotFound(k.resource(), nameOf(key))
	}
	panic("no such cache here: " + k.String())
}

// List serves the Nodes, the namespaces and the pins.
func (c caches) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch list := list.(type) {
	case *v1alpha1.PodIPPinList:
		list.Items = listed[v1alpha1.PodIPPin](c, KindPin)
	case *corev1.NamespaceList:
		list.Items = listed[corev1.Namespace](c, KindNamespace)
	case *corev1.NodeList:
		list.Items = listed[corev1.Node](c, KindNode)
	default:
		panic(fmt.Sprintf("no such list here: %T", list))
	}
	return nil
}

// listed returns the cached objects of a kind, sorted by name.
func listed[T any](c caches, kind Kind) (items []T) {
	cache := c.stream(kind.String()).cache
	for _, name := range sortedKeys(cache) {
		items = append(items, *any(cache[name]).(*T))
	}
	return items
}

func everything(client.Object) bool { return true }

// needsAddress is informer.PodFields.
func needsAddress(obj client.Object) bool {
	p := obj.(*corev1.Pod)
	return p.Spec.NodeName != "" && !p.Spec.HostNetwork &&
		p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

// isUnscheduled is informer.UnscheduledFields.
func isUnscheduled(obj client.Object) bool {
	p := obj.(*corev1.Pod)
	return p.Spec.NodeName == "" && !p.Spec.HostNetwork && p.Status.Phase == corev1.PodPending
}

func isAgent(obj client.Object) bool { return obj.GetLabels()["k8s-app"] == "cilium" }
