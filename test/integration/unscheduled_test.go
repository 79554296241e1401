package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/scheduling"
	"github.com/cilium-pool/cilium-pool-operator/test/agent"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// requestingPods creates n pods that request an address each. Node "" leaves them to the scheduler.
func (e *env) requestingPods(node, prefix string, n int, mod func(*corev1.Pod)) {
	e.TB.Helper()
	one := corev1.ResourceList{v1alpha1.IPv4Resource: resource.MustParse("1")}
	for i := range n {
		p := harness.BoundPod(node, fmt.Sprintf("%s-%d", prefix, i), map[string]string{"app": prefix})
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: one, Limits: one}
		if mod != nil {
			mod(p)
		}
		e.Create(p)
	}
}

// schedule binds pods with a name prefix to nodes as the scheduler does, by addresses alone, in one
// pass. It marks the pods that fit no node as Unschedulable with the reason, and returns their
// number. A pod with a nodeSelector fits only the node that it names.
func schedule(e *env, prefix string) (left int, err error) {
	nodes, pods := &corev1.NodeList{}, &corev1.PodList{}
	if err := e.Client.List(e.Ctx, nodes); err != nil {
		return 0, err
	}
	if err := e.Client.List(e.Ctx, pods, client.InNamespace(metav1.NamespaceDefault)); err != nil {
		return 0, err
	}
	room := map[string]int{}
	for i := range nodes.Items {
		room[nodes.Items[i].Name] = max(0, scheduling.OfferIn(nodes.Items[i].Status.Allocatable)[ipalloc.IPv4])
	}
	for i := range pods.Items {
		if p := &pods.Items[i]; p.Spec.NodeName != "" && len(p.Spec.Containers[0].Resources.Requests) > 0 {
			room[p.Spec.NodeName]--
		}
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.Spec.NodeName != "" || !strings.HasPrefix(p.Name, prefix) {
			continue
		}
		bound := false
		for j := range nodes.Items {
			n := &nodes.Items[j]
			if want := p.Spec.NodeSelector["name"]; room[n.Name] <= 0 || want != "" && want != n.Labels["name"] {
				continue
			}
			room[n.Name]--
			binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: n.Name}}
			if err := e.Client.SubResource("binding").Create(e.Ctx, p, binding); err != nil {
				return 0, err
			}
			bound = true
			break
		}
		if !bound {
			left++
			if err := unschedulable(e, p, "0/2 nodes are available: 2 Insufficient cilium-pool.io/ipv4."); err != nil {
				return 0, err
			}
		}
	}
	return left, nil
}

// unschedulable sets the scheduler's condition for a pod that fits no node.
func unschedulable(e *env, p *corev1.Pod, why string) error {
	if len(p.Status.Conditions) > 0 && p.Status.Conditions[0].Message == why {
		return nil
	}
	p.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: why, LastTransitionTime: metav1.Now(),
	}}
	return e.Client.Status().Update(e.Ctx, p)
}

// allScheduled runs the scheduler until it has bound all pods with a prefix.
func (e *env) allScheduled(prefix string) {
	e.TB.Helper()
	e.Eventually("all pods of "+prefix+" are bound", func() error {
		left, err := schedule(e, prefix)
		if err == nil && left > 0 {
			err = fmt.Errorf("%d are not", left)
		}
		return err
	})
}

// tight makes nodes keep no address free, so that only unscheduled pods make them grow.
func tight(p *v1alpha1.PodIPPool) {
	zero, all := int32(0), int32(100)
	p.Spec.Expand = v1alpha1.Expand{MinFreeAddresses: &zero, ThresholdPercent: &all}
}

// TestGrowthForUnscheduledPods checks that nodes without a free address grow for pods that the
// scheduler finds no address for, only nodes that suit these pods, and no more than the pods
// need.
func TestGrowthForUnscheduledPods(t *testing.T) {
	e := newEnv(t)
	s := quick()
	s.OfferFamilies = []ipalloc.Family{ipalloc.IPv4}
	s.Defaults.Policy.IdleFor = time.Minute // so that no growth is reclaimed
	op := e.start(s)
	e.pool("all", tight, "10.1.0.0/23")
	for _, name := range []string{"n1", "n2"} {
		e.ready(e.node(name, map[string]string{"name": name}))
		e.changeNode(name, func(n *corev1.Node) { n.Spec.Taints = nil }) // the API server adds not-ready
		e.offers(name, 28)
	}
	e.requestingPods("", "fill", 56, nil)
	e.allScheduled("fill")
	e.running("fill", 56)
	e.hasBlocks("n1", 1)
	e.hasBlocks("n2", 1)

	only := func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"name": "n2"} }
	e.requestingPods("", "second", 31, only)
	e.allScheduled("second")
	e.running("second", 31)
	e.hasBlocks("n2", 3)
	e.hasBlocks("n1", 1)

	// Pods that wait for something else make no node grow, and neither do pods that are gone.
	e.requestingPods("", "cpu", 40, nil)
	op.stop()
	pods := &corev1.PodList{}
	e.Must(e.Client.List(e.Ctx, pods, client.MatchingLabels{"app": "cpu"}))
	for i := range pods.Items {
		e.Must(unschedulable(e, &pods.Items[i], "0/2 nodes are available: 2 Insufficient cpu."))
	}
	e.start(s)
	e.requestingPods("", "third", 1, func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"name": "n1"} })
	e.allScheduled("third")
	e.hasBlocks("n1", 2)
	e.hasBlocks("n2", 3)
}

// TestPodsFillPoolOfWholeBlocks checks that in multi-pool mode as many pods run as a pool has
// addresses, though agents keep a reserve and return blocks, and that no other pod is bound.
func TestPodsFillPoolOfWholeBlocks(t *testing.T) {
	e := newEnv(t)
	e.fleet.SetIPAM(agent.MultiPool)
	s := quickMultiPool()
	s.OfferFamilies = []ipalloc.Family{ipalloc.IPv4}
	e.start(s)
	const nodes, addresses, pods = 2, 8*14 - 2*2, 120
	e.pool("all", func(p *v1alpha1.PodIPPool) { p.Spec.IPv4.BlockSize = 28 }, "10.1.0.0/25")
	for i := range nodes {
		name := fmt.Sprint("n", i)
		e.ready(e.node(name, map[string]string{"name": name}))
		e.changeNode(name, func(n *corev1.Node) { n.Spec.Taints = nil })
	}
	e.requestingPods("", "load", pods, nil)
	fits := func() error {
		left, err := schedule(e, "load")
		if err == nil && left != pods-addresses {
			err = fmt.Errorf("%d pods are pending, want %d", left, pods-addresses)
		}
		return err
	}
	e.Eventually("all addresses are requested", fits)
	e.running("load", addresses)
	e.Must(fits())
}

// slowClaims delays the creation of blocks for longer than it takes until pods are assigned
// anew: a block that is being claimed is neither free nor the node's then.
func slowClaims(c client.WithWatch) client.WithWatch {
	return interceptor.NewClient(c, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if _, ok := o.(*v1alpha1.PodIPBlock); ok {
				select {
				case <-time.After(2 * time.Second):
				case <-ctx.Done():
				}
			}
			return c.Create(ctx, o, opts...)
		},
	})
}

// TestRecallForUnscheduledPods checks that another node returns an idle block while pods wait
// for a full pool, without waiting until the block has been idle for long, and no more than
// the pods need.
func TestRecallForUnscheduledPods(t *testing.T) {
	e := newEnv(t)
	s, marks := quick(), &markWatch{env: e}
	s.OfferFamilies = []ipalloc.Family{ipalloc.IPv4}
	s.Defaults.Policy.IdleFor = time.Hour
	e.startWith(s, func(c client.WithWatch) client.Client { return marks.wrap(slowClaims(c)) })
	e.pool("all", tight, "10.1.0.0/25") // four blocks
	for _, name := range []string{"n1", "n2"} {
		e.ready(e.node(name, map[string]string{"name": name}))
		e.changeNode(name, func(n *corev1.Node) { n.Spec.Taints = nil })
		e.offers(name, 28)
	}
	e.requestingPods("n2", "gone", 80, nil)
	e.running("gone", 80)
	e.hasBlocks("n2", 3)
	e.DeletePods("gone", nil)
	e.offers("n2", 88)

	e.requestingPods("", "load", 40, func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"name": "n1"} })
	e.allScheduled("load")
	e.running("load", 40)
	e.hasBlocks("n1", 2)
	e.hasBlocks("n2", 2)
	e.offers("n2", 58)
	if marks.marked.Load() == 0 {
		t.Error("no mark was seen")
	}
}

// markWatch checks, as each address is marked for release, that its Node offers no more than the
// rest.
type markWatch struct {
	*env
	marked atomic.Int64
}

func (m *markWatch) wrap(c client.WithWatch) client.Client {
	return interceptor.NewClient(c, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			if cn, ok := o.(*ciliumv2.CiliumNode); ok {
				m.observe(cn, p)
			}
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})
}

// observe reads from the API server: the operator's client does not cache CiliumNodes.
func (m *markWatch) observe(o *ciliumv2.CiliumNode, p client.Patch) {
	data, err := p.Data(o)
	if err != nil {
		m.TB.Error(err)
		return
	}
	var change struct {
		Status struct {
			IPAM struct {
				Release map[string]*expand.ReleaseStatus `json:"release-ips"`
			}
		}
	}
	if err := json.Unmarshal(data, &change); err != nil {
		m.TB.Errorf("%v: %s", err, data)
		return
	}
	cn, node := &ciliumv2.CiliumNode{}, &corev1.Node{}
	for _, obj := range []client.Object{cn, node} {
		if err := m.Client.Get(m.Ctx, client.ObjectKey{Name: o.Name}, obj); err != nil {
			m.TB.Error(err)
			return
		}
	}
	left := len(cn.Spec.IPAM.Pool)
	for addr := range cn.Spec.IPAM.Pool {
		entry, changes := change.Status.IPAM.Release[addr]
		if changes && entry != nil {
			m.marked.Add(1)
		}
		if is := expand.ReleaseStatus(cn.Status.IPAM.ReleaseIPs[addr]); changes && entry != nil || is == expand.Marked || is == expand.Ready {
			left--
		}
	}
	if offer := scheduling.OfferIn(node.Status.Allocatable)[ipalloc.IPv4]; offer > left {
		m.TB.Errorf("node %s offers %d addresses as the operator writes %s, after which %d are left", o.Name, offer, data, left)
	}
}

// offers waits until a Node offers that many IPv4 addresses.
func (e *env) offers(node string, want int) {
	e.TB.Helper()
	e.Eventually(fmt.Sprintf("node %s offers %d addresses", node, want), func() error {
		n := &corev1.Node{}
		if err := e.Client.Get(e.Ctx, client.ObjectKey{Name: node}, n); err != nil {
			return err
		}
		for _, list := range []corev1.ResourceList{n.Status.Capacity, n.Status.Allocatable} {
			if got := scheduling.OfferIn(list); got != (scheduling.Offer{want, scheduling.NoOffer}) {
				return fmt.Errorf("it offers %v", got)
			}
		}
		return nil
	})
}

// TestOffers checks that a Node offers its addresses through growth and reclaim, with a kubelet
// that zeroes them, with an operator that is down, and with an operator that no longer offers any.
func TestOffers(t *testing.T) {
	e := newEnv(t)
	s, marks := quick(), &markWatch{env: e}
	s.OfferFamilies = []ipalloc.Family{ipalloc.IPv4}
	op := e.startWith(s, marks.wrap)
	e.pool("all", nil, "10.1.0.0/24")
	e.ready(e.node("n1", nil))
	e.offers("n1", 28) // the agent has an address, and may take another

	e.requestingPods("n1", "load", 40, nil)
	e.running("load", 40)
	e.hasBlocks("n1", 2)
	e.offers("n1", 58)
	e.DeletePods("load", nil)
	e.hasBlocks("n1", 1)
	e.offers("n1", 28)
	if marks.marked.Load() == 0 {
		t.Error("no mark was seen")
	}
	e.load("n1", "plain", 5) // like existing pods from before
	e.offers("n1", 23)

	n := &corev1.Node{}
	e.Read(n, "", "n1")
	zero := `{"status":{"capacity":{"cilium-pool.io/ipv4":"0"},"allocatable":{"cilium-pool.io/ipv4":"0"}}}`
	e.Must(e.Client.Status().Patch(e.Ctx, n, client.RawPatch(types.MergePatchType, []byte(zero))))
	e.offers("n1", 23)

	op.stop()
	e.offers("n1", 23)
	e.start(quick())
	e.offers("n1", scheduling.NoOffer)
	e.noRuleBroken()
}
