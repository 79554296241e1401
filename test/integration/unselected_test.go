package integration

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
)

// Three nodes are moved to another zone, and must move to its pool. They do so one by one:
// each gets a replacement, its agent's own addresses are retired, and its blocks of the old
// zone are gone once its pods are and its agent has restarted. The operator is replaced
// meanwhile, and one node moves back before its turn.
func TestNodesMoveOffAPool(t *testing.T) {
	e := newEnv(t)
	first := e.start(quick())
	e.pool("a", func(p *v1alpha1.PodIPPool) {
		zone("a")(p)
		p.Spec.UnselectedNodes.Mode = v1alpha1.UnselectedNodesDrain
	}, "10.1.0.0/24")
	e.pool("b", zone("b"), "10.2.0.0/24")
	nodes := []string{"n1", "n2", "n3"}
	for _, name := range nodes {
		e.ready(e.node(name, map[string]string{"zone": "a"}))
		e.Pods(name, "on-"+name, 5)
		e.running("on-"+name, 5)
	}
	for _, name := range nodes {
		e.moveTo(name, "b")
	}
	mover := e.onlyMover(nodes)
	first.stop()
	e.start(quick())
	if still := e.onlyMover(nodes); still != mover {
		t.Errorf("%s moves, and %s has begun", still, mover)
	}
	e.moves(mover)

	waiting := slices.DeleteFunc(nodes, func(n string) bool { return n == mover })
	mover = e.onlyMover(waiting)
	back := waiting[1-slices.Index(waiting, mover)]
	e.moveTo(back, "a")
	e.Eventually("the block of "+back+" serves", func() error {
		if c := e.Blocks(back)[0].Status.Conditions; len(c) > 0 {
			return fmt.Errorf("conditions are %v", c)
		}
		return nil
	})
	e.moves(mover)
	if n := e.blocksIn(back, "10.1.0.0/24"); n != 1 {
		t.Errorf("%s has %d blocks of its zone", back, n)
	}
}

func (e *env) moveTo(node, zone string) {
	e.TB.Helper()
	label := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"zone":"`+zone+`"}}}`))
	e.Must(e.Client.Patch(e.Ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, label))
}

// onlyMover waits until one of the nodes moves off its first block, and all others wait
// for it.
func (e *env) onlyMover(nodes []string) (mover string) {
	e.TB.Helper()
	e.Eventually("one node moves, and all others wait", func() error {
		mover = ""
		blocks := e.Blocks("")
		for _, name := range nodes {
			reason := ""
			first := slices.IndexFunc(blocks, func(b v1alpha1.PodIPBlock) bool { return b.Spec.NodeName == name })
			if c := meta.FindStatusCondition(blocks[first].Status.Conditions, v1alpha1.BlockDraining); c != nil {
				reason = c.Reason
			}
			switch {
			case reason == v1alpha1.ReasonNodeUnselected && mover != "":
				e.TB.Fatalf("%s and %s move at a time", mover, name)
			case reason == v1alpha1.ReasonNodeUnselected:
				mover = name
			case reason != v1alpha1.WaitsFor+"Nodes":
				return fmt.Errorf("%s neither moves nor waits: %q", name, reason)
			}
		}
		if mover == "" {
			return errors.New("none moves")
		}
		return nil
	})
	return mover
}

// moves terminates the pods of a node, restarts its agent, waits until the node has left pool
// a for pool b, and runs pods there.
func (e *env) moves(node string) {
	e.TB.Helper()
	e.DeletePods("on-"+node, nil)
	e.retired(node, e.Blocks(node)[0].Spec.CIDR) // or the agent may take an address that a pod has just left
	e.restart(e.fleet.Machine(node).Agent)
	e.Eventually(node+" has moved", func() error {
		if old, now := e.blocksIn(node, "10.1.0.0/24"), e.blocksIn(node, "10.2.0.0/24"); old > 0 || now == 0 {
			return fmt.Errorf("it has %d blocks of its old zone, and %d of the new one", old, now)
		}
		return nil
	})
	e.Pods(node, "again-on-"+node, 5)
	e.running("again-on-"+node, 5)
	e.usedArePublished(node)
}
