package integration

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// shortageTaint is the taint that the chart's policies let the operators set.
const shortageTaint = "example.org/no-addresses"

// granted contains the control planes that grant the operator of each mode the chart's rights.
var granted sync.Map // of *controlplane.Cluster to *sync.Once

var rights = sync.OnceValues(func() ([]*unstructured.Unstructured, error) {
	return harness.OperatorRights(context.Background(), shortageTaint)
})

// configOf returns the configuration of an operator in a mode, under the roles and the
// admission policies of the chart. The test fails if the API server refuses any of its
// requests.
func (e *env) configOf(mode ciliumnode.Mode) *rest.Config {
	e.TB.Helper()
	if mode == "" {
		mode = ciliumnode.CRD
	}
	once, _ := granted.LoadOrStore(e.cluster, &sync.Once{})
	once.(*sync.Once).Do(func() { e.grant() })
	return e.watched(userOf(e.cluster, mode))
}

// grant installs the rights, and waits until they and the policies are in force.
func (e *env) grant() {
	e.TB.Helper()
	all, err := rights()
	e.Must(err)
	for _, o := range all {
		e.Create(o.DeepCopy())
	}
	for _, mode := range ciliumnode.Modes() {
		c, err := client.New(userOf(e.cluster, mode), client.Options{Scheme: e.Client.Scheme()})
		e.Must(err)
		e.Eventually(fmt.Sprintf("the operator of %s mode has its rights", mode), func() error {
			return c.List(e.Ctx, &v1alpha1.PodIPBlockList{})
		})
		if mode == ciliumnode.Kubernetes { // its policy was installed together with the others
			continue
		}
		e.Eventually(fmt.Sprintf("the policies of %s mode are in force", mode), func() error {
			err := client.NewDryRunClient(c).Create(e.Ctx, &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: "of-no-node"}})
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
				return fmt.Errorf("a CiliumNode without a Node: %w", err)
			}
			return nil
		})
	}
}

func userOf(cluster *controlplane.Cluster, mode ciliumnode.Mode) *rest.Config {
	config := cluster.Config()
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + harness.ChartNamespace + ":" + string(mode),
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + harness.ChartNamespace, "system:authenticated"},
	}
	return config
}

// watched fails the test if a request is refused for lack of rights.
func (e *env) watched(config *rest.Config) *rest.Config {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(r)
			if err == nil && response.StatusCode == http.StatusForbidden {
				e.TB.Errorf("the operator is refused %s %s: see its log", r.Method, r.URL.Path)
			}
			return response, err
		})
	})
	return config
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
