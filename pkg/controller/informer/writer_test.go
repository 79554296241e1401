package informer

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientfeatures "k8s.io/client-go/features"
	clientfeaturestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

const blockObject = `{"apiVersion":"cilium-pool.io/v1alpha1","kind":"PodIPBlock","metadata":{"creationTimestamp":"2026-01-01T12:00:00Z","managedFields":[{"manager":"m"}],` +
	`"name":"10.0.0.0-27","resourceVersion":"8","uid":"u"},"spec":{"cidr":"10.0.0.0/27","nodeName":"n","poolName":"p"},"status":{"phase":"InService"}}`

// answering is an API server that answers every request with the same response, and records the
// requests.
type answering struct {
	code     int
	body     string
	requests []string
}

func (a *answering) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	a.requests = append(a.requests, fmt.Sprintf("%s %s %s %s %s %s", r.Method, r.URL, r.Header.Get("Content-Type"), r.Header.Get("Accept"), r.UserAgent(), body))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(a.code)
	_, _ = io.WriteString(w, a.body)
}

// clusterKinds maps the kinds without namespaces that clients and caches of these tests use.
func clusterKinds() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []schema.GroupVersionKind{
		corev1.SchemeGroupVersion.WithKind("Node"), corev1.SchemeGroupVersion.WithKind("Namespace"),
		ciliumv2.SchemeGroupVersion.WithKind(ciliumv2.CNKindDefinition), v1alpha1.GroupVersion.WithKind("PodIPBlock"),
	} {
		mapper.Add(kind, meta.RESTScopeRoot)
	}
	return mapper
}

// writers returns controller-runtime's client and the one of NewClient.
func writers(t testing.TB, api http.Handler) (plain, quick client.Client) {
	t.Helper()
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	config := &rest.Config{Host: server.URL, QPS: -1, UserAgent: "operator"}
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	options := client.Options{HTTPClient: httpClient, Scheme: scheme, Mapper: clusterKinds()}
	if plain, err = client.New(config, options); err != nil {
		t.Fatal(err)
	}
	if quick, err = NewClient(config, options); err != nil {
		t.Fatal(err)
	}
	return plain, quick
}

// used returns a CiliumNode with an entry that the response lacks.
func used() *ciliumv2.CiliumNode {
	cn := &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	cn.Spec.IPAM.Pool = fixtures.AllocationMap("192.0.2.1")
	return cn
}

// Requests, decoded responses and errors equal those of controller-runtime's client.
func TestClientWritesAlike(t *testing.T) {
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"resourceVersion":"6"}}`))
	block := func() *v1alpha1.PodIPBlock { return fixtures.BlockObject("10.0.0.0/27", 0) }
	writes := map[string]func(context.Context, client.Client) (client.Object, error){
		"create a block": func(ctx context.Context, c client.Client) (client.Object, error) {
			obj := block()
			return obj, c.Create(ctx, obj)
		},
		"update the status of a block": func(ctx context.Context, c client.Client) (client.Object, error) {
			obj := block()
			return obj, c.Status().Update(ctx, obj)
		},
		"patch a CiliumNode": func(ctx context.Context, c client.Client) (client.Object, error) {
			obj := used()
			return obj, c.Patch(ctx, obj, patch)
		},
		"patch the status of a CiliumNode": func(ctx context.Context, c client.Client) (client.Object, error) {
			obj := used()
			return obj, c.Status().Patch(ctx, obj, patch)
		},
		"dry runs": func(ctx context.Context, c client.Client) (client.Object, error) {
			obj := used()
			_ = c.Create(ctx, block(), client.DryRunAll)
			_ = c.Status().Update(ctx, block(), client.DryRunAll)
			_ = c.Status().Patch(ctx, used(), patch, client.DryRunAll)
			return obj, c.Patch(ctx, obj, patch, client.DryRunAll)
		},
	}
	refused := func(code int, reason metav1.StatusReason) answering {
		return answering{code, fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"no","reason":%q,"code":%d}`, reason, code), nil}
	}
	answers := map[string]answering{
		"CiliumNode": {200, nodeObject, nil}, "PodIPBlock": {201, blockObject, nil},
		"conflict": refused(409, metav1.StatusReasonConflict), "exists": refused(409, metav1.StatusReasonAlreadyExists),
		"forbidden": refused(403, metav1.StatusReasonForbidden), "invalid": refused(422, metav1.StatusReasonInvalid),
		"unavailable": {503, "no", nil}, "empty": {200, "", nil}, "cut off": {200, nodeObject[:100], nil},
		"failure of a success": {200, refused(500, metav1.StatusReasonInternalError).body, nil},
	}
	for name, write := range writes {
		for kind, answer := range answers {
			t.Run(name+"/"+kind, func(t *testing.T) {
				api := answer
				plain, quick := writers(t, &api)
				want, wantErr := write(t.Context(), plain)
				requests := api.requests
				api.requests = nil
				got, err := write(t.Context(), quick)
				want.SetManagedFields(nil)
				got.SetManagedFields(nil)
				if diff := cmp.Diff(fmt.Sprint(requests), fmt.Sprint(api.requests)); diff != "" {
					t.Errorf("requests: -controller-runtime +NewClient:\n%s", diff)
				}
				if diff := cmp.Diff(fmt.Sprintf("%T %v", wantErr, wantErr), fmt.Sprintf("%T %v", err, err)); diff != "" && !strings.Contains(kind, "cut off") {
					t.Errorf("errors: -controller-runtime +NewClient:\n%s", diff)
				}
				if (err == nil) != (wantErr == nil) {
					t.Errorf("%v, want %v", err, wantErr)
				}
				if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Prefix{})); diff != "" && err == nil {
					t.Errorf("objects: -controller-runtime +NewClient:\n%s", diff)
				}
			})
		}
	}
}

// NewClient decodes the responses itself, without managed fields: of a CiliumNode it keeps that
// it has some.
func TestClientLeavesOutManagedFields(t *testing.T) {
	_, quick := writers(t, &answering{200, nodeObject, nil})
	cn := used()
	if err := quick.Patch(t.Context(), cn, client.RawPatch(types.MergePatchType, []byte(`{}`))); err != nil || len(cn.ManagedFields) != 1 || cn.ManagedFields[0].FieldsV1 != nil || cn.ResourceVersion != "7" {
		t.Errorf("%v: %+v", err, cn.ObjectMeta)
	}
	_, quick = writers(t, &answering{201, blockObject, nil})
	b := fixtures.BlockObject("10.0.0.0/27", 0)
	if err := quick.Status().Update(t.Context(), b); err != nil || b.ManagedFields != nil || b.ResourceVersion != "8" {
		t.Errorf("%v: %+v", err, b.ObjectMeta)
	}
}

// A CiliumNode is created without its status and without empty fields of its spec. Entries of
// its pool have no content, and stay.
func TestCreateLeavesOutEmptyFields(t *testing.T) {
	api := &answering{201, nodeObject, nil}
	_, quick := writers(t, api)
	cn := used()
	cn.Labels = map[string]string{"zone": "a"}
	cn.Spec.Addresses = []ciliumv2.NodeAddress{{Type: "InternalIP", IP: "172.16.0.1"}}
	if err := quick.Create(t.Context(), cn); err != nil || cn.ResourceVersion != "7" {
		t.Errorf("%v: %+v", err, cn.ObjectMeta)
	}
	want := `{"apiVersion":"cilium.io/v2","kind":"CiliumNode","metadata":{"labels":{"zone":"a"},"name":"n"},` +
		`"spec":{"addresses":[{"ip":"172.16.0.1","type":"InternalIP"}],"ipam":{"pool":{"192.0.2.1":{}}}}}`
	if len(api.requests) != 1 || !strings.HasSuffix(api.requests[0], want) || !strings.Contains(api.requests[0], " application/json application/json") {
		t.Errorf("requests are %v, want %s", api.requests, want)
	}
}

// Custom resources are requested in the encoding that onePass reads, whatever client-go is set
// to prefer.
func TestCustomResourcesAreJSON(t *testing.T) {
	clientfeaturestesting.SetFeatureDuringTest(t, clientfeatures.ClientsAllowCBOR, true)
	clientfeaturestesting.SetFeatureDuringTest(t, clientfeatures.ClientsPreferCBOR, true)
	var asked []http.Header
	_, quick := writers(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Header)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.Copy(w, r.Body)
	}))
	if err := quick.Create(t.Context(), fixtures.BlockObject("10.0.0.0/27", 0)); err != nil {
		t.Fatal(err)
	}
	if len(asked) != 1 || asked[0].Get("Content-Type") != "application/json" || !strings.HasPrefix(asked[0].Get("Accept"), "application/json") {
		t.Errorf("asked with %v", asked)
	}
}
