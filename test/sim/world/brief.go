package world

import (
	"fmt"
	"slices"
	"strings"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	ciliumv2alpha1 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// brief describes a version in one line: of a CiliumNode, what has changed.
func brief(v Version) string {
	s := fmt.Sprintf("%s %s @%d", v.Kind, v.Key, v.Version)
	if v.New == nil {
		return s + " deleted"
	}
	switch obj := v.New.(type) {
	case *ciliumv2.CiliumNode:
		old, _ := v.Old.(*ciliumv2.CiliumNode)
		return s + changes(old, obj)
	case *v1alpha1.PodIPBlock:
		s += " of " + obj.Spec.NodeName
		if obj.DeletionTimestamp != nil {
			s += " deleting"
		}
		for _, c := range obj.Status.Conditions {
			s += " " + c.Type + " " + c.Reason
			if c.Status != metav1.ConditionTrue {
				s += " " + string(c.Status)
			}
		}
	case *v1alpha1.PodIPPool:
		s += fmt.Sprintf(" generation %d %s %v", obj.Generation, crd.CiliumPoolOf(obj), obj.Spec.IPv4.CIDRs)
	case *ciliumv2alpha1.CiliumPodIPPool:
		s += fmt.Sprintf(" %v v4 %v v6 %v pods %v namespaces %v", obj.Labels, obj.Spec.IPv4, obj.Spec.IPv6, obj.Spec.PodSelector, obj.Spec.NamespaceSelector)
	case *corev1.Namespace:
		s += fmt.Sprintf(" %v %v", obj.Labels, obj.Annotations)
	case *corev1.Node:
		s += fmt.Sprintf(" %v %v %v %v", obj.Labels, obj.Annotations, obj.Spec.Taints, obj.Status.Addresses)
	case *corev1.Pod:
		s += fmt.Sprintf(" on %s %s %v", obj.Spec.NodeName, obj.Status.Phase, obj.Status.PodIPs)
		if len(obj.Annotations)+len(obj.Labels) > 0 {
			s += fmt.Sprintf(" asks %v %v", obj.Annotations, obj.Labels)
		}
	}
	return s
}

func changes(old, now *ciliumv2.CiliumNode) string {
	if old == nil {
		old = &ciliumv2.CiliumNode{}
	}
	s := changed("pool", old.Spec.IPAM.Pool, now.Spec.IPAM.Pool) +
		changed("used", old.Status.IPAM.Used, now.Status.IPAM.Used) +
		changed("release", old.Status.IPAM.ReleaseIPs, now.Status.IPAM.ReleaseIPs)
	if a, b := fmt.Sprint(old.Spec.IPAM.PodCIDRs), fmt.Sprint(now.Spec.IPAM.PodCIDRs); a != b {
		s += " podCIDRs " + b
	}
	if a, b := fmt.Sprint(old.Spec.IPAM.Pools), fmt.Sprint(now.Spec.IPAM.Pools); a != b {
		s += " pools " + b
	}
	return s
}

// changed describes what was added, removed and changed.
func changed[V comparable](what string, old, now map[string]V) string {
	var parts []string
	for _, key := range sortedKeys(now) {
		was, there := old[key]
		switch value := strings.Trim(fmt.Sprint(now[key]), "{ }"); {
		case there && was == now[key]:
		case value == "":
			parts = append(parts, "+"+key)
		default:
			parts = append(parts, "+"+key+"="+value)
		}
	}
	for _, key := range sortedKeys(old) {
		if _, still := now[key]; !still {
			parts = append(parts, "-"+key)
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return " " + what + " " + strings.Join(slices.Clip(parts), " ")
}
