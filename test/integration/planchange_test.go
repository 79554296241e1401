package integration

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolcontroller "github.com/cilium-pool/cilium-pool-operator/pkg/controller/pool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// podsPerNode is more than one /29 holds, and less than two hold.
const podsPerNode = 4

// planned is a cluster with an address plan that changes while its pods run.
type planned struct {
	*env
	size  int // number of nodes
	nodes []string
	made  int
	// was contains the addresses of pods so far, by pod.
	was map[string]string
}

// TestPlanChange changes the address plan of a running cluster in every way described
// in docs/operations.md, one after the other. Pods that are not restarted keep their
// addresses, every pod has one, and the invariant checker runs throughout.
func TestPlanChange(t *testing.T) {
	p := &planned{env: newEnv(t), size: 8, was: map[string]string{}}
	s := quick()
	s.NodeWorkers = 32
	p.start(s)
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"the cluster joins", p.join},
		{"a pool grows by two ranges elsewhere", p.grow},
		{"a drain waits for its window", p.drainHeld},
		{"a CIDR drains", p.drainCIDR},
		{"a range is taken out", p.takeOut},
		{"blocks of another size: one pool takes the place of another", p.replace},
		{"nodes move to another zone", p.moveZone},
		{"everything settles", p.settled},
	} {
		began := time.Now()
		step.do()
		t.Logf("%6.1f s: %s", time.Since(began).Seconds(), step.name)
	}
	t.Logf("%d nodes, %d blocks; judged %s", len(p.nodes), len(p.Blocks("")), p.checker.Stats())
}

// The address plan, in the order of the story.
const (
	oldA, nextA, lastA = "10.1.0.0/18", "10.1.128.0/18", "10.101.0.0/18"
	oldB, largeB       = "10.2.0.0/18", "10.3.0.0/17"
)

func sized(bits int32, more ...func(*v1alpha1.PodIPPool)) func(*v1alpha1.PodIPPool) {
	return func(p *v1alpha1.PodIPPool) {
		p.Spec.IPv4.BlockSize = bits
		for _, mod := range more {
			mod(p)
		}
	}
}

func (p *planned) join() {
	p.pool("a", sized(29, zone("a")), oldA)
	p.pool("b", sized(29, zone("b")), oldB)
	for i := range p.size {
		name := fmt.Sprintf("node-%03d", i)
		p.nodes = append(p.nodes, name)
		p.node(name, map[string]string{"zone": []string{"a", "b"}[i%2]})
		p.add(name, podsPerNode)
	}
	p.allRun()
}

// inZone returns the nodes that started in a zone.
func (p *planned) inZone(z int) []string {
	var out []string
	for i := z; i < len(p.nodes); i += 2 {
		out = append(out, p.nodes[i])
	}
	return out
}

func (p *planned) grow() {
	p.Eventually("nothing is written any more", p.still())
	before := p.Blocks("")
	p.change("a", func(pool *v1alpha1.PodIPPool) {
		pool.Spec.IPv4.CIDRs = append(pool.Spec.IPv4.CIDRs, v1alpha1.PoolCIDR{CIDR: nextA}, v1alpha1.PoolCIDR{CIDR: lastA})
	})
	p.Eventually("the pool counts them", func() error {
		pool := &v1alpha1.PodIPPool{}
		if err := p.Client.Get(p.Ctx, client.ObjectKey{Name: "a"}, pool); err != nil {
			return err
		}
		if s := pool.Status.IPv4; s == nil || s.Blocks.Total != 3<<11 {
			return fmt.Errorf("the status is %+v", s)
		}
		return nil
	})
	if after := p.Blocks(""); len(after) != len(before) {
		p.TB.Errorf("%d blocks before, %d after: nothing had to move", len(before), len(after))
	}
}

func setDrain(cidrs ...string) func(*v1alpha1.PodIPPool) {
	return func(p *v1alpha1.PodIPPool) {
		for i := range p.Spec.IPv4.CIDRs {
			if c := &p.Spec.IPv4.CIDRs[i]; slices.Contains(cidrs, c.CIDR) {
				c.AllocationPolicy = v1alpha1.AllocationDrain
			}
		}
	}
}

// drainHeld requests a drain while the pool's only window is half a day away.
func (p *planned) drainHeld() {
	away := time.Now().UTC().Add(12 * time.Hour)
	p.change("a", func(pool *v1alpha1.PodIPPool) {
		pool.Spec.Maintenance.Windows = []v1alpha1.MaintenanceWindow{{
			Schedule: fmt.Sprintf("%d %d * * *", away.Minute(), away.Hour()), Duration: "1h",
		}}
	})
	p.change("a", setDrain(oldA))
	held := 0
	p.Eventually("every block says that it waits", func() error {
		held = 0
		for _, b := range p.Blocks("") {
			c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.BlockDraining)
			switch {
			case !blockIn(b, oldA):
				if b.Spec.PoolName == "a" {
					p.TB.Fatalf("block %s was claimed for a drain that is held", b.Name)
				}
			case c == nil:
				return fmt.Errorf("%s says nothing", b.Name)
			case c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.WaitsFor+"Window":
				p.TB.Fatalf("%s: %+v", b.Name, c)
			default:
				held++
			}
		}
		return nil
	})
	if held < len(p.nodes)/2 {
		p.TB.Errorf("only %d blocks are held", held)
	}
	p.condition("a", v1alpha1.PoolWindow, metav1.ConditionFalse, poolcontroller.ReasonWindowClosed)
}

// drainCIDR keeps the window open, so that the drain begins.
func (p *planned) drainCIDR() {
	p.change("a", func(pool *v1alpha1.PodIPPool) { pool.Spec.Maintenance = v1alpha1.MaintenancePolicy{} })
	p.moveOff(oldA)
}

// takeOut removes the range that the drain has just filled, and the range that it emptied.
func (p *planned) takeOut() {
	p.change("a", func(pool *v1alpha1.PodIPPool) {
		pool.Spec.IPv4.CIDRs = slices.DeleteFunc(pool.Spec.IPv4.CIDRs, func(c v1alpha1.PoolCIDR) bool { return c.CIDR != lastA })
	})
	p.moveOff(oldA, nextA)
}

// replace lets a pool of another block size outrank an old one, drains the old one, and deletes it.
func (p *planned) replace() {
	p.pool("b-large", sized(28, zone("b"), priority(10)), largeB)
	p.change("b", setDrain(oldB))
	p.moveOff(oldB)
	p.Delete(&v1alpha1.PodIPPool{ObjectMeta: metav1.ObjectMeta{Name: "b"}})
	// The blocks with the routers' addresses stay as long as their nodes.
	p.condition("b", v1alpha1.PoolReady, metav1.ConditionFalse, poolcontroller.ReasonDeleting)
	for _, b := range p.Blocks("") {
		if blockIn(b, largeB) && netip.MustParsePrefix(b.Spec.CIDR).Bits() != 28 {
			p.TB.Errorf("%s is not of the new size", b.Name)
		}
	}
}

// moveZone relabels a few nodes: new blocks come from the other zone's pool, and the
// blocks they hold stay.
func (p *planned) moveZone() {
	moving := p.inZone(0)
	moving = moving[:(len(moving)+2)/3]
	for _, name := range moving {
		label := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"zone":"b"}}}`))
		p.Must(p.Client.Patch(p.Ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, label))
	}
	had := map[string][]v1alpha1.PodIPBlock{}
	for _, name := range moving {
		had[name] = slices.DeleteFunc(p.Blocks(name), func(b v1alpha1.PodIPBlock) bool { return len(b.Status.Conditions) > 0 })
		p.add(name, 6*podsPerNode) // more than fit into all blocks that it may have left
	}
	p.allRun()
	for _, name := range moving {
		now := p.Blocks(name)
		if !slices.ContainsFunc(now, func(b v1alpha1.PodIPBlock) bool { return b.Spec.PoolName == "b-large" }) {
			p.TB.Errorf("%s has no block of its new zone", name)
		}
		for _, old := range had[name] {
			if !slices.ContainsFunc(now, func(b v1alpha1.PodIPBlock) bool { return b.Name == old.Name }) {
				p.TB.Errorf("%s has lost %s without a request", name, old.Name)
			}
		}
	}
}

func (p *planned) settled() {
	p.Eventually("nothing is written any more", p.still())
	p.kept()
	for _, name := range p.nodes {
		p.usedArePublished(name)
	}
}

// moveOff restarts the pods with addresses in draining blocks of these ranges, as an
// administrator does, until only the agents' own addresses of the blocks are published.
func (p *planned) moveOff(cidrs ...string) {
	p.TB.Helper()
	var leaving []netip.Prefix
	for _, c := range cidrs {
		leaving = append(leaving, netip.MustParsePrefix(c))
	}
	in := func(a netip.Addr) bool {
		return slices.ContainsFunc(leaving, func(l netip.Prefix) bool { return l.Contains(a) })
	}
	p.kept()
	p.Eventually(fmt.Sprintf("%v is empty", cidrs), func() error {
		return errors.Join(p.restart(in), p.leftOf(in))
	})
	p.allRun()
	p.kept()
}

// leftOf returns an error while addresses of the draining ranges are published, other
// than the agents' own.
func (p *planned) leftOf(in func(netip.Addr) bool) error {
	cns := &ciliumv2.CiliumNodeList{}
	if err := p.Client.List(p.Ctx, cns); err != nil {
		return err
	}
	for i := range cns.Items {
		cn := &cns.Items[i]
		own := map[string]bool{}
		for _, a := range cn.Spec.Addresses {
			own[a.IP] = true
		}
		for key := range cn.Spec.IPAM.Pool {
			if in(netip.MustParseAddr(key)) && !own[key] {
				return fmt.Errorf("%s still has %s", cn.Name, key)
			}
		}
	}
	return nil
}

// restart replaces the pods with an address in a block that has begun to drain.
func (p *planned) restart(in func(netip.Addr) bool) error {
	var draining []netip.Prefix
	for _, b := range p.Blocks("") {
		if meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.BlockDraining) {
			draining = append(draining, netip.MustParsePrefix(b.Spec.CIDR))
		}
	}
	leaves := func(a netip.Addr) bool {
		return slices.ContainsFunc(draining, func(b netip.Prefix) bool { return b.Contains(a) })
	}
	restarted := map[string]int{}
	var old []corev1.Pod
	for _, pod := range p.all() {
		a, err := netip.ParseAddr(pod.Status.PodIP)
		if err == nil && in(a) && leaves(a) {
			old = append(old, pod)
			restarted[pod.Spec.NodeName]++
		}
	}
	p.Must(harness.Parallel(p.Ctx, len(old), 8, func(ctx context.Context, i int) error {
		return client.IgnoreNotFound(p.Client.Delete(ctx, &old[i]))
	}))
	for node, n := range restarted {
		p.add(node, n)
	}
	if len(old) > 0 {
		return fmt.Errorf("%d pods had to move", len(old))
	}
	return nil
}

// all returns the pods that are not being deleted.
func (p *planned) all() []corev1.Pod {
	p.TB.Helper()
	list := &corev1.PodList{}
	p.Must(p.Client.List(p.Ctx, list, client.InNamespace("default"), client.MatchingLabels{"app": "plan"}))
	return slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return pod.DeletionTimestamp != nil })
}

// add creates pods on a node.
func (p *planned) add(node string, n int) {
	p.TB.Helper()
	first := p.made
	p.made += n
	p.Must(harness.Parallel(p.Ctx, n, 8, func(ctx context.Context, i int) error {
		return p.Client.Create(ctx, harness.BoundPod(node, fmt.Sprintf("plan-%05d", first+i), map[string]string{"app": "plan"}))
	}))
}

// allRun waits until every pod has an address.
func (p *planned) allRun() {
	p.TB.Helper()
	p.Eventually("every pod has an address", func() error {
		for _, pod := range p.all() {
			if pod.Status.PodIP == "" {
				return fmt.Errorf("%s on %s has none", pod.Name, pod.Spec.NodeName)
			}
		}
		return nil
	})
}

// kept fails the test if a pod's address has changed.
func (p *planned) kept() {
	p.TB.Helper()
	for _, pod := range p.all() {
		if before, known := p.was[pod.Name]; known && before != pod.Status.PodIP {
			p.TB.Errorf("%s had %s and has %s", pod.Name, before, pod.Status.PodIP)
		}
		p.was[pod.Name] = pod.Status.PodIP
	}
}
