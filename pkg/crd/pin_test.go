package crd_test

import (
	"cmp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

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
		"two":        {func(p *v1alpha1.PodIPPin) { p.Spec.PodName, p.Spec.PodNamespace = "web-0", "shop" }, "spec.nodeName"},
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

// The Cilium pool of a label's value says which namespace, key and value it is of.
func TestLabelPool(t *testing.T) {
	for owner, want := range map[string]string{
		"shop/vm.kubevirt.io/name=db": "zz.db.shop.vm.kubevirt.io.name.3-1.labels.cilium-pool.io",
		"shop/app=db":                 "zz.db.shop.app.0-1.labels.cilium-pool.io",
		"shop/my.app=db.eu":           "zz.db.eu.shop.my.app.0-2.labels.cilium-pool.io",
		"shop/a.b/c.d=e.f":            "zz.e.f.shop.a.b.c.d.2-2.labels.cilium-pool.io",
	} {
		name := crd.CiliumPoolOfOwner(owner)
		if name != want || crd.OwnerOfPool(name) != owner || crd.OldCiliumPoolOfOwner(owner) != "" {
			t.Errorf("%s has pool %s, which is of %q", owner, name, crd.OwnerOfPool(name))
		}
		spec := crd.PinSpec(fixtures.Prefix("10.0.0.4/32"), owner)
		if pin, err := crd.PinFrom(&v1alpha1.PodIPPin{ObjectMeta: metav1.ObjectMeta{Name: "10.0.0.4-32"}, Spec: spec}); err != nil || pin.Owner != owner {
			t.Errorf("the pin of %s is of %q: %v", owner, pin.Owner, err)
		}
	}
	for _, pool := range []string{
		"zz.labels.cilium-pool.io", "zz.0-1.labels.cilium-pool.io", "zz.db.app.0-1.labels.cilium-pool.io", "zz.db.shop.app.1-1.labels.cilium-pool.io",
		"zz.db.shop.app.0-0.labels.cilium-pool.io", "zz.db.shop.app.-1-3.labels.cilium-pool.io", "zz.db.shop.app.x.labels.cilium-pool.io",
		"zz.db.shop.app.9999999999999999999-1.labels.cilium-pool.io",
	} {
		if owner := crd.OwnerOfPool(pool); owner != "" {
			t.Errorf("pool %q is of %s", pool, owner)
		}
	}
}

// The Cilium pool of a pod is named after it, and no two pods have the same. Its new name comes after the
// pool of the agent's own addresses, for any name of the pod.
func TestPodPool(t *testing.T) {
	for pod, want := range map[string]string{
		"shop/web-0":       "web-0.shop",
		"shop/cassandra-0": "cassandra-0.shop",
		"shop/web.eu":      "web.eu.shop",
		"eu/web":           "web.eu",
		"pod/zz":           "zz.pod",
		"pods/zz.0":        "zz.0.pods",
	} {
		name, old := crd.CiliumPoolOfOwner(pod), crd.OldCiliumPoolOfOwner(pod)
		if name != "zz."+want+".pods.cilium-pool.io" || crd.OwnerOfPool(name) != pod || name < crd.DefaultCiliumPool {
			t.Errorf("%s has pool %s, which is of pod %q", pod, name, crd.OwnerOfPool(name))
		}
		if old != want+".pod.cilium-pool.io" || crd.OwnerOfPool(old) != pod {
			t.Errorf("%s had pool %s, which is of pod %q", pod, old, crd.OwnerOfPool(old))
		}
	}
	for _, pool := range []string{
		"", "default", "web.pod.cilium-pool.io", ".shop.pod.cilium-pool.io", "pod.cilium-pool.io",
		"web.shop.pods.cilium-pool.io", "zz.web.pods.cilium-pool.io", "zz.pods.cilium-pool.io",
	} {
		if pod := crd.OwnerOfPool(pool); pod != "" {
			t.Errorf("pool %q is of pod %s", pool, pod)
		}
	}
}

// A pool keeps addresses for the pods that both selectors pick. A fault of the field keeps no other pod from
// the pool.
func TestPodAddresses(t *testing.T) {
	const app = "app"
	selector := func(value string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{app: value}}
	}
	for name, test := range map[string]struct {
		is       v1alpha1.PodAddresses
		size     int32
		inCRD    bool
		pod      string // picked in namespace shop
		after    time.Duration
		problems []string
	}{
		"empty":          {problems: []string{"spec.podAddresses: Required value: name pods by podSelector or namespaceSelector"}},
		"of all":         {is: v1alpha1.PodAddresses{PodSelector: &metav1.LabelSelector{}}, problems: []string{"spec.podAddresses: Required value"}},
		"a namespace":    {is: v1alpha1.PodAddresses{NamespaceSelector: selector("shop")}, pod: "web", after: 168 * time.Hour},
		"both selectors": {is: v1alpha1.PodAddresses{PodSelector: selector("web"), NamespaceSelector: selector("shop"), ReleaseAfter: "30m"}, pod: "web", after: 30 * time.Minute},
		"another pod":    {is: v1alpha1.PodAddresses{PodSelector: selector("db")}, after: 168 * time.Hour},
		"elsewhere":      {is: v1alpha1.PodAddresses{NamespaceSelector: selector("db")}, after: 168 * time.Hour},
		"no duration": {
			is: v1alpha1.PodAddresses{NamespaceSelector: selector("shop"), ReleaseAfter: "1d"}, pod: "web", after: 168 * time.Hour,
			problems: []string{`spec.podAddresses.releaseAfter: Invalid value: "1d": is not a duration`},
		},
		"wrong selector": {
			is:       v1alpha1.PodAddresses{PodSelector: selector("-"), NamespaceSelector: selector("_")},
			problems: []string{"spec.podAddresses.podSelector.matchLabels", "spec.podAddresses.namespaceSelector.matchLabels"},
		},
		"blocks":  {size: 31, problems: []string{"spec.podAddresses: Forbidden: needs multi-pool or delegated-plugin mode, and blocks of single addresses"}},
		"in crd":  {size: 28, inCRD: true, problems: []string{"spec.podAddresses: Forbidden: needs multi-pool or delegated-plugin mode"}},
		"no more": {is: v1alpha1.PodAddresses{NamespaceSelector: selector("shop"), ReleaseAfter: "8761h"}, pod: "web", after: 168 * time.Hour, problems: []string{"spec.podAddresses.releaseAfter"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := defaults()
			d.CiliumPools, d.WholeBlocks = !test.inCRD, !test.inCRD
			p, err := crd.PoolFrom(object("p", v1alpha1.PodIPPoolSpec{IPv4: ipv4(cmp.Or(test.size, 32), "10.0.0.0/24"), PodAddresses: &test.is}), d)
			if err != nil {
				t.Fatal(err)
			}
			checkProblems(t, p.PolicyProblem, test.problems)
			for _, pod := range []string{"web", "other"} {
				want := test.pod == pod || test.pod != "" && test.is.PodSelector == nil
				if picks := p.Picks(labels.Set{app: pod}, labels.Set{app: "shop"}); picks != want {
					t.Errorf("it picks %s: %t", pod, picks)
				}
			}
			if p.PodAddresses != nil && p.PodAddresses.ReleaseAfter != test.after {
				t.Errorf("release after %s", p.PodAddresses.ReleaseAfter)
			}
		})
	}
}
