package clusterread

import (
	"context"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// server answers lists of CiliumNodes page by page; all other lists are empty.
type server struct {
	client.Reader
	nodes []ciliumv2.CiliumNode
	// expire lets the second page of each list be requested twice.
	expire  bool
	expired bool
}

func (s *server) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := client.ListOptions{}
	o.ApplyOptions(opts)
	to, ok := list.(*ciliumv2.CiliumNodeList)
	if !ok {
		return nil
	}
	if s.expire && o.Continue != "" && !s.expired {
		s.expired = true
		expired := apierrors.NewResourceExpired("too old")
		expired.ErrStatus.Continue = o.Continue
		return expired
	}
	from, _ := strconv.Atoi(o.Continue)
	end := min(len(s.nodes), from+int(o.Limit))
	to.Items = s.nodes[from:end]
	if end < len(s.nodes) {
		to.Continue = strconv.Itoa(end)
	}
	return nil
}

func TestPages(t *testing.T) {
	for name, expire := range map[string]bool{"all go well": false, "a token expires": true} {
		t.Run(name, func(t *testing.T) {
			s := &server{expire: expire}
			want := []string{"a", "b", "c", "d", "e"}
			for _, name := range want {
				s.nodes = append(s.nodes, *fixtures.CiliumNode(name, ""))
			}
			r := Reader{Client: s, AgentSelector: labels.Everything(), PageSize: 2}
			var progress []int
			r.Progress = func(kind string, n int) {
				if kind == "CiliumNodes" {
					progress = append(progress, n)
				}
			}
			snapshot, err := r.Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, cn := range snapshot.CiliumNodes {
				got = append(got, cn.Name)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("nodes (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]int{2, 4, 5}, progress); diff != "" {
				t.Errorf("progress (-want +got):\n%s", diff)
			}
			if s.expired != expire {
				t.Error("no token expired")
			}
		})
	}
}

func TestChanges(t *testing.T) {
	minuteOf := func(minute int) *metav1.Time {
		return &metav1.Time{Time: time.Date(2026, 11, 20, 12, minute, 0, 0, time.UTC)}
	}
	fields := metav1.NewFieldsV1
	cn := fixtures.CiliumNode("a", "")
	cn.Status.IPAM.ReleaseIPs = map[string]ipamtypes.IPReleaseStatus{"10.0.0.1": "", "10.0.0.2": "", "fd00::1": "", "10.0.0.9": ""}
	cn.ManagedFields = []metav1.ManagedFieldsEntry{
		{Manager: "agent", Time: minuteOf(9), FieldsV1: fields(`{"f:status":{"f:ipam":{"f:used":{},"f:release-ips":{"f:10.0.0.2":{}}}}}`)},
		{Manager: "operator", Time: minuteOf(5), FieldsV1: fields(`{"f:status":{"f:ipam":{"f:release-ips":{".":{},"f:10.0.0.1":{},"f:10.0.0.2":{},"f:fd00::1":{}}}}}`)},
		{Manager: "broken", Time: minuteOf(3), FieldsV1: fields(`[`)},
		{Manager: "timeless", FieldsV1: fields(`{"f:status":{"f:ipam":{"f:release-ips":{"f:10.0.0.9":{}}}}}`)},
	}
	changed, since := changes(cn)
	if !changed.Equal(minuteOf(9).Time) {
		t.Errorf("changed at %s", changed)
	}
	want := map[netip.Addr]time.Time{
		netip.MustParseAddr("10.0.0.1"): minuteOf(5).Time,
		netip.MustParseAddr("10.0.0.2"): minuteOf(5).Time,
		netip.MustParseAddr("fd00::1"):  minuteOf(5).Time,
	}
	if diff := cmp.Diff(want, since, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("since (-want +got):\n%s", diff)
	}
}

// frr answers lists of the kinds of frr-k8s; all other lists are empty.
type frr struct {
	server
	err error
}

func (f *frr) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	to, ok := list.(*unstructured.UnstructuredList)
	if !ok {
		return f.server.List(ctx, list, opts...)
	}
	if f.err != nil {
		return f.err
	}
	kind := strings.TrimSuffix(to.GetKind(), "List")
	status := map[string]any{"node": "n", "lastConversionResult": "failed", "bgpStatus": "Active"}
	to.Items = []unstructured.Unstructured{{Object: map[string]any{"kind": kind, "metadata": map[string]any{"name": kind}, "status": status}}}
	return nil
}

// The reports of frr-k8s are read where it announces blocks. An older frr-k8s may lack a kind. Without the
// right, check names the kinds.
func TestReadsFaultsOfRoutes(t *testing.T) {
	kind := schema.GroupKind{Group: "frrk8s.metallb.io", Kind: "FRRNodeState"}
	tests := map[string]struct {
		namespace string
		err       error
		faults    int
		unread    []string
	}{
		"announced":     {namespace: "frr", faults: 2},
		"not announced": {},
		"not served":    {namespace: "frr", err: &meta.NoKindMatchError{GroupKind: kind}},
		"no right":      {namespace: "frr", err: apierrors.NewForbidden(schema.GroupResource{}, "", nil), unread: []string{"FRRConfigurations", "FRRNodeStates", "BGPSessionStates"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			reader := Reader{Client: &frr{err: test.err}, FRRNamespace: test.namespace, AgentSelector: labels.Everything(), Mode: ciliumnode.CRD}
			s, err := reader.Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if len(s.RouteFaults) != test.faults || !slices.Equal(s.RoutesUnread, test.unread) {
				t.Errorf("read are %+v, not %v", s.RouteFaults, s.RoutesUnread)
			}
		})
	}
}
