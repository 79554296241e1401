package clusterread

import (
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/exclude"
)

// readServices reads the addresses of Services, and where they come from. Clusters older than
// Kubernetes 1.33 serve no ServiceCIDRs, and CiliumLoadBalancerIPPools may be missing.
func (l *lists) readServices(s *Objects) {
	each(l, "Services", &corev1.ServiceList{}, func(svc *corev1.Service) {
		if assigned, requested := exclude.OfService(svc); len(assigned)+len(requested) > 0 {
			s.Services = append(s.Services, corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Namespace: svc.Namespace, Name: svc.Name, CreationTimestamp: svc.CreationTimestamp},
				Spec:       corev1.ServiceSpec{ExternalIPs: svc.Spec.ExternalIPs, LoadBalancerIP: svc.Spec.LoadBalancerIP},
				Status:     svc.Status,
			})
		}
	})
	eachServed(l, "CiliumLoadBalancerIPPools", &ciliumv2.CiliumLoadBalancerIPPoolList{}, func(p *ciliumv2.CiliumLoadBalancerIPPool) {
		s.LoadBalancerPools = append(s.LoadBalancerPools, *p)
	})
	l.readNeighbors(s)
	eachServed(l, "ServiceCIDRs", &networkingv1.ServiceCIDRList{}, func(c *networkingv1.ServiceCIDR) {
		s.ServiceCIDRs = append(s.ServiceCIDRs, networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: c.Name}, Spec: c.Spec})
	})
}

// readNeighbors reads further addresses of the cluster, as far as they may be read: not all who may read Services may.
func (l *lists) readNeighbors(s *Objects) {
	eachReadable(l, "EndpointSlices", &discoveryv1.EndpointSliceList{}, func(e *discoveryv1.EndpointSlice) { s.Endpoints = append(s.Endpoints, *e) },
		client.InNamespace(metav1.NamespaceDefault), client.MatchingLabels{discoveryv1.LabelServiceName: "kubernetes"})
	pools := &unstructured.UnstructuredList{}
	pools.SetGroupVersionKind(schema.GroupVersionKind{Group: "metallb.io", Version: "v1beta1", Kind: exclude.MetalLBPool})
	eachReadable(l, "IPAddressPools", pools, func(o *unstructured.Unstructured) {
		addresses, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "addresses")
		s.Neighbors.Put(exclude.Claimant{Kind: exclude.MetalLBPool, Name: o.GetNamespace() + "/" + o.GetName()}, exclude.OfMetalLBPool(addresses))
	})
	eachReadable(l, "CiliumEgressGatewayPolicies", &ciliumv2.CiliumEgressGatewayPolicyList{}, func(p *ciliumv2.CiliumEgressGatewayPolicy) {
		s.Neighbors.Put(exclude.Claimant{Kind: exclude.EgressPolicy, Name: p.Name}, exclude.OfEgressPolicy(p))
	})
}
