package apiclient

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	ciliumv2alpha1 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// servesOnly is an API server that serves CiliumPodIPPools in one version. It has one, and
// records the requests that it serves.
type servesOnly struct {
	version  string
	requests []string
}

func (s *servesOnly) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, served := strings.CutPrefix(r.URL.Path, "/apis/cilium.io/"+s.version+"/ciliumpodippools")
	if !served {
		http.NotFound(w, r)
		return
	}
	body, _ := io.ReadAll(r.Body)
	if r.Method == http.MethodPost && !strings.Contains(string(body), `"cilium.io/`+s.version+`"`) {
		http.Error(w, "wrong version", http.StatusBadRequest)
		return
	}
	s.requests = append(s.requests, r.Method+path)
	one := fmt.Sprintf(`{"apiVersion":"cilium.io/%s","kind":"CiliumPodIPPool","metadata":{"name":"blue","uid":"1"},"spec":{"ipv4":{"cidrs":["192.0.2.0/32"],"maskSize":28,"pool":[]}}}`, s.version)
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.URL.Query().Get("watch") != "":
		fmt.Fprintf(w, `{"type":"ADDED","object":%s}`, one)
	case r.Method == http.MethodGet && path == "":
		fmt.Fprintf(w, `{"apiVersion":"cilium.io/%s","kind":"CiliumPodIPPoolList","metadata":{"resourceVersion":"7"},"items":[%s]}`, s.version, one)
	default:
		fmt.Fprint(w, one)
	}
}

// CiliumPodIPPools are read and written in the version that is served: whether discovery knows
// that one alone, or knew both once.
func TestPodIPPoolsInServedVersion(t *testing.T) {
	for i, served := range PodIPPoolKinds() {
		for name, known := range map[string]int{"known alone": i, "both known once": -1} {
			t.Run(served.Version+" "+name, func(t *testing.T) {
				api := &servesOnly{version: served.Version}
				server := httptest.NewServer(api)
				defer server.Close()
				mapper := meta.NewDefaultRESTMapper(nil)
				for j, kind := range PodIPPoolKinds() {
					if known < 0 || known == j {
						mapper.Add(kind, meta.RESTScopeRoot)
					}
				}
				scheme, err := Scheme()
				if err != nil {
					t.Fatal(err)
				}
				config := &rest.Config{Host: server.URL, QPS: -1}
				c, err := NewClient(config, client.Options{HTTPClient: server.Client(), Scheme: scheme, Mapper: mapper})
				if err != nil {
					t.Fatal(err)
				}
				requestPodIPPools(t, c)
				pools, err := Lists{Config: config, HTTP: server.Client(), Scheme: scheme}.PodIPPools()
				if err != nil {
					t.Fatal(err)
				}
				from := toolscache.ToListerWatcherWithContext(pools)
				if list, err := from.ListWithContext(t.Context(), metav1.ListOptions{}); err != nil || len(list.(*ciliumv2alpha1.CiliumPodIPPoolList).Items) != 1 {
					t.Errorf("list: %v, %v", list, err)
				}
				w, err := from.WatchWithContext(t.Context(), metav1.ListOptions{})
				if err != nil {
					t.Fatal(err)
				}
				defer w.Stop()
				if e := <-w.ResultChan(); e.Object == nil || e.Object.(*ciliumv2alpha1.CiliumPodIPPool).Name != "blue" {
					t.Errorf("the watch shows %v", e)
				}
				if got, want := strings.Join(api.requests, " "), "POST GET/blue GET PATCH/blue DELETE/blue GET GET"; got != want {
					t.Errorf("requests %q, want %q", got, want)
				}
			})
		}
	}
}

func requestPodIPPools(t *testing.T, c client.Client) {
	t.Helper()
	ctx, obj, list := t.Context(), &ciliumv2alpha1.CiliumPodIPPool{ObjectMeta: metav1.ObjectMeta{Name: "blue"}}, &ciliumv2alpha1.CiliumPodIPPoolList{}
	for what, err := range map[string]error{"create": c.Create(ctx, obj), "get": c.Get(ctx, client.ObjectKeyFromObject(obj), obj), "list": c.List(ctx, list)} {
		if err != nil || obj.Spec.IPv4 == nil || obj.Spec.IPv4.MaskSize != 28 {
			t.Errorf("%s: %v, %v", what, obj.Spec.IPv4, err)
		}
	}
	if len(list.Items) != 1 {
		t.Errorf("listed %d", len(list.Items))
	}
	if err := c.Patch(ctx, obj, client.RawPatch(types.MergePatchType, []byte(`{}`))); err != nil {
		t.Error(err)
	}
	if err := c.Delete(ctx, obj); err != nil {
		t.Error(err)
	}
}
