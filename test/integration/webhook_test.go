package integration

import (
	"fmt"
	"strconv"
	"testing"

	ciliumv2alpha1 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2alpha1"
	slimmetav1 "github.com/cilium/cilium/pkg/k8s/slim/k8s/apis/meta/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// webhooked installs the chart's webhook of multi-pool mode, and returns its name. Its Service leads
// to a port of this host.
func (e *env) webhooked(port int) types.NamespacedName {
	e.TB.Helper()
	name := types.NamespacedName{Namespace: harness.ChartNamespace, Name: "multi-pool-webhook"}
	all, err := harness.RenderChart(e.Ctx, harness.Helm4, "--set", "fullnameOverride=multi-pool,mode=multi-pool,scheduling.enabled=true,scheduling.admission=Webhook")
	e.Must(err)
	create := func(o client.Object) {
		e.Create(o)
		e.TB.Cleanup(func() { e.Must(client.IgnoreNotFound(e.Client.Delete(e.Ctx, o))) })
	}
	for _, o := range all {
		switch o.GetKind() {
		case "Secret":
			create(o)
		case "MutatingWebhookConfiguration":
			config := &admissionv1.MutatingWebhookConfiguration{}
			e.Must(runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, config))
			config.Webhooks[0].ClientConfig.Service.Port = ptr.To(int32(port))
			create(config)
		}
	}
	create(&corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost", Ports: []corev1.ServicePort{{Port: int32(port)}}},
	})
	return name
}

// TestWebhook checks that the webhook makes pods request an address of the Cilium pool that agents
// will take it of, also where a podSelector chooses it, and that pods are created without it while
// the operator is down.
func TestWebhook(t *testing.T) {
	e := newEnv(t)
	port, err := controlplane.FreePort("127.0.0.1")
	e.Must(err)
	s := quickMultiPool()
	s.OfferFamilies = []ipalloc.Family{ipalloc.IPv4}
	s.Webhook, s.WebhookAddress = e.webhooked(port), "127.0.0.1:"+strconv.Itoa(port)
	port, err = controlplane.FreePort("127.0.0.1")
	e.Must(err)
	e.health = "127.0.0.1:" + strconv.Itoa(port)
	red := &ciliumv2alpha1.CiliumPodIPPool{ObjectMeta: metav1.ObjectMeta{Name: "red"}}
	red.Spec.IPv4 = &ciliumv2alpha1.IPv4PoolSpec{CIDRs: []ciliumv2alpha1.PoolCIDR{"10.66.0.0/24"}, MaskSize: 28}
	red.Spec.PodSelector = &slimmetav1.LabelSelector{MatchLabels: map[string]string{"team": "red"}}
	e.Create(red)
	requests := func(mod func(*corev1.Pod)) string {
		p := harness.BoundPod("", "asks-", nil)
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{}
		mod(p)
		e.Must(client.NewDryRunClient(e.Client).Create(e.Ctx, p))
		got := p.Spec.Containers[0].Resources
		for name, n := range got.Requests {
			if limit := got.Limits[name]; limit.Cmp(n) == 0 {
				return string(name) + " " + n.String()
			}
		}
		return fmt.Sprint(len(got.Requests))
	}
	plain := func(*corev1.Pod) {}
	const one = "cilium-pool.io/ipv4 1"
	asks := func(what, want string, mod func(*corev1.Pod)) {
		t.Helper()
		e.Eventually(what, func() error {
			if got := requests(mod); got != want {
				return fmt.Errorf("requests %q, want %q", got, want)
			}
			return nil
		})
	}
	asks("no operator runs", "0", plain)
	ready := func(path string, want bool) {
		t.Helper()
		e.Eventually(path, func() error {
			if answers(e.Ctx, "http://"+e.health+"/readyz"+path) != want {
				return fmt.Errorf("ready: %t", !want)
			}
			return nil
		})
	}
	secret := &corev1.Secret{}
	e.Must(e.Client.Get(e.Ctx, s.Webhook, secret))
	e.Must(e.Client.Delete(e.Ctx, secret))
	op := e.start(s)
	ready("/ledger", true)
	ready("", false)
	secret.ResourceVersion = ""
	e.Must(e.Client.Create(e.Ctx, secret))
	ready("", true)
	asks("a pod requests an address", one, plain)
	for what, test := range map[string]struct {
		want string
		mod  func(*corev1.Pod)
	}{
		"a pod names a pool":        {"blue." + one, func(p *corev1.Pod) { p.Annotations = map[string]string{"ipam.cilium.io/ip-pool": "blue"} }},
		"a podSelector picks it":    {"red." + one, func(p *corev1.Pod) { p.Labels = map[string]string{"team": "red"} }},
		"it requests one already":   {"cilium-pool.io/ipv4 2", func(p *corev1.Pod) { p.Spec.Containers[0] = twoAddresses(p.Spec.Containers[0]) }},
		"it is on the host network": {"0", func(p *corev1.Pod) { p.Spec.HostNetwork = true }},
		"a bad name of a pool":      {"0", func(p *corev1.Pod) { p.Annotations = map[string]string{"ipam.cilium.io/ip-pool": "No/Pool"} }},
		"of kube-system":            {"0", func(p *corev1.Pod) { p.Namespace = "kube-system" }},
	} {
		asks(what, test.want, test.mod)
	}
	op.stop()
	asks("the operator is down", "0", plain)
	e.start(s)
	asks("it is back", one, plain)
}

func twoAddresses(c corev1.Container) corev1.Container {
	two := corev1.ResourceList{v1alpha1.IPv4Resource: resource.MustParse("2")}
	c.Resources = corev1.ResourceRequirements{Requests: two, Limits: two}
	return c
}
