package plugin

import (
	"net/netip"
	"strings"
	"time"

	iputil "github.com/cilium/cilium/pkg/ip"
	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/rogpeppe/go-internal/testscript"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
)

// given MODE NODE POOL CIDR... creates a Node with an agent in that IPAM mode, and its CiliumNode
// with the assignments of the mode.
func (w *world) cmdGiven(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 4, "given MODE NODE POOL CIDR...")
	mode, name := args[0], args[1]
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": args[2]}}}
	cn := &ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	var cidrs []iputil.Prefix
	for _, cidr := range args[3:] {
		cidrs = append(cidrs, iputil.PrefixFrom(netip.MustParsePrefix(cidr)))
	}
	switch mode {
	case "multi-pool":
		cn.Spec.IPAM.Pools.Allocated = []ipamtypes.IPAMPoolAllocation{{Pool: "default", CIDRs: cidrs}}
	case "kubernetes":
		node.Spec.PodCIDR, node.Spec.PodCIDRs = args[3], args[3:]
		cn.Spec.IPAM.PodCIDRs = cidrs
	default:
		cn.Spec.IPAM.PodCIDRs = cidrs
	}
	w.create(ts, node)
	w.agent(ts, name)
	w.create(ts, cn)
}

// oldpod NAME NODE ADDRESS creates a pod that its agent does not report.
func (w *world) cmdOldPod(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 3, "oldpod NAME NODE ADDRESS")
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: args[0]},
		Spec:       corev1.PodSpec{NodeName: args[1], Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
	w.create(ts, p)
	p.Status.Phase = corev1.PodRunning
	p.Status.PodIP, p.Status.PodIPs = args[2], []corev1.PodIP{{IP: args[2]}}
	p.Status.StartTime = &metav1.Time{Time: time.Now()}
	w.updateStatus(ts, p)
}

// publish NODE CIDR... publishes addresses in the pool of a node, as an operator would.
func (w *world) cmdPublish(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 2, "publish NODE CIDR...")
	cn := &ciliumv2.CiliumNode{}
	ts.Check(w.client.Get(w.ctx, types.NamespacedName{Name: args[0]}, cn))
	if cn.Spec.IPAM.Pool == nil {
		cn.Spec.IPAM.Pool = ipamtypes.AllocationMap{}
	}
	for _, cidr := range args[1:] {
		p := netip.MustParsePrefix(cidr)
		for a := p.Addr().Next(); p.Contains(a.Next()); a = a.Next() {
			cn.Spec.IPAM.Pool[a.String()] = ipamtypes.AllocationIP{}
		}
		listed := false
		for _, l := range cn.Spec.IPAM.PodCIDRs {
			listed = listed || l.Prefix == p
		}
		if !listed {
			cn.Spec.IPAM.PodCIDRs = append(cn.Spec.IPAM.PodCIDRs, iputil.PrefixFrom(p))
		}
	}
	ts.Check(w.client.Update(w.ctx, cn))
}

// report NODE ADDRESS... makes an agent in crd mode report these addresses.
func (w *world) cmdReport(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 2, "report NODE ADDRESS...")
	for _, address := range args[1:] {
		w.use(ts, args[0], address, "default/x [restored]")
	}
}

// answer NODE... makes agents in crd mode answer the next mark, in the background, until the
// script ends.
func (w *world) cmdAnswer(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 1, "answer NODE...")
	inBackground(ts, func(sleep func(time.Duration) bool) error {
		for more := true; more; more = sleep(50 * time.Millisecond) {
			for _, name := range args {
				w.answerOnce(name)
			}
		}
		return nil
	})
}

// answerOnce retries after a conflict with other writes, as an agent does.
func (w *world) answerOnce(name string) {
	cn := &ciliumv2.CiliumNode{}
	if w.client.Get(w.ctx, types.NamespacedName{Name: name}, cn) != nil {
		return
	}
	marked := false
	for ip, status := range cn.Status.IPAM.ReleaseIPs {
		if string(status) == string(expand.Marked) {
			cn.Status.IPAM.ReleaseIPs[ip], marked = ipamtypes.IPReleaseStatus(expand.DoNotRelease), true
		}
	}
	if marked {
		_ = w.client.Status().Update(w.ctx, cn)
	}
}

// config KEY=VALUE... replaces the ConfigMap cilium-config.
func (w *world) cmdConfig(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 0, "config KEY=VALUE...")
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "cilium-config"}, Data: map[string]string{}}
	ts.Check(client.IgnoreNotFound(w.client.Delete(w.ctx, c.DeepCopy())))
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		c.Data[key] = value
	}
	w.create(ts, c)
	ts.Defer(func() { _ = w.client.Delete(w.ctx, c) }) // other scripts need it to be absent
}

// moveto FROM TO CIDR moves a CIDR from a node to a new one, as multi-pool mode does.
func (w *world) cmdMoveTo(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 3, "moveto FROM TO CIDR")
	cn := &ciliumv2.CiliumNode{}
	ts.Check(w.client.Get(w.ctx, types.NamespacedName{Name: args[0]}, cn))
	pool := &cn.Spec.IPAM.Pools.Allocated[0]
	var left []iputil.Prefix
	for _, p := range pool.CIDRs {
		if p.String() != args[2] {
			left = append(left, p)
		}
	}
	pool.CIDRs = left
	ts.Check(w.client.Update(w.ctx, cn))
	node := &corev1.Node{}
	ts.Check(w.client.Get(w.ctx, types.NamespacedName{Name: args[0]}, node))
	w.cmdGiven(ts, false, []string{"multi-pool", args[1], node.Labels["pool"], args[2]})
}
