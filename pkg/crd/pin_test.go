package crd_test

import (
	"strings"
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

func TestPinFrom(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*v1alpha1.PodIPPin)
		want   string
	}{
		"valid":      {func(*v1alpha1.PodIPPin) {}, ""},
		"no CIDR":    {func(p *v1alpha1.PodIPPin) { p.Spec.CIDR = "x" }, "spec.cidr"},
		"other name": {func(p *v1alpha1.PodIPPin) { p.Name = "10.0.0.0-30" }, "metadata.name"},
		"no node":    {func(p *v1alpha1.PodIPPin) { p.Spec.NodeName = "" }, "spec.nodeName"},
		"half a pod": {func(p *v1alpha1.PodIPPin) { p.Spec.NodeName, p.Spec.PodName = "", "web-0" }, "spec.nodeName"},
	} {
		t.Run(name, func(t *testing.T) {
			obj := fixtures.Pin("10.0.0.4/30", "n")
			test.change(obj)
			pin, err := crd.PinFrom(obj)
			if test.want == "" {
				if want := (crd.Pin{CIDR: fixtures.Prefix("10.0.0.4/30"), Node: "n"}); err != nil || pin != want {
					t.Errorf("%v, %v", pin, err)
				}
			} else if err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("error is %v, want one of %s", err, test.want)
			}
		})
	}
}

// The Cilium pool of a pod is named after it, and no two pods have the same.
func TestPodPool(t *testing.T) {
	for pod, want := range map[string]string{
		"shop/web-0":  "web-0.shop.pod.cilium-pool.io",
		"shop/web.eu": "web.eu.shop.pod.cilium-pool.io",
		"eu/web":      "web.eu.pod.cilium-pool.io",
	} {
		if got := crd.PodPool(pod); got != want || crd.PodOfPool(got) != pod {
			t.Errorf("%s has pool %s, want %s; that is of pod %q", pod, got, want, crd.PodOfPool(got))
		}
	}
	for _, pool := range []string{"", "default", "web.pod.cilium-pool.io", ".shop.pod.cilium-pool.io", "pod.cilium-pool.io"} {
		if pod := crd.PodOfPool(pool); pod != "" {
			t.Errorf("pool %q is of pod %s", pool, pod)
		}
	}
}
