package explain

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterview"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/scheduling"
	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
)

func readPod(ctx context.Context, c client.Reader, namespace, name string) (*corev1.Pod, []corev1.Pod, error) {
	found := &corev1.PodList{}
	waiting := &corev1.PodList{}
	err := c.List(ctx, found, client.InNamespace(namespace), client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("metadata.name", name)})
	if err != nil {
		return nil, nil, fmt.Errorf("listing pods: %w", err)
	}
	if len(found.Items) == 0 {
		return nil, nil, fmt.Errorf("there is no pod %s in namespace %s", name, namespace)
	}
	if err := c.List(ctx, waiting, client.MatchingFieldsSelector{Selector: scheduling.UnscheduledFields()}); err != nil {
		return nil, nil, fmt.Errorf("listing pods: %w", err)
	}
	return &found.Items[0], waiting.Items, nil
}

// Pod writes why a pod has no address. waiting are all pods that are not
// scheduled.
func Pod(s *cli.Text, c *clusterview.Cluster, pod *corev1.Pod, waiting []corev1.Pod) {
	noLeader(s, c)
	s.Line("POD %s/%s", pod.Namespace, pod.Name)
	said := scheduled(pod)
	switch {
	case pod.Spec.HostNetwork:
		s.Line("It is on the host network, and needs no address of a pool.")
	case pod.Spec.NodeName != "":
		explainBound(s, c, pod)
	case said == nil:
		s.Line("It is not bound to a node, and the scheduler has not said why.")
	case !scheduling.LacksAddresses(pod):
		s.Line("It waits for something else than addresses. The scheduler says: %s", said.Message)
	case len(c.Operator.Settings.OfferFamilies) == 0:
		s.Line("It requests addresses of the scheduler, and no Node offers any, as scheduling is disabled: create it anew, so that it requests none.")
	default:
		s.Line("It is pending, as the nodes that it suits lack addresses. The scheduler says: %s", said.Message)
		s.Line("")
		explainPending(s, c, pod, waiting)
	}
}

func scheduled(pod *corev1.Pod) *corev1.PodCondition {
	i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodScheduled })
	if i < 0 {
		return nil
	}
	return &pod.Status.Conditions[i]
}

// pending is the operator's action for the waiting pods, and the pod in question.
type pending struct {
	c        *clusterview.Cluster
	offering *scheduling.Offering
	a        scheduling.Assignment
	pod      scheduling.UnscheduledPod
	family   ipalloc.Family
}

func explainPending(s *cli.Text, c *clusterview.Cluster, pod *corev1.Pod, waiting []corev1.Pod) {
	u := scheduling.NewUnscheduled()
	for i := range waiting {
		u.Set(scheduling.ReadUnscheduled(&waiting[i]), c.Now)
	}
	for _, name := range c.NodeNames() { // of these, Assign finds the nodes with full pools
		u.SetWithoutBlock(name, len(c.State.Ledger.NodeBlocks(name)) == 0)
	}
	c.State.Unscheduled = u
	offering := scheduling.Offering{State: c.State, Unscheduled: u}
	p := pending{c: c, offering: &offering, a: offering.Assign(c.Objects.Nodes, c.Now), pod: scheduling.ReadUnscheduled(pod)}
	for _, f := range ipalloc.Families() {
		if p.pod.Addresses()[f] > 0 {
			p.family = f
			p.explain(s)
		}
	}
}

func (p *pending) explain(s *cli.Text) {
	s.Line("It requests %s. Pods that wait for addresses: %d.",
		suggest.Plural(p.pod.Addresses()[p.family], p.family.String()+" address", p.family.String()+" addresses"), p.a.Pods)
	var pools []string
	suits := 0
	for i := range p.a.Candidates {
		n := &p.a.Candidates[i]
		if n.CiliumPools != p.pod.CiliumPools() || !p.pod.Suits(p.offering.WithoutStartupTaints(p.c.Nodes[n.Node])) {
			continue
		}
		suits++
		s.Line("  %s: %s", n.Node, p.node(i))
		for _, pool := range n.Pools[p.family] {
			if !slices.Contains(pools, pool) {
				pools = append(pools, pool)
			}
		}
	}
	if rest := len(p.c.Nodes) - suits; rest > 0 {
		s.Line("%s not suit it by labels, taints or a cordon, or %s no addresses.",
			suggest.Plural(rest, "node does", "nodes do"), map[bool]string{true: "offers", false: "offer"}[rest == 1])
	}
	for _, pool := range pools {
		p.pool(s, pool)
	}
}

// node describes a candidate's addresses for the pod.
func (p *pending) node(i int) string {
	n := &p.a.Candidates[i]
	f := p.family
	room := n.Room[f]
	d := p.decision(n)
	switch {
	case room.Free >= p.pod.Addresses()[f]:
		return suggest.Plural(room.Free, "address", "addresses") + " free: it waits for the scheduler, or for something else there"
	case p.a.Missing[i][f] > 0:
		return "no address free; it waits for a block, and its pools have none"
	case p.a.Expected[i][f] > 0:
		return "no address free; it grows"
	case d != nil && !d.Standing.MayChange():
		return "no address free, and nothing changes there: " + d.Standing.Because()
	case n.Pods <= 0:
		return "its kubelet admits no more pods"
	case len(n.Pools[f]) == 0:
		return "no address free, and no pool assigns it blocks"
	case room.Blocks == 0 && d != nil:
		return fmt.Sprintf("no address free, and it may hold no more than %s (maxBlocksPerNode)", suggest.Count(d.Policy.MaxBlocks, "block"))
	case room.Addresses == 0:
		return "no address free, and it may have no more (max-allocate or --max-addresses-per-node)"
	}
	return "no address free; other nodes grow first"
}

// decision returns the operator's decision on the Cilium pool that the pod requests of a candidate; nil: there is none.
func (p *pending) decision(n *scheduling.Candidate) *clusterview.Decision {
	decisions := p.c.Decide(n.Node)
	i := slices.IndexFunc(decisions, func(d clusterview.Decision) bool {
		return d.Family == p.family && d.CiliumPool == n.CiliumPools[p.family]
	})
	if i < 0 {
		return nil
	}
	return &decisions[i]
}

// pool describes whether a pool is full, and the ways to free some of it.
func (p *pending) pool(s *cli.Text, name string) {
	pool := p.c.State.Pools.Get(name)
	if pool == nil {
		return
	}
	if cut, ok := pool.Cut(p.family); ok {
		if free := p.c.State.Ledger.Free(cut); free > 0 {
			s.Line("Free blocks of pool %s: %s.", name, cli.Many(free))
			return
		}
	}
	s.Line("Pool %s is full: %s.", name, p.c.State.Ledger.Cooldowns(pool, p.family))
	var leaving []string
	for _, b := range p.offering.Returning(name, p.family, p.c.Now) {
		leaving = append(leaving, fmt.Sprintf("%s of node %s", b.CIDR, b.Node))
	}
	slices.Sort(leaving)
	recalled := p.recalled(name)
	switch {
	case len(leaving) > 0:
		s.Line("On their way back to it: %s.", suggest.Few(leaving))
	case len(recalled) > 0:
		s.Line("Idle elsewhere, and returned at once: %s.", suggest.Few(recalled))
	default:
		s.Line("No block of it is idle: delete pods that can go, or add a CIDR to the pool.")
	}
}

// recalled returns the blocks of a pool that other nodes return for the waiting pods.
func (p *pending) recalled(pool string) []string {
	var out []string
	for _, node := range p.c.NodeNames() {
		for _, cidr := range p.a.Needs[scheduling.NodeCiliumPool{Node: node}].Recall {
			if b, ok := p.c.State.Ledger.Block(cidr); ok && b.Pool == pool {
				out = append(out, fmt.Sprintf("%s of node %s", cidr, node))
			}
		}
	}
	return out
}
