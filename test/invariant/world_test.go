package invariant_test

import (
	"context"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	iputil "github.com/cilium/cilium/pkg/ip"
	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
)

// begun is the state that tests start from.
const begun = "range 10.9.0.0/16; node a new; node b new; cn a new; cn b new; block 10.9.0.0/30 a; " +
	"cn a publish 172.16.0.1 10.9.0.1 10.9.0.2, list 172.16.0.0/24 10.9.0.0/30"

// store is an API server.
type store interface {
	// get reads the object of the name that o has, and reports whether it exists.
	get(o client.Object) bool
	// put creates or updates an object, or with status its status alone.
	put(o client.Object, status bool)
	remove(o client.Object)
}

// write performs writes, in place of operators, agents and users, separated by "; ":
//
//	range CIDR                                 pool p gets a range
//	used N                                     its status says that N addresses are in use
//	node NAME new|gone
//	pod NODE IP
//	block CIDR NODE|cool|serve|drain REASON|gone
//	cn NAME gone
//	cn NAME CHANGE, CHANGE ...                 one write of a CiliumNode, with changes of [change]
func write(t *testing.T, s store, script string) {
	t.Helper()
	for step := range strings.SplitSeq(script, "; ") {
		kind, rest, _ := strings.Cut(step, " ")
		name, what, _ := strings.Cut(rest, " ")
		switch kind {
		case "":
		case "range":
			p := &v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
			if !s.get(p) {
				p.Spec.IPv4 = &v1alpha1.IPv4Ranges{BlockSize: 30}
			}
			p.Spec.IPv4.CIDRs = append(p.Spec.IPv4.CIDRs, v1alpha1.PoolCIDR{CIDR: name})
			s.put(p, false)
		case "used":
			p := &v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
			s.get(p)
			n, err := strconv.ParseInt(name, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			p.Status.IPv4 = &v1alpha1.FamilyStatus{Addresses: v1alpha1.AddressCounts{Used: &n}}
			s.put(p, true)
		case "node":
			makeOrRemove(s, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, what)
		case "pod":
			p := harness.BoundPod(name, "x", nil)
			s.put(p, false)
			s.get(p)
			p.Status.Phase, p.Status.PodIPs = corev1.PodRunning, []corev1.PodIP{{IP: what}}
			p.Status.PodIP = what
			s.put(p, true)
		case "block":
			writeBlock(s, netip.MustParsePrefix(name), what)
		case "cn":
			writeCiliumNode(t, s, name, what)
		default:
			t.Fatalf("unknown step %q", step)
		}
	}
}

func makeOrRemove(s store, o client.Object, what string) {
	if what == "gone" {
		s.get(o)
		s.remove(o)
	} else {
		s.put(o, false)
	}
}

func writeBlock(s store, cidr netip.Prefix, what string) {
	b := crd.NewBlock(cidr, "p", what, "")
	b.Finalizers = nil
	why, drains := strings.CutPrefix(what, "drain ")
	s.get(b)
	switch {
	case what == "cool":
		crd.SetBlockPhase(b, ipalloc.CoolingDown, expand.Reclaim, "", time.Now())
	case what == "serve":
		crd.SetBlockPhase(b, ipalloc.InService, expand.None, "", time.Now())
	case drains:
		crd.SetBlockPhase(b, ipalloc.Draining, map[string]expand.Reason{
			"Deleted": expand.Deleted, "DrainRequested": expand.DrainRequested, "CIDRDraining": expand.CIDRDraining, "NodeUnselected": expand.NodeUnselected,
			"PoolDeleted": expand.PoolDeleted, "Reclaim": expand.Reclaim,
		}[why], "", time.Now())
	default:
		makeOrRemove(s, b, what)
		return
	}
	s.put(b, true)
}

func writeCiliumNode(t *testing.T, s store, name, what string) {
	cn := &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if what == "gone" {
		makeOrRemove(s, cn, what)
		return
	}
	s.get(cn)
	status := false
	for part := range strings.SplitSeq(what, ", ") {
		fields := strings.Fields(part)
		if !change(cn, fields[0], fields[1:]) {
			t.Fatalf("unknown change %q", part)
		}
		status = status || fields[0] == "release" || fields[0] == "use"
	}
	s.put(cn, status)
}

// change makes one change of a CiliumNode:
//
//	new
//	publish IP ..., unpublish IP ...
//	list CIDR ...
//	own IP ..., health IP, ingress IP
//	owner UID
//	label [VALUE]
//	release IP STATE, use IP OWNER             of its status
func change(cn *ciliumv2.CiliumNode, what string, args []string) bool {
	ipam := &cn.Spec.IPAM
	switch what {
	case "new":
	case "publish":
		for _, ip := range args {
			put(&ipam.Pool, ip, ipamtypes.AllocationIP{})
		}
	case "unpublish":
		for _, ip := range args {
			delete(ipam.Pool, ip)
		}
	case "list":
		ipam.PodCIDRs = nil
		for _, cidr := range args {
			ipam.PodCIDRs = append(ipam.PodCIDRs, iputil.PrefixFrom(netip.MustParsePrefix(cidr)))
		}
	case "own":
		for _, ip := range args {
			cn.Spec.Addresses = append(cn.Spec.Addresses, ciliumv2.NodeAddress{Type: "CiliumInternalIP", IP: ip})
		}
	case "health":
		cn.Spec.HealthAddressing.IPv4 = args[0]
	case "ingress":
		cn.Spec.IngressAddressing.IPV4 = args[0]
	case "owner":
		cn.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: cn.Name, UID: types.UID(args[0])}}
	case "label":
		cn.Labels = map[string]string{"value": strings.Join(args, "")}
	case "release":
		put(&cn.Status.IPAM.ReleaseIPs, args[0], ipamtypes.IPReleaseStatus(args[1]))
	case "use":
		put(&cn.Status.IPAM.Used, args[0], ipamtypes.AllocationIP{Owner: args[1]})
	default:
		return false
	}
	return true
}

func put[M ~map[string]V, V any](m *M, key string, value V) {
	if *m == nil {
		*m = M{}
	}
	(*m)[key] = value
}

func kindOf(o client.Object) invariant.Kind { return invariant.Kind(reflect.TypeOf(o).Elem().Name()) }

func keyOf(o client.Object) string { return fmt.Sprint(kindOf(o), o.GetName()) }

func assign(to, from client.Object) { reflect.ValueOf(to).Elem().Set(reflect.ValueOf(from).Elem()) }

func briefly(violations []invariant.Violation) []string {
	var out []string
	for _, v := range violations {
		out = append(out, fmt.Sprintf("%d %s", v.Rule, strings.NewReplacer("CiliumNode", "cn", "PodIPBlock", "block").Replace(v.Subject)))
	}
	return out
}

// world is a real API server, with a checker.
type world struct {
	*harness.Bed
	checker *invariant.Checker
}

// newWorld starts a checker on an API server with the state begun.
func newWorld(t *testing.T, cfg *rest.Config, opts invariant.Options) *world {
	t.Helper()
	w := &world{Bed: harness.NewBed(t, cfg)}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	w.Ctx = ctx
	t.Cleanup(w.clear)
	write(t, w, begun)
	checker, err := invariant.Watch(ctx, cfg, opts)
	w.Must(err)
	w.checker = checker
	return w
}

func (w *world) get(o client.Object) bool {
	w.TB.Helper()
	err := w.Client.Get(w.Ctx, client.ObjectKeyFromObject(o), o)
	w.Must(client.IgnoreNotFound(err))
	return err == nil
}

func (w *world) put(o client.Object, status bool) {
	w.TB.Helper()
	switch {
	case o.GetResourceVersion() == "":
		w.Create(o)
	case status:
		w.UpdateStatus(o)
	default:
		w.Update(o)
	}
}

func (w *world) remove(o client.Object) { w.Delete(o) }

// finds checks the violations that the checker has found so far.
func (w *world) finds(want ...string) {
	w.TB.Helper()
	w.Must(w.checker.Sync(w.Ctx))
	if found := w.checker.Violations(); !slices.Equal(briefly(found), want) {
		w.TB.Errorf("found %v, want %q", found, want)
	}
}

// clear deletes everything for the next test.
func (w *world) clear() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, o := range []client.Object{&v1alpha1.PodIPBlock{}, &v1alpha1.PodIPPool{}, &ciliumv2.CiliumNode{}, &corev1.Node{}} {
		if err := w.Client.DeleteAllOf(ctx, o); err != nil {
			w.TB.Error(err)
		}
	}
}
