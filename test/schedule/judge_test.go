package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
)

// story reports a change to a judge each second.
type story struct {
	*judge
	pods map[string]*corev1.Pod
	at   uint64
}

func (s *story) tell(kind invariant.Kind, name string, was, is client.Object) {
	s.at++
	s.step(invariant.Change{Kind: kind, Name: name, Version: s.at, Received: time.Unix(int64(s.at), 0), Old: was, New: is})
}

func addresses(n int) corev1.ResourceList {
	return corev1.ResourceList{v1alpha1.IPv4Resource: *resource.NewQuantity(int64(n), resource.DecimalSI)}
}

func (s *story) node(name, zone string, offer int, cordoned bool) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{corev1.LabelTopologyZone: zone}}}
	n.Spec.Unschedulable, n.Status.Allocatable = cordoned, addresses(offer)
	s.tell(invariant.KindNode, name, nil, n)
}

// has sets the addresses of a node: free ones, then marked ones.
func (s *story) has(name string, free, marked int) {
	cn := &ciliumv2.CiliumNode{}
	cn.Spec.IPAM.Pool, cn.Status.IPAM.ReleaseIPs = ipamtypes.AllocationMap{}, map[string]ipamtypes.IPReleaseStatus{}
	for i := range free + marked {
		a := fmt.Sprintf("10.0.0.%d", i)
		cn.Spec.IPAM.Pool[a] = ipamtypes.AllocationIP{}
		if i >= free {
			cn.Status.IPAM.ReleaseIPs[a] = "marked-for-release"
		}
	}
	s.tell(invariant.KindCiliumNode, name, nil, cn)
}

func (s *story) pod(name string, edit func(*corev1.Pod)) {
	p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: addresses(1)}}}}}
	edit(p)
	was := s.pods[name]
	s.pods[name] = p
	if was == nil {
		s.tell(invariant.KindPod, "default/"+name, nil, p)
	} else {
		s.tell(invariant.KindPod, "default/"+name, was, p)
	}
}

func (s *story) pending(name, zone string) {
	s.pod(name, func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: zone} })
}

func (s *story) bound(name, node string) { s.pod(name, func(p *corev1.Pod) { p.Spec.NodeName = node }) }

func (s *story) gone(name string) {
	s.tell(invariant.KindPod, "default/"+name, s.pods[name], nil)
	delete(s.pods, name)
}

func (s *story) pass(d time.Duration) {
	for range int(d / time.Second) {
		s.node("elsewhere", "north", 0, false)
	}
}

func TestJudge(t *testing.T) {
	for name, test := range map[string]struct {
		tell func(*story)
		want string
	}{
		"a pod for each address": {tell: func(s *story) { s.has("a", 2, 0); s.node("a", "east", 2, false); s.bound("p", "a"); s.bound("q", "a") }},
		"one pod more":           {tell: func(s *story) { s.has("a", 1, 0); s.bound("p", "a"); s.bound("q", "a") }, want: wrongBind},
		"one after another":      {tell: func(s *story) { s.has("a", 1, 0); s.bound("p", "a"); s.gone("p"); s.bound("q", "a") }},
		"no CiliumNode":          {tell: func(s *story) { s.node("a", "east", 1, false); s.bound("p", "a") }, want: wrongBind},
		"the CiliumNode is gone": {tell: func(s *story) { s.has("a", 1, 0); s.tell(invariant.KindCiliumNode, "a", nil, nil); s.bound("p", "a") }, want: wrongBind},
		"the address is marked":  {tell: func(s *story) { s.has("a", 0, 1); s.bound("p", "a") }, want: wrongBind},
		"an offer above":         {tell: func(s *story) { s.has("a", 3, 0); s.node("a", "east", 4, false) }, want: overOffer},
		"a mark under an offer":  {tell: func(s *story) { s.has("a", 3, 0); s.node("a", "east", 3, false); s.has("a", 2, 1) }, want: overOffer},
		"an offer of requests": {tell: func(s *story) {
			s.has("a", 2, 0)
			s.bound("p", "a")
			s.bound("q", "a")
			s.node("a", "east", 2, false)
			s.has("a", 1, 1)
		}},
		"pending beside one":      {tell: func(s *story) { s.node("a", "east", 1, false); s.pending("p", "east"); s.pass(bound + time.Second) }, want: waited},
		"pending beside a cordon": {tell: func(s *story) { s.node("a", "east", 1, true); s.pending("p", "east"); s.pass(2 * bound) }},
		"of another zone":         {tell: func(s *story) { s.node("a", "east", 1, false); s.pending("p", "west"); s.pass(2 * bound) }},
		"a marked address is a pod's": {tell: func(s *story) {
			s.has("a", 2, 0)
			s.bound("p", "a")
			s.pod("p", func(p *corev1.Pod) { p.Spec.NodeName, p.Status.PodIP = "a", "10.0.0.1" })
			s.has("a", 1, 1)
			s.bound("q", "a")
		}},
		"one after another has completed": {tell: func(s *story) {
			s.has("a", 1, 0)
			s.bound("p", "a")
			s.pod("p", func(p *corev1.Pod) { p.Spec.NodeName, p.Status.Phase = "a", corev1.PodSucceeded })
			s.bound("q", "a")
		}},
		"taken in between": {tell: func(s *story) {
			s.has("a", 1, 0)
			s.node("a", "east", 1, false)
			s.pending("p", "east")
			s.pass(bound - 5*time.Second)
			s.bound("q", "a")
			s.gone("q")
			s.pass(bound - 5*time.Second)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &story{judge: newJudge(), pods: map[string]*corev1.Pod{}}
			test.tell(s)
			kinds := make([]string, 0, len(s.findings))
			for _, f := range s.findings {
				kind, _, _ := strings.Cut(f, ":")
				kinds = append(kinds, kind)
			}
			if strings.Join(kinds, ", ") != test.want {
				t.Errorf("found %q, want %q", s.findings, test.want)
			}
		})
	}
}
