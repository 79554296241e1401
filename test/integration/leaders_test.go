package integration

import (
	"errors"
	"fmt"
	"testing"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	poolcontroller "github.com/cilium-pool/cilium-pool-operator/pkg/controller/pool"
	"github.com/cilium-pool/cilium-pool-operator/test/agent"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

func TestTwoOperatorsAtOnce(t *testing.T) {
	e := newEnv(t)
	s := quick()
	e.pool("all", nil, "10.1.0.0/24")
	e.start(s)
	second := e.start(s)
	lifeOfTwoNodes(e)
	second.stop()
	settlesDown(e)
}

// An operator that starts in a quiet cluster writes nothing: neither while drains and pods wait, nor where windows
// follow each other.
func TestRestartWritesNothing(t *testing.T) {
	e := newEnv(t)
	s := quick()
	first := e.start(s)
	in := func(zone string, windows ...v1alpha1.MaintenanceWindow) func(*v1alpha1.PodIPPool) {
		return func(p *v1alpha1.PodIPPool) {
			p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"zone": zone}}
			p.Spec.Maintenance.Windows = windows
		}
	}
	hourly := v1alpha1.MaintenanceWindow{Schedule: "0 * * * *", Duration: "2h"}
	yearly := v1alpha1.MaintenanceWindow{Schedule: "0 0 1 1 *", Duration: "1m"}
	e.pool("open", func(p *v1alpha1.PodIPPool) {
		in("open", hourly)(p)
		p.Spec.IPv6 = &v1alpha1.IPv6Ranges{BlockSize: 124, CIDRs: []v1alpha1.PoolCIDR{{CIDR: "fd00:10::/112"}}}
	}, "10.1.0.0/24")
	e.pool("shut", in("shut", yearly), "10.2.0.0/24")
	e.pool("full", in("full"), "10.3.0.0/27")
	for name, zone := range map[string]string{"n1": "open", "n2": "open", "n3": "shut", "n4": "full"} {
		families := []agent.Family{agent.IPv4}
		if zone == "open" {
			families = append(families, agent.IPv6)
		}
		e.node(name, map[string]string{"zone": zone}, families...)
		e.Pods(name, "load-"+name, 20)
	}
	for _, node := range []string{"n1", "n2", "n3", "n4"} {
		e.running("load-"+node, 20)
	}
	for _, node := range []string{"n1", "n3"} {
		block := e.Blocks(node)[0]
		was := block.DeepCopy()
		block.Spec.Drain = new(true)
		e.Must(e.Client.Patch(e.Ctx, &block, client.MergeFrom(was)))
	}
	e.Pods("n4", "more", 20)
	e.shortage("n4", corev1.ConditionTrue)
	e.condition("full", v1alpha1.PoolReady, metav1.ConditionFalse, poolcontroller.ReasonNodesShort)
	for node, reason := range map[string]string{"n1": "AgentRestart", "n3": "Window"} {
		e.awaitBlocks("a block of "+node+" waits for "+reason, node, 1, 1, func(b v1alpha1.PodIPBlock) bool {
			return b.Status.WaitsFor != nil && b.Status.WaitsFor.Reason == reason
		})
	}
	// The operator writes these figures once a minute if nothing else of a pool changes.
	for pool, used := range map[string]int64{"open": 42, "shut": 21, "full": 30} {
		e.Eventually("pool "+pool+" shows the addresses in use", func() error {
			p := &v1alpha1.PodIPPool{}
			e.Read(p, "", pool)
			if shown := ptr.Deref(p.Status.IPv4.Addresses.Used, 0); shown != used {
				return fmt.Errorf("it shows %d of %d", shown, used)
			}
			return nil
		})
	}
	e.Eventually("nothing is written any more", e.unchanged())
	before := e.written()
	first.stop()

	s.AgentSettle = 2 * time.Second
	e.start(s)
	e.pool("new", in("new"), "10.4.0.0/24")
	e.node("n5", map[string]string{"zone": "new"})
	e.hasBlocks("n5", 1)
	e.Eventually("nothing is written any more", e.unchanged())
	after := e.written()
	for name, object := range before {
		if after[name] == nil || after[name].GetResourceVersion() != object.GetResourceVersion() {
			t.Errorf("%s was written:\n%s", name, cmp.Diff(object, after[name]))
		}
	}
}

// written returns the objects that the operator writes, by kind and name.
func (e *env) written() map[string]client.Object {
	e.TB.Helper()
	written := map[string]client.Object{}
	for _, list := range []client.ObjectList{&corev1.NodeList{}, &v1alpha1.PodIPPoolList{}, &v1alpha1.PodIPBlockList{}, &ciliumv2.CiliumNodeList{}} {
		e.Must(e.Client.List(e.Ctx, list))
		e.Must(meta.EachListItem(list, func(o runtime.Object) error {
			obj := o.(client.Object)
			written[fmt.Sprintf("%T %s", obj, obj.GetName())] = obj
			return nil
		}))
	}
	return written
}

// lifeOfTwoNodes takes two nodes through all events that move blocks.
func lifeOfTwoNodes(e *env) {
	e.TB.Helper()
	for _, n := range []string{"n1", "n2"} {
		e.node(n, nil)
		e.Pods(n, "load", 50)
	}
	e.running("load", 100)
	e.DeletePods("load", keepFew)
	e.Eventually("addresses come back", func() error {
		// Each node keeps a block in service, with the router, and the addresses of pods
		// elsewhere.
		if n := e.published(); n > 2*(30+4) {
			return fmt.Errorf("%d are published", n)
		}
		return nil
	})
	e.load("n1", "again", 50)
	b := e.Blocks("n1")[0]
	if err := e.Client.Delete(e.Ctx, &b); client.IgnoreNotFound(err) != nil {
		e.TB.Fatal(err)
	}
	cn := e.readCiliumNode("n2")
	e.deleteCiliumNode(cn)
	e.eventuallyOn("n2's CiliumNode is back, with all that is used", "n2", func(cn *ciliumv2.CiliumNode) error {
		for addr, owner := range e.held("n2") {
			if _, published := cn.Spec.IPAM.Pool[addr.String()]; !published {
				return fmt.Errorf("%s, used by %s, is not in the pool", addr, owner)
			}
		}
		return e.checker.Sync(e.Ctx)
	})
	e.DeletePods("again", nil)
	e.bareNode("n3", nil)
	e.Eventually("n3 has a block", func() error {
		cn, err := e.ciliumNode("n3")
		if err == nil && len(cn.Spec.IPAM.Pool) == 0 {
			err = errors.New("nothing is published")
		}
		return err
	})
	e.Delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n3"}})
	e.Gone(&ciliumv2.CiliumNode{ObjectMeta: metav1.ObjectMeta{Name: "n3"}})
}

// settlesDown waits until every node has exactly the blocks it needs and no object changes any
// more.
func settlesDown(e *env) {
	e.TB.Helper()
	e.awaitBlocks("no block is left over", "n3", 0, 0, nil)
	e.Eventually("no address is left over", func() error {
		if n := e.published(); n > 2*(30+4) {
			return fmt.Errorf("%d addresses are published", n)
		}
		return nil
	})
	e.Eventually("nothing is written any more", e.unchanged())
	for _, n := range []string{"n1", "n2"} {
		e.usedArePublished(n)
	}
}

// published returns the number of addresses in all pools.
func (e *env) published() int {
	e.TB.Helper()
	cns := &ciliumv2.CiliumNodeList{}
	e.Must(e.Client.List(e.Ctx, cns))
	n := 0
	for _, cn := range cns.Items {
		n += len(cn.Spec.IPAM.Pool)
	}
	return n
}

// unchanged returns a function that returns an error unless no object has changed for a while.
func (e *env) unchanged() func() error {
	holds := harness.Still(e.Client, 2*time.Second)
	return func() error { return holds(e.Ctx) }
}
