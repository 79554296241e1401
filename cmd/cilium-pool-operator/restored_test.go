package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/cilium-pool/cilium-pool-operator/pkg/apiclient"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane/cptest"
)

// lockOn returns the lock of a new process on a control plane, and its options.
func lockOn(t *testing.T, c *controlplane.Cluster) (*resourcelock.LeaseLock, *options) {
	t.Helper()
	o := parsed(t, "--leader-elect-namespace=kube-system")
	o.recovery = &state.Recovery{}
	o.end = func(error) {}
	lock, err := o.leaseLock(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	return lock, o
}

// A standby and a leader find that a real etcd was restored, and the next process holds changes back.
func TestRestoreOfRealEtcd(t *testing.T) {
	c := cptest.New(t, controlplane.Options{CRDs: []*apiextensionsv1.CustomResourceDefinition{}})
	data, snapshot := filepath.Join(c.Dir(), "data"), filepath.Join(t.TempDir(), "snapshot")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	offline := func(do func()) {
		t.Helper()
		must(errors.Join(c.KillAPIServer(), c.KillEtcd()))
		do()
		must(c.StartEtcd(t.Context()))
		must(c.StartAPIServer(t.Context()))
	}
	record := func(lock resourcelock.Interface) resourcelock.LeaderElectionRecord {
		return resourcelock.LeaderElectionRecord{HolderIdentity: lock.Identity(), LeaseDurationSeconds: 15, RenewTime: metav1.NewTime(time.Now())}
	}
	leader, _ := lockOn(t, c)
	standby, _ := lockOn(t, c)
	must(leader.Create(t.Context(), record(leader)))
	offline(func() { must(os.CopyFS(snapshot, os.DirFS(data))) })
	for range 5 {
		must(leader.Update(t.Context(), record(leader)))
	}
	_, _, err := standby.Get(t.Context())
	must(err)
	lists := false
	reads := &apiclient.Reads{Now: time.Now, Restored: func() { lists = true }}
	client := kubernetes.NewForConfigOrDie(c.Config()).CoordinationV1().RESTClient()
	blocks := toolscache.ToListerWatcherWithContext(reads.Of("PodIPBlock", toolscache.NewListWatchFromClient(client, "leases", "kube-system", fields.Everything())))
	last, err := blocks.ListWithContext(t.Context(), metav1.ListOptions{})
	must(err)
	watch := func() { // as a reflector does again
		t.Helper()
		events, err := blocks.WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: last.(*coordinationv1.LeaseList).ResourceVersion})
		must(err)
		events.Stop()
	}
	watch()
	if lists {
		t.Error("a list went back, though nothing was restored")
	}
	offline(func() { must(errors.Join(os.RemoveAll(data), os.CopyFS(data, os.DirFS(snapshot)))) })
	for name, lock := range map[string]*resourcelock.LeaseLock{"the standby": standby, "the leader": leader} {
		if _, _, err := lock.Get(t.Context()); !errors.Is(err, errRestored) {
			t.Errorf("%s reads the Lease: %v", name, err)
		}
	}
	if watch(); !lists {
		t.Error("a watch waits for a version that etcd has yet to reach")
	}
	next, o := lockOn(t, c)
	_, _, err = next.Get(t.Context())
	must(err)
	must(next.Update(t.Context(), record(next)))
	if !o.recovery.Certain() {
		t.Error("the next process changes nodes and blocks")
	}
}
