package state

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumpool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// A pod's own annotations take precedence over its namespace's, and annotations of a family over
// annotations for both, as in Cilium.
func TestAsked(t *testing.T) {
	tests := map[string]struct {
		pod, namespace map[string]string
		want           [2]string
	}{
		"nothing":           {},
		"both families":     {pod: map[string]string{poolAnnotation: "blue"}, want: [2]string{"blue", "blue"}},
		"one family":        {pod: map[string]string{v6PoolAnnotation: "blue"}, want: [2]string{ipalloc.IPv6: "blue"}},
		"its own first":     {pod: map[string]string{poolAnnotation: "blue", v4PoolAnnotation: "green"}, want: [2]string{"green", "blue"}},
		"the namespace":     {namespace: map[string]string{poolAnnotation: "blue"}, want: [2]string{"blue", "blue"}},
		"the pod first":     {pod: map[string]string{v4PoolAnnotation: "green"}, namespace: map[string]string{poolAnnotation: "blue"}, want: [2]string{"green", "blue"}},
		"back to default":   {pod: map[string]string{poolAnnotation: "default"}, namespace: map[string]string{poolAnnotation: "blue"}},
		"other annotations": {pod: map[string]string{"ipam.cilium.io/skip-masquerade": "true"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pods, nothing := NewPods(), PoolRequest{}
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "a", UID: "a", Annotations: test.pod}}
			pod.Spec.NodeName = "n"
			pods.Set(ReadPodWithRequest(pod), fixtures.Noon())
			namespace := PoolRequestOf(&metav1.ObjectMeta{Annotations: test.namespace})
			if nodes := pods.SetNamespace("team", namespace); (len(nodes) > 0) != (namespace != nothing) {
				t.Errorf("the namespace is news for %v", nodes)
			}
			if nodes := pods.SetNamespace("team", namespace); len(nodes) > 0 {
				t.Errorf("the same again is news for %v", nodes)
			}
			asked := pods.PoolRequests("n", nil)
			for _, f := range ipalloc.Families() {
				if got := asked.Of("team/a", f); got != test.want[f] {
					t.Errorf("%s: requests %q, want %q", f, got, test.want[f])
				}
			}
			if again := ReadPodWithRequest(pod); pods.Set(again, fixtures.Noon()) {
				t.Error("the same pod again is news")
			}
			pod.Annotations = map[string]string{poolAnnotation: "red"}
			if !pods.Set(ReadPodWithRequest(pod), fixtures.Noon()) || pods.PoolRequests("n", nil).Of("team/a", ipalloc.IPv4) != "red" {
				t.Error("another annotation is no news")
			}
			pods.SetNamespace("team", nothing)
			if len(pods.namespaces) > 0 {
				t.Errorf("namespaces are kept that request nothing: %v", pods.namespaces)
			}
		})
	}
}

// Pods that name no pool are selected by labels, as in Cilium: a pod that more than one
// pool selects gets no address at all.
func TestPicked(t *testing.T) {
	type labelled = map[string]string
	web, prod := labelled{"app": "web"}, labelled{"env": "prod"}
	six := fixtures.Picking("six", web, nil)
	six.MaskSize = [2]int{ipalloc.IPv6: six.MaskSize[ipalloc.IPv4]}
	strict, names := labelled{requireAnnotation: "true"}, labelled{poolAnnotation: "red"}
	tests := map[string]struct {
		pools            []*ciliumpool.View
		annotations, of  labelled // the pod's, and its namespace's
		want             string   // of IPv4
		wantSix          string
		unlabelled, gone bool // the pod has no label; its namespace is unknown
	}{
		"no pool picks it":        {},
		"by the pod":              {pools: []*ciliumpool.View{fixtures.Picking("blue", web, nil)}, want: "blue"},
		"by the namespace":        {pools: []*ciliumpool.View{fixtures.Picking("blue", nil, prod)}, want: "blue"},
		"by both":                 {pools: []*ciliumpool.View{fixtures.Picking("blue", web, prod)}, want: "blue"},
		"the namespace is not":    {pools: []*ciliumpool.View{fixtures.Picking("blue", web, web)}},
		"the pod is not":          {pools: []*ciliumpool.View{fixtures.Picking("blue", prod, prod)}},
		"all pods":                {pools: []*ciliumpool.View{fixtures.Picking("blue", labelled{}, nil)}, unlabelled: true, want: "blue"},
		"by its name":             {pools: []*ciliumpool.View{fixtures.Picking("blue", labelled{"io.kubernetes.pod.name": "a"}, nil)}, want: "blue"},
		"by its namespace's name": {pools: []*ciliumpool.View{fixtures.Picking("blue", labelled{"io.kubernetes.pod.namespace": "team"}, nil)}, want: "blue"},
		"the default one":         {pools: []*ciliumpool.View{fixtures.Picking("default", web, nil)}},
		"one of another family":   {pools: []*ciliumpool.View{six}, wantSix: "six"},
		"one for each family":     {pools: []*ciliumpool.View{fixtures.Picking("blue", web, nil), six}, want: "blue", wantSix: "six"},
		"two":                     {pools: []*ciliumpool.View{fixtures.Picking("blue", web, nil), fixtures.Picking("green", nil, prod)}, want: noPool},
		"two, and it names one":   {pools: []*ciliumpool.View{fixtures.Picking("blue", web, nil), fixtures.Picking("green", nil, prod)}, annotations: names, want: "red", wantSix: "red"},
		"annotations go first":    {pools: []*ciliumpool.View{fixtures.Picking("blue", web, nil)}, of: names, want: "red", wantSix: "red"},
		"must be picked, and is":  {pools: []*ciliumpool.View{fixtures.Picking("blue", web, nil)}, annotations: strict, want: "blue", wantSix: noPool},
		"must be picked":          {annotations: strict, want: noPool, wantSix: noPool},
		"all of it must":          {of: strict, want: noPool, wantSix: noPool},
		"no such namespace":       {pools: []*ciliumpool.View{fixtures.Picking("blue", nil, prod)}, gone: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "a", UID: "a", Annotations: test.annotations, Labels: labelled{"app": "web", "tier": ""}}}
			pod.Spec.NodeName = "n"
			if test.unlabelled {
				pod.Labels = nil
			}
			team := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team", Annotations: test.of, Labels: prod}}
			pods := NewPods()
			pods.Set(ReadPodWithRequest(pod), fixtures.Noon())
			if !test.gone {
				pods.SetNamespace("team", PoolRequestOf(&team.ObjectMeta))
			}
			asked := pods.PoolRequests("n", test.pools)
			if four, six := asked.Of("team/a", ipalloc.IPv4), asked.Of("team/a", ipalloc.IPv6); four != test.want || six != test.wantSix {
				t.Errorf("it requests %q and %q, want %q and %q", four, six, test.want, test.wantSix)
			}
		})
	}
}
