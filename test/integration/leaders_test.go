package integration

import (
	"errors"
	"fmt"
	"testing"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
