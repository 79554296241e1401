package clusterread

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
)

// says is a cluster of one Lease and one ConfigMap. "": it is not there; "-": it is empty; "!": it
// may not be read.
type says struct {
	client.Reader
	lease, config string
	err           error
}

func (s says) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	what := s.config
	if _, ok := o.(*coordinationv1.Lease); ok {
		what = s.lease
	}
	resource := schema.GroupResource{Resource: "things"}
	switch {
	case s.err != nil:
		return s.err
	case what == "":
		return apierrors.NewNotFound(resource, key.Name)
	case what == "!":
		return apierrors.NewForbidden(resource, key.Name, nil)
	case what == "-":
		return nil
	}
	switch o := o.(type) {
	case *coordinationv1.Lease:
		o.ObjectMeta = metav1.ObjectMeta{
			Labels: map[string]string{"cilium-pool.io/mode": what}, Annotations: map[string]string{"cilium-pool.io/settings": "{}"},
		}
	case *corev1.ConfigMap:
		o.Data = map[string]string{"ipam": what}
	}
	return nil
}

func (says) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

func TestFind(t *testing.T) {
	const lease, config = "Lease network/op", "ConfigMap kube-system/cilium-config"
	const none, denied, bare = "there is no " + lease, lease + " may not be read", lease + " has no annotation cilium-pool.io/settings"
	tests := map[string]struct {
		says says
		want Operator
	}{
		"nothing":                       {says{}, Operator{Mode: ciliumnode.CRD, WhyNoSettings: none}},
		"the operator":                  {says{lease: "multi-pool"}, Operator{Mode: ciliumnode.MultiPool, ModeSource: lease, Published: "{}"}},
		"the operator before Cilium":    {says{lease: "crd", config: "kubernetes"}, Operator{Mode: ciliumnode.CRD, ModeSource: lease, Published: "{}"}},
		"an operator without the label": {says{lease: "-", config: "kubernetes"}, Operator{Mode: ciliumnode.Kubernetes, ModeSource: config, WhyNoSettings: bare}},
		"Cilium":                        {says{config: "multi-pool\n"}, Operator{Mode: ciliumnode.MultiPool, ModeSource: config, WhyNoSettings: none}},
		"Cilium in a mode of its own":   {says{config: "cluster-pool"}, Operator{Mode: ciliumnode.CRD, WhyNoSettings: none}},
		"Cilium, without a mode":        {says{config: "-"}, Operator{Mode: ciliumnode.CRD, WhyNoSettings: none}},
		"the Lease is denied":           {says{lease: "!"}, Operator{Mode: ciliumnode.CRD, UnreadModeSource: lease, WhyNoSettings: denied}},
		"the Lease is denied, no need":  {says{lease: "!", config: "kubernetes"}, Operator{Mode: ciliumnode.Kubernetes, ModeSource: config, WhyNoSettings: denied}},
		"both are denied":               {says{lease: "!", config: "!"}, Operator{Mode: ciliumnode.CRD, UnreadModeSource: lease, WhyNoSettings: denied}},
		"the settings are denied":       {says{config: "!"}, Operator{Mode: ciliumnode.CRD, UnreadModeSource: config, WhyNoSettings: none}},
	}
	withoutSettings := cmpopts.IgnoreFields(Operator{}, "Settings")
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	where := Where{LeaseNamespace: "network", LeaseName: "op", CiliumNamespace: "kube-system"}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.want.Lease = client.ObjectKey{Namespace: "network", Name: "op"}
			got := Operator{}
			err := got.find(t.Context(), test.says, where, now)
			if diff := cmp.Diff(test.want, got, withoutSettings); diff != "" || err != nil {
				t.Errorf("error %v, found (-want +got):\n%s", err, diff)
			}
		})
	}
	if _, err := Find(t.Context(), says{lease: "quantum"}, where, now); err == nil || !strings.Contains(err.Error(), `mode "quantum", which this version does not know`) {
		t.Errorf("a mode of tomorrow: error %v", err)
	}
	for lease, want := range map[string]Operator{
		"quantum": {Mode: ciliumnode.Kubernetes, ModeSource: "--mode", Published: "{}"},
		"!":       {Mode: ciliumnode.Kubernetes, ModeSource: "--mode", WhyNoSettings: denied},
	} {
		where.Mode = "kubernetes"
		got := Operator{}
		err := got.find(t.Context(), says{lease: lease}, where, now)
		want.Lease = client.ObjectKey{Namespace: "network", Name: "op"}
		if diff := cmp.Diff(want, got, withoutSettings); diff != "" || err != nil {
			t.Errorf("in a mode given, with Lease %s: error %v, found (-want +got):\n%s", lease, err, diff)
		}
	}
	broken := errors.New("no way")
	if _, err := Find(t.Context(), says{err: broken}, where, now); !errors.Is(err, broken) {
		t.Errorf("an API server that fails: error %v", err)
	}
}

// A Lease whose holder's clock was ahead is held no longer than another one.
func TestHeld(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		renewed time.Duration // from now
		want    bool
	}{
		"just now":          {0, true},
		"by a clock behind": {-20 * time.Second, true},
		"by a clock ahead":  {20 * time.Second, true},
		"long ago":          {-time.Hour, false},
		"in ten years":      {87600 * time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			lease := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
				HolderIdentity: new("a"), LeaseDurationSeconds: new(int32(15)), RenewTime: &metav1.MicroTime{Time: now.Add(test.renewed)},
			}}
			if got := leaseIsHeld(lease, now); got != test.want {
				t.Errorf("held: %t", got)
			}
		})
	}
}

// leases answers Get with a Lease, or an error.
type leases struct {
	client.Reader
	spec coordinationv1.LeaseSpec
	err  error
}

func (l leases) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	o.(*coordinationv1.Lease).Spec = l.spec
	return l.err
}

// An operator leads while it renews its Lease, also beside a clock that is wrong; a Lease that may not be read is no proof.
func TestLeader(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	renewed := func(ago time.Duration) coordinationv1.LeaseSpec {
		at := metav1.NewMicroTime(now.Add(-ago))
		return coordinationv1.LeaseSpec{HolderIdentity: ptr.To("op"), RenewTime: &at, LeaseDurationSeconds: ptr.To[int32](15)}
	}
	leaseKind := schema.GroupResource{Resource: "leases"}
	const none = "no operator leads, so nothing changes until one does: "
	for name, test := range map[string]struct {
		first, then leases
		want        string
	}{
		"one leads":                 {leases{spec: renewed(10 * time.Second)}, leases{spec: renewed(10 * time.Second)}, ""},
		"it has gone":               {leases{spec: renewed(time.Minute)}, leases{spec: renewed(time.Minute)}, none + "op has not renewed Lease a/b for 60s"},
		"our clock is ahead":        {leases{spec: renewed(time.Minute)}, leases{spec: renewed(55 * time.Second)}, ""},
		"it was released":           {leases{}, leases{}, none + "no operator holds Lease a/b"},
		"there is no Lease":         {leases{}, leases{err: apierrors.NewNotFound(leaseKind, "b")}, none + "there is no Lease a/b (-n and --lease name another)"},
		"the Lease may not be read": {leases{}, leases{err: apierrors.NewForbidden(leaseKind, "b", nil)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var looks [2]Objects
			for i, c := range []leases{test.first, test.then} {
				var err error
				if looks[i].Leader, err = readLeader(t.Context(), c, client.ObjectKey{Namespace: "a", Name: "b"}, now); err != nil {
					t.Fatal(err)
				}
			}
			looks[1].DateBackTo(&looks[0])
			if got := looks[1].Leader.Missing(); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}
