package informer

import (
	"errors"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/cilium-pool/cilium-pool-operator/pkg/apiclient"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/frrconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/scheduling"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// SourcesFrom returns the sources that the feed lists and watches itself, over a connection of its
// own, which reads follows. It watches the FRRConfigurations of frrNamespace; "": none.
func SourcesFrom(mgr manager.Manager, reads *apiclient.Reads, mode ciliumnode.Mode, agentNamespace string, agents labels.Selector, frrNamespace string) (Sources, error) {
	connection, err := apiclient.OwnConnection(mgr.GetConfig())
	if err != nil {
		return Sources{}, err
	}
	server, _, err := rest.DefaultServerUrlFor(mgr.GetConfig())
	if err != nil {
		return Sources{}, err
	}
	l := apiclient.Lists{Config: mgr.GetConfig(), HTTP: connection, Scheme: mgr.GetScheme(), Reads: reads}
	var errs []error
	selecting := func(kind schema.GroupVersionKind, resource, namespace string, selector labels.Selector, field fields.Selector) toolscache.ListerWatcher {
		source, err := l.Of(kind, resource, namespace, selector, field)
		errs = append(errs, err)
		return source
	}
	every := func(kind schema.GroupVersionKind, resource string) toolscache.ListerWatcher {
		return selecting(kind, resource, metav1.NamespaceAll, labels.Everything(), fields.Everything())
	}
	serves := func(kind schema.GroupVersionKind) func() (bool, error) {
		return func() (bool, error) { return Serves(mgr.GetRESTMapper(), kind) }
	}
	pods, err := l.BoundPods(state.PodFields())
	pod := corev1.SchemeGroupVersion.WithKind("Pod")
	s := Sources{
		Pods:        pods,
		Unscheduled: selecting(pod, "pods", metav1.NamespaceAll, labels.Everything(), scheduling.UnscheduledFields()),
		Agents:      selecting(pod, "pods", agentNamespace, agents, fields.Everything()),
		CiliumNodes: every(mode.Resource()),
		Services:    every(corev1.SchemeGroupVersion.WithKind("Service"), "services"),

		Endpoints: selecting(discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"), "endpointslices", metav1.NamespaceDefault,
			labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: "kubernetes"}), fields.Everything()),
		APIServer:            server.Hostname(),
		HasServiceCIDRs:      serves(networkingv1.SchemeGroupVersion.WithKind("ServiceCIDR")),
		HasLoadBalancerPools: serves(ciliumv2.SchemeGroupVersion.WithKind(ciliumv2.PoolKindDefinition)),
	}
	if mode.ManyPools() {
		source, err := l.PodIPPools()
		errs = append(errs, err)
		s.CiliumPools = source
		s.HasCiliumPools = func() (bool, error) { return served(apiclient.ServedPodIPPools(mgr.GetRESTMapper())) }
	}
	if frrNamespace != "" {
		s.HasFRRConfigurations = serves(frrconfig.Kind)
		s.FRRConfigurations = selecting(frrconfig.Kind, frrconfig.Plural, frrNamespace, labels.Everything(), fields.Everything())
	}
	return s, errors.Join(append(errs, err)...)
}

// Serves checks whether the API server serves a kind.
func Serves(mapper meta.RESTMapper, kind schema.GroupVersionKind) (bool, error) {
	return served(mapper.RESTMapping(kind.GroupKind(), kind.Version))
}

func served[T any](_ T, err error) (bool, error) {
	if meta.IsNoMatchError(err) {
		return false, nil
	}
	return err == nil, err
}
