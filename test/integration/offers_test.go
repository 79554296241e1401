package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/scheduling"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

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
				m.look(cn, p)
			}
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})
}

// look reads from the API server: the operator's client does not cache CiliumNodes.
func (m *markWatch) look(o *ciliumv2.CiliumNode, p client.Patch) {
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

// requestingPods creates n bound pods that request an address each.
func (e *env) requestingPods(node, prefix string, n int) {
	e.TB.Helper()
	one := corev1.ResourceList{v1alpha1.IPv4Resource: resource.MustParse("1")}
	for i := range n {
		p := harness.BoundPod(node, fmt.Sprintf("%s-%d", prefix, i), map[string]string{"app": prefix})
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: one, Limits: one}
		e.Create(p)
	}
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

	e.requestingPods("n1", "load", 40)
	e.running("load", 40)
	e.hasBlocks("n1", 2)
	e.offers("n1", 58)
	e.DeletePods("load", nil)
	e.hasBlocks("n1", 1)
	e.offers("n1", 28)
	if marks.marked.Load() == 0 {
		t.Error("no mark was seen")
	}
	e.Pods("n1", "plain", 5) // like existing pods from before
	e.running("plain", 5)
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
