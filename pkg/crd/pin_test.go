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
