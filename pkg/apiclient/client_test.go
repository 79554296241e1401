package apiclient

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

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

// bothClients returns controller-runtime's client and the one of NewClient.
func bothClients(t *testing.T, api http.Handler) (plain, ours client.Client) {
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
	options := client.Options{HTTPClient: httpClient, Scheme: scheme, Mapper: fixtures.ClusterKinds()}
	if plain, err = client.New(config, options); err != nil {
		t.Fatal(err)
	}
	if ours, err = NewClient(config, options); err != nil {
		t.Fatal(err)
	}
	return plain, ours
}

// used returns a CiliumNode with an entry that the response lacks.
func used() *ciliumv2.CiliumNode {
	cn := &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	cn.Spec.IPAM.Pool = fixtures.AllocationMap("192.0.2.1")
	return cn
}

// requestsOf are the requests of NewClient's client itself.
func requestsOf() map[string]func(context.Context, client.Client) (client.Object, error) {
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"resourceVersion":"6"}}`))
	return map[string]func(context.Context, client.Client) (client.Object, error){
		"get": func(ctx context.Context, c client.Client) (client.Object, error) {
			obj := used()
			return obj, c.Get(ctx, client.ObjectKeyFromObject(obj), obj)
		},
		"patch": func(ctx context.Context, c client.Client) (client.Object, error) {
			obj := used()
			return obj, c.Patch(ctx, obj, patch)
		},
		"patch the status": func(ctx context.Context, c client.Client) (client.Object, error) {
			obj := used()
			return obj, c.Status().Patch(ctx, obj, patch)
		},
		"dry runs": func(ctx context.Context, c client.Client) (client.Object, error) {
			obj := used()
			_ = c.Status().Patch(ctx, used(), patch, client.DryRunAll)
			return obj, c.Patch(ctx, obj, patch, client.DryRunAll)
		},
	}
}

// Requests, decoded responses and errors equal the ones of controller-runtime's client.
func TestClientIsAlike(t *testing.T) {
	refused := func(code int, reason metav1.StatusReason) answering {
		return answering{code, fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"no","reason":%q,"code":%d}`, reason, code), nil}
	}
	answers := map[string]answering{
		"CiliumNode": {200, nodeObject, nil}, "conflict": refused(409, metav1.StatusReasonConflict), "invalid": refused(422, metav1.StatusReasonInvalid),
		"unavailable": {503, "no", nil}, "empty": {200, "", nil}, "cut off": {200, nodeObject[:100], nil},
		"failure of a success": {200, refused(500, metav1.StatusReasonInternalError).body, nil},
	}
	for name, request := range requestsOf() {
		for kind, answer := range answers {
			t.Run(name+"/"+kind, func(t *testing.T) {
				api := answer
				plain, ours := bothClients(t, &api)
				want, wantErr := request(t.Context(), plain)
				requests := api.requests
				api.requests = nil
				got, err := request(t.Context(), ours)
				if diff := cmp.Diff(fmt.Sprint(requests), fmt.Sprint(api.requests)); diff != "" {
					t.Errorf("requests: -controller-runtime +NewClient:\n%s", diff)
				}
				if diff := cmp.Diff(fmt.Sprintf("%T %v", wantErr, wantErr), fmt.Sprintf("%T %v", err, err)); diff != "" {
					t.Errorf("errors: -controller-runtime +NewClient:\n%s", diff)
				}
				if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Prefix{})); diff != "" && err == nil {
					t.Errorf("objects: -controller-runtime +NewClient:\n%s", diff)
				}
			})
		}
	}
}

// A value that Cilium's type cannot hold fails no request.
func TestClientReadsStrangeCiliumNodes(t *testing.T) {
	for name, request := range requestsOf() {
		if name == "dry runs" {
			continue // the operator sends none
		}
		t.Run(name, func(t *testing.T) {
			_, ours := bothClients(t, &answering{200, strangeObject, nil})
			got, err := request(t.Context(), ours)
			isStrange(t, got, err)
		})
	}
	t.Run("list", func(t *testing.T) {
		_, ours := bothClients(t, &answering{200, `{"apiVersion":"cilium.io/v2","kind":"CiliumNodeList","metadata":{},"items":[` + strangeObject + `]}`, nil})
		list := &ciliumv2.CiliumNodeList{}
		err := ours.List(t.Context(), list)
		if len(list.Items) != 1 {
			t.Fatal(list, err)
		}
		isStrange(t, &list.Items[0], err)
	})
}
