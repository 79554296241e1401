package crd_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
)

func compareNetip() cmp.Option {
	return cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})
}

// checkEqual reports how got differs from want.
func checkEqual(t testing.TB, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got, compareNetip()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func defaults() crd.Defaults {
	return crd.Defaults{Policy: expand.DefaultPolicy(), Cooldown: time.Minute, NodeGoneCooldown: 10 * time.Minute}
}

// birth is when test pools are created; older ones have a lower day.
func birth(day int) metav1.Time {
	return metav1.NewTime(time.Date(2026, 1, day, 0, 0, 0, 0, time.UTC))
}

func cidrs(list ...string) []v1alpha1.PoolCIDR {
	var out []v1alpha1.PoolCIDR
	for _, s := range list {
		out = append(out, v1alpha1.PoolCIDR{CIDR: s})
	}
	return out
}

func ipv4(blockSize int32, list ...string) *v1alpha1.IPv4Ranges {
	return &v1alpha1.IPv4Ranges{CIDRs: cidrs(list...), BlockSize: blockSize}
}

func ipv6(blockSize int32, list ...string) *v1alpha1.IPv6Ranges {
	return &v1alpha1.IPv6Ranges{CIDRs: cidrs(list...), BlockSize: blockSize}
}

func object(name string, spec v1alpha1.PodIPPoolSpec) *v1alpha1.PodIPPool {
	return &v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: birth(1)}, Spec: spec}
}

func poolFrom(t testing.TB, obj *v1alpha1.PodIPPool) *crd.Pool {
	t.Helper()
	p, err := crd.PoolFrom(obj, defaults())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// frozenPool reads a pool that cannot serve.
func frozenPool(t testing.TB, obj *v1alpha1.PodIPPool) *crd.Pool {
	t.Helper()
	p, err := crd.PoolFrom(obj, defaults())
	if err == nil || !p.Frozen() {
		t.Fatalf("it serves: %v", err)
	}
	return p
}

func pool(t testing.TB, spec v1alpha1.PodIPPoolSpec) *crd.Pool {
	t.Helper()
	return poolFrom(t, object("p", spec))
}

func prefixes(list ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func ptr[T any](v T) *T { return &v }

func reserve(cidrs ...string) []v1alpha1.ReservedCIDR {
	var out []v1alpha1.ReservedCIDR
	for _, c := range cidrs {
		out = append(out, v1alpha1.ReservedCIDR{CIDR: c})
	}
	return out
}
