package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// offLimits keeps the operator from writing the spec of CiliumNode n1.
const offLimits = `
- apiVersion: admissionregistration.k8s.io/v1
  kind: ValidatingAdmissionPolicy
  metadata: {name: off-limits}
  spec:
    matchConstraints:
      resourceRules:
        - {apiGroups: [cilium.io], apiVersions: ["*"], operations: [UPDATE], resources: [ciliumnodes]}
    validations:
      - expression: object.metadata.name != 'n1' || !request.userInfo.username.startsWith('system:serviceaccount:')
        message: n1 is off limits
- apiVersion: admissionregistration.k8s.io/v1
  kind: ValidatingAdmissionPolicyBinding
  metadata: {name: off-limits}
  spec: {policyName: off-limits, validationActions: [Deny]}
`

// refuseN1 makes the API server refuse the operator's writes of n1 until end is called.
func refuseN1(e *env) (end func()) {
	e.TB.Helper()
	var policy []map[string]any
	e.Must(yaml.Unmarshal([]byte(offLimits), &policy))
	for _, content := range policy {
		o := &unstructured.Unstructured{Object: content}
		e.Create(o)
		e.TB.Cleanup(func() { e.Remove(o) })
	}
	operator, err := client.New(userOf(e.cluster, ciliumnode.CRD), client.Options{Scheme: e.Client.Scheme()})
	e.Must(err)
	try := func() error {
		o := &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
		return client.NewDryRunClient(operator).Patch(e.Ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"ipam":{"podCIDRs":null}}}`)))
	}
	offLimits := func(err error) bool { return err != nil && strings.Contains(err.Error(), "off limits") }
	e.Eventually("the policy is in force", func() error {
		if err := try(); !offLimits(err) {
			return fmt.Errorf("a write of n1: %w", err)
		}
		return nil
	})
	return func() {
		e.TB.Helper()
		for _, content := range policy {
			e.Remove(&unstructured.Unstructured{Object: content})
		}
		e.Eventually("the policy is gone", func() error {
			if err := try(); offLimits(err) {
				return err
			}
			return nil
		})
	}
}

// writesAbout returns the events with a reason about an object.
func writesAbout(e *env, name, reason string) []eventsv1.Event {
	e.TB.Helper()
	list := &eventsv1.EventList{}
	e.Must(e.Client.List(e.Ctx, list))
	var out []eventsv1.Event
	for _, ev := range list.Items {
		if ev.Regarding.Name == name && ev.Reason == reason {
			out = append(out, ev)
		}
	}
	return out
}

// If a policy refuses the writes of one node, the Node reports it once, however often the
// operator retries; other nodes are served; and everything recovers once the policy is
// removed.
func TestRefusedWrites(t *testing.T) {
	e := newEnv(t)
	var tries atomic.Int32
	op := e.startWith(quick(), func(c client.WithWatch) client.Client {
		return interceptor.NewClient(c, interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
				if _, is := o.(*ciliumv2.CiliumNode); is && o.GetName() == "n1" {
					tries.Add(1)
				}
				return c.Patch(ctx, o, patch, opts...)
			},
		})
	})
	e.pool("p", nil, "10.1.0.0/24")
	for _, name := range []string{"n1", "n2"} {
		e.node(name, nil)
		e.hasBlocks(name, 1)
	}
	end := refuseN1(e)
	before := tries.Load()
	e.Pods("n1", "refused", 40)
	e.load("n2", "served", 40)
	e.hasBlocks("n2", 2)
	e.eventSays("n1", config.ReasonWriteRefused, "n1 is off limits")
	e.Eventually("the operator has tried again", func() error {
		if tries.Load()-before < 5 {
			return errors.New("not yet")
		}
		return nil
	})
	if sent := writesAbout(e, "n1", config.ReasonWriteRefused); len(sent) != 1 || sent[0].Series != nil || sent[0].Regarding.Kind != "Node" ||
		!strings.Contains(sent[0].Note, `write "publish" of CiliumNode n1`) || !strings.Contains(sent[0].Note, "Let the operator's ServiceAccount pass") {
		t.Errorf("events about n1 are %+v, want one that names write and remedy", sent)
	}
	end()
	e.running("refused", 40)
	e.hasBlocks("n1", 2)
	e.event("n1", config.ReasonWriteAccepted)
	op.stop()
	if sent := writesAbout(e, "n2", config.ReasonWriteRefused); len(sent) > 0 {
		t.Errorf("n2 has events %+v", sent)
	}
}

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
	once.(*sync.Once).Do(func() { grant(e) })
	return e.watched(userOf(e.cluster, mode))
}

// grant installs the rights, and waits until they and the policies are in force.
func grant(e *env) {
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
