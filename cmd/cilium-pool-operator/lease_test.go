package main

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
)

// A process that acquires the Lease writes its settings in the same write, replaces the previous
// leader's, and touches no other annotation.
func TestLeaseHasSettings(t *testing.T) {
	server := fake.NewClientset()
	lead := func(args ...string) string {
		o := parsed(t, append([]string{"--leader-elect-namespace=network"}, args...)...)
		if err := o.validate(); err != nil {
			t.Fatal(err)
		}
		lock, err := o.leaseLock(&rest.Config{Host: "https://192.0.2.1"})
		if err != nil {
			t.Fatal(err)
		}
		to, ok := lock.Client.(annotating)
		if !ok {
			t.Fatalf("Leases are written by %T", lock.Client)
		}
		to.LeasesGetter = server.CoordinationV1()
		lock.Client = to
		record := resourcelock.LeaderElectionRecord{HolderIdentity: lock.Identity(), LeaseDurationSeconds: 15, RenewTime: metav1.NewTime(time.Now())}
		if _, _, err := lock.Get(t.Context()); err != nil {
			err = lock.Create(t.Context(), record)
			if err != nil {
				t.Fatal(err)
			}
		} else if err := lock.Update(t.Context(), record); err != nil {
			t.Fatal(err)
		}
		lease, err := server.CoordinationV1().Leases("network").Get(t.Context(), "cilium-pool-operator", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if lease.Labels[v1alpha1.ModeLabel] != o.mode || *lease.Spec.HolderIdentity != lock.Identity() {
			t.Errorf("the Lease has labels %v and is held by %s", lease.Labels, *lease.Spec.HolderIdentity)
		}
		settings := lease.Annotations[v1alpha1.SettingsAnnotation]
		lease.Annotations["example.com/kept"] = "yes"
		if _, err := server.CoordinationV1().Leases("network").Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		return settings
	}
	first := lead("--cooldown=5s")
	second := lead("--cooldown=37s", "--mode=multi-pool")
	for body, want := range map[string]string{first: "5s", second: "37s"} {
		var got struct {
			Cooldown string `json:"cooldown"`
		}
		if err := json.Unmarshal([]byte(body), &got); err != nil || got.Cooldown != want {
			t.Errorf("error %v, published %s, want cooldown %s", err, body, want)
		}
	}
	lease, err := server.CoordinationV1().Leases("network").Get(t.Context(), "cilium-pool-operator", metav1.GetOptions{})
	if err != nil || lease.Annotations["example.com/kept"] != "yes" {
		t.Errorf("error %v, annotations %v", err, lease.Annotations)
	}
}

// Each flag is published under its name, unless it concerns only the process itself.
func TestFlagsArePublished(t *testing.T) {
	process := map[string]bool{
		"kubeconfig": true, "kube-api-qps": true, "kube-api-burst": true, "leader-elect": true, "leader-elect-namespace": true,
		"leader-elect-name": true, "leader-elect-lease-duration": true, "metrics-bind-address": true, "metrics-secure": true,
		"metrics-cert-dir": true, "health-probe-bind-address": true, "log-level": true, "log-format": true, "node-workers": true,
		"scheduling-webhook": true, "scheduling-webhook-bind-address": true,
		"version": true,
	}
	o := defaultOptions()
	body, err := o.settings.Publish()
	if err != nil {
		t.Fatal(err)
	}
	published := map[string]any{}
	if err := json.Unmarshal([]byte(body), &published); err != nil {
		t.Fatal(err)
	}
	delete(published, "commit")
	want, got := map[string]bool{"version": true}, map[string]bool{}
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.addFlags(fs)
	fs.VisitAll(func(f *pflag.Flag) {
		if !process[f.Name] {
			want[f.Name] = true
		}
	})
	for key := range published {
		got[key] = true
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("flags (-of the operator +published):\n%s", diff)
	}
}

// The lock must not modify the config that all requests share: the Lease's timeout would
// end watches and long lists, and hide a dead connection.
func TestLeaseLockKeepsConfig(t *testing.T) {
	config := &rest.Config{Host: "https://192.0.2.1", UserAgent: "cilium-pool-operator/test"}
	if _, err := parsed(t, "--leader-elect-namespace=network").leaseLock(config); err != nil {
		t.Fatal(err)
	}
	if config.Timeout != 0 || config.UserAgent != "cilium-pool-operator/test" {
		t.Errorf("all requests have timeout %s and user agent %q", config.Timeout, config.UserAgent)
	}
}
