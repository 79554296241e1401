package invariant_test

import (
	"context"
	"net/netip"
	"testing"
	"time"

	iputil "github.com/cilium/cilium/pkg/ip"
	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
)

// world writes in place of operators and agents.
type world struct {
	*harness.Bed
	cfg *rest.Config
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return worldOn(t, shared.Cluster(t).Config())
}

func worldOn(t *testing.T, cfg *rest.Config) *world {
	t.Helper()
	w := &world{Bed: harness.NewBed(t, cfg), cfg: cfg}
	w.Ctx = deadline(t)
	t.Cleanup(w.clear)
	w.Create(&v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1alpha1.PodIPPoolSpec{
		IPv4: &v1alpha1.IPv4Ranges{CIDRs: []v1alpha1.PoolCIDR{{CIDR: "10.9.0.0/16"}}, BlockSize: 30},
	}})
	for _, name := range []string{"a", "b"} {
		w.Create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		w.createCiliumNode(name, func(*ciliumv2.CiliumNode) {})
	}
	w.createBlock("10.9.0.0/30", "a")
	w.cilium("a", func(cn *ciliumv2.CiliumNode) {
		publish(cn, "172.16.0.1", "10.9.0.1", "10.9.0.2")
		listCIDRs(cn, "172.16.0.0/24", "10.9.0.0/30")
	})
	return w
}

// watch starts a checker that ends with the test.
func (w *world) watch(opts invariant.Options) *invariant.Checker {
	w.TB.Helper()
	checker, err := invariant.Watch(w.Ctx, w.cfg, opts)
	w.Must(err)
	return checker
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
	if err := w.Client.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace("default"), client.GracePeriodSeconds(0)); err != nil {
		w.TB.Error(err)
	}
}

func (w *world) createBlock(cidr, node string) {
	w.TB.Helper()
	b := crd.NewBlock(netip.MustParsePrefix(cidr), "p", node, "")
	b.Finalizers = nil
	w.Create(b)
}

func (w *world) coolDown(name string) {
	w.TB.Helper()
	b := &v1alpha1.PodIPBlock{}
	w.Read(b, "", name)
	crd.SetBlockPhase(b, ipalloc.CoolingDown, expand.Reclaim, "", time.Now())
	w.UpdateStatus(b)
}

func (w *world) deleteBlock(name string) {
	w.TB.Helper()
	w.Delete(&v1alpha1.PodIPBlock{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

func (w *world) deleteNode(name string) {
	w.TB.Helper()
	w.Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

func (w *world) createCiliumNode(name string, change func(*ciliumv2.CiliumNode)) {
	w.TB.Helper()
	cn := &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	change(cn)
	w.Create(cn)
}

func (w *world) deleteCiliumNode(name string) *ciliumv2.CiliumNode {
	w.TB.Helper()
	cn := &ciliumv2.CiliumNode{}
	w.Read(cn, "", name)
	w.Delete(cn)
	return cn
}

// byHandAndDeletedTwice adds a range that contains the foreign IP of node a to the pool. Then
// a's CiliumNode is deleted, recreated empty, and deleted again.
func (w *world) byHandAndDeletedTwice() {
	w.TB.Helper()
	p := &v1alpha1.PodIPPool{}
	w.Read(p, "", "p")
	p.Spec.IPv4.CIDRs = append(p.Spec.IPv4.CIDRs, v1alpha1.PoolCIDR{CIDR: "172.16.0.0/24"})
	w.Update(p)
	w.deleteCiliumNode("a")
	w.createCiliumNode("a", func(*ciliumv2.CiliumNode) {})
	w.deleteCiliumNode("a")
}

// cilium changes the spec of a CiliumNode.
func (w *world) cilium(name string, change func(*ciliumv2.CiliumNode)) {
	w.TB.Helper()
	cn := &ciliumv2.CiliumNode{}
	w.Read(cn, "", name)
	change(cn)
	w.Update(cn)
}

// status changes the status of a CiliumNode.
func (w *world) status(name string, change func(*ciliumv2.CiliumNode)) {
	w.TB.Helper()
	cn := &ciliumv2.CiliumNode{}
	w.Read(cn, "", name)
	change(cn)
	w.UpdateStatus(cn)
}

func (w *world) release(name, ip string, state ipamtypes.IPReleaseStatus) {
	w.TB.Helper()
	w.status(name, func(cn *ciliumv2.CiliumNode) {
		if cn.Status.IPAM.ReleaseIPs == nil {
			cn.Status.IPAM.ReleaseIPs = map[string]ipamtypes.IPReleaseStatus{}
		}
		cn.Status.IPAM.ReleaseIPs[ip] = state
	})
}

func publish(cn *ciliumv2.CiliumNode, ips ...string) {
	if cn.Spec.IPAM.Pool == nil {
		cn.Spec.IPAM.Pool = ipamtypes.AllocationMap{}
	}
	for _, ip := range ips {
		cn.Spec.IPAM.Pool[ip] = ipamtypes.AllocationIP{}
	}
}

func unpublish(cn *ciliumv2.CiliumNode, ips ...string) {
	for _, ip := range ips {
		delete(cn.Spec.IPAM.Pool, ip)
	}
}

func use(cn *ciliumv2.CiliumNode, ip, owner string) {
	if cn.Status.IPAM.Used == nil {
		cn.Status.IPAM.Used = ipamtypes.AllocationMap{}
	}
	cn.Status.IPAM.Used[ip] = ipamtypes.AllocationIP{Owner: owner}
}

func listCIDRs(cn *ciliumv2.CiliumNode, cidrs ...string) {
	cn.Spec.IPAM.PodCIDRs = nil
	for _, cidr := range cidrs {
		cn.Spec.IPAM.PodCIDRs = append(cn.Spec.IPAM.PodCIDRs, iputil.Prefix{Prefix: netip.MustParsePrefix(cidr)})
	}
}
