package informer

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/leaderelection"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/apiclient"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// origin is a request, and the connection it came from.
type origin struct{ what, addr string }

// Watches share no connection with writes, which share theirs with live reads and the Lease.
func TestConnections(t *testing.T) {
	came := make(chan origin, 100)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		came <- origin{r.Method + " " + path.Base(r.URL.Path), r.RemoteAddr}
		http.Error(w, "not now", http.StatusInternalServerError)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	mgr := managerOf(t, &rest.Config{Host: server.URL, QPS: -1, TLSClientConfig: rest.TLSClientConfig{Insecure: true}})

	sources, err := SourcesFrom(mgr, nil, ciliumnode.CRD, "kube-system", labels.Everything(), "")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = toolscache.ToListerWatcherWithContext(sources.CiliumNodes).WatchWithContext(t.Context(), metav1.ListOptions{Watch: true})
	if _, err := mgr.GetCache().GetInformer(t.Context(), &v1alpha1.PodIPBlock{}, cache.BlockUntilSynced(false)); err != nil {
		t.Fatal(err)
	}
	go func() { _ = mgr.GetCache().Start(t.Context()) }()
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

	// A list of all objects is one of the requests that begin a watch.
	isWatch := map[string]bool{"GET ciliumnodes": true, "GET podipblocks": true, "POST podipblocks": false, "GET b": false, "POST leases": false}
	seen, watches, other := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for len(seen) < len(isWatch) {
		select {
		case from := <-came:
			watch, known := isWatch[from.what]
			if !known {
				t.Fatalf("unexpected request %q", from.what)
			}
			seen[from.what] = true
			if watch {
				watches[from.addr] = true
			} else {
				other[from.addr] = true
			}
		case <-time.After(time.Minute):
			t.Fatalf("only %v were requested", seen)
		}
	}
	if len(watches) != 2 || len(other) != 1 || watches[slices.Collect(maps.Keys(other))[0]] {
		t.Errorf("watches came from %v and other requests from %v, want one connection of the cache, one of the sources, and a third", watches, other)
	}
}

// managerOf returns a manager that never asks for the API server's kinds.
func managerOf(t *testing.T, config *rest.Config) manager.Manager {
	t.Helper()
	scheme, err := apiclient.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme, Cache: CacheOptions(), NewCache: apiclient.NewCache, NewClient: apiclient.NewClient,
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return fixtures.ClusterKinds(), nil },
		Metrics:        metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return mgr
}
