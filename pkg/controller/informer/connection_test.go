package informer

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"sync"
	"testing"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/leaderelection"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// origins records from which connections requests came. A list of all objects is one of those
// that begin a watch.
type origins struct {
	mu             sync.Mutex
	watches, other map[string]bool
}

func (o *origins) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	if r.Method == http.MethodGet && (path.Base(r.URL.Path) == "podipblocks" || path.Base(r.URL.Path) == "ciliumnodes") {
		o.watches[r.RemoteAddr] = true
	} else {
		o.other[r.RemoteAddr] = true
	}
	o.mu.Unlock()
	http.Error(w, "not now", http.StatusInternalServerError)
}

func (o *origins) seen() (watches, other []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Sorted(maps.Keys(o.watches)), slices.Sorted(maps.Keys(o.other))
}

// Watches share no connection with writes, which share theirs with live reads and the Lease.
func TestConnections(t *testing.T) {
	from := &origins{watches: map[string]bool{}, other: map[string]bool{}}
	server := httptest.NewUnstartedServer(from)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	mgr := managerOf(t, &rest.Config{Host: server.URL, QPS: -1, TLSClientConfig: rest.TLSClientConfig{Insecure: true}})

	sources, err := SourcesFrom(mgr, ciliumnode.CRD, "kube-system", labels.Everything())
	if err != nil {
		t.Fatal(err)
	}
	_, _ = toolscache.ToListerWatcherWithContext(sources.CiliumNodes).WatchWithContext(t.Context(), metav1.ListOptions{Watch: true})
	if _, err := mgr.GetCache().GetInformer(t.Context(), &v1alpha1.PodIPBlock{}); err == nil {
		go func() { _ = mgr.GetCache().Start(t.Context()) }()
	}
	block := &v1alpha1.PodIPBlock{ObjectMeta: metav1.ObjectMeta{Name: "b"}}
	_ = mgr.GetClient().Create(t.Context(), block)
	_ = mgr.GetAPIReader().Get(t.Context(), types.NamespacedName{Name: "b"}, block)
	lock, err := leaderelection.NewResourceLock(rest.CopyConfig(mgr.GetConfig()), mgr, leaderelection.Options{
		LeaderElection: true, LeaderElectionID: "l", LeaderElectionNamespace: "n", RenewDeadline: 10 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	_ = lock.Create(t.Context(), resourcelock.LeaderElectionRecord{})

	var watches, other []string
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if watches, other = from.seen(); len(watches) == 2 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("watches came from %q, want one connection of the cache and one of the sources", watches)
		}
	}
	if len(other) != 1 || slices.Contains(watches, other[0]) {
		t.Errorf("watches came from %q and other requests from %q, want those from one more connection", watches, other)
	}
}

// managerOf returns a manager that never asks what the API server serves.
func managerOf(t *testing.T, config *rest.Config) manager.Manager {
	t.Helper()
	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	mapper.Add(ciliumv2.SchemeGroupVersion.WithKind(ciliumv2.CNKindDefinition), meta.RESTScopeRoot)
	mapper.Add(v1alpha1.GroupVersion.WithKind("PodIPBlock"), meta.RESTScopeRoot)
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme, Cache: CacheOptions(), NewCache: NewCache, NewClient: NewClient,
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mapper, nil },
		Metrics:        metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return mgr
}
