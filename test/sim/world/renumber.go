package world

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
)

// Renumbering is a range of the first pool that users replace by another, and back, with
// kubectl cilium-pool renumber.
type Renumbering struct {
	// From exists from the start. To has room for all nodes.
	From, To netip.Prefix
	// MaxConcurrent is how many pods may be evicted and not gone at a time.
	MaxConcurrent int
	// Alone: one pod in this many has no controller. Zero: none.
	Alone int
	// KeepAgents: users restart agents themselves, without --restart-agents.
	KeepAgents bool
}

// The commands of users: onward and back. Either can be aborted.
const (
	onward    = "onward"
	backward  = "backward"
	abortThat = "abort-"
)

// ranges returns the range that a command replaces, and its replacement.
func (r *Renumbering) ranges(command string) (from, to netip.Prefix) {
	if strings.TrimPrefix(command, abortThat) == backward {
		return r.To, r.From
	}
	return r.From, r.To
}

// commandLine returns the arguments that users type.
func (r *Renumbering) commandLine(command string) []string {
	from, to := r.ranges(command)
	line := []string{"renumber", "--from", from.String(), "--to", to.String()}
	if strings.HasPrefix(command, abortThat) {
		return append(line, "--abort")
	}
	if !r.KeepAgents {
		line = append(line, "--restart-agents")
	}
	return append(line, "--yes", "--every", "15s", "--max-concurrent", strconv.Itoa(r.MaxConcurrent))
}

func (w *World) enableRenumber() {
	if w.cfg.Renumbering == nil {
		return
	}
	for _, command := range []string{onward, backward, abortThat + onward, abortThat + backward} {
		w.can(Renumber, people, command)
	}
}

// controlled gives most pods a controller that would recreate them.
func (r *Renumbering) controlled(w *World, pod *corev1.Pod) {
	if r == nil || r.Alone > 0 && w.pick(keyOf(pod), w.api.version, r.Alone) == 0 {
		return
	}
	yes := true
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "rs", UID: "rs", Controller: &yes}}
}

// readings are the last answers that a command received, and what it has done since.
type readings struct {
	pods, agents       []corev1.Pod
	nodes              []corev1.Node
	blocks             []v1alpha1.PodIPBlock
	ciliumNodes        []ciliumv2.CiliumNode
	pools              []v1alpha1.PodIPPool
	evicted, restarted int
}

// take records a list. agents: it is one of their pods.
func (r *readings) take(list client.ObjectList, agents bool) {
	switch l := list.(type) {
	case *corev1.PodList:
		if agents {
			r.agents, r.restarted = l.Items, 0
		} else {
			r.pods, r.evicted = l.Items, 0
		}
	case *corev1.NodeList:
		r.nodes = l.Items
	case *v1alpha1.PodIPBlockList:
		r.blocks = l.Items
	case *ciliumv2.CiliumNodeList:
		r.ciliumNodes = l.Items
	case *v1alpha1.PodIPPoolList:
		r.pools = l.Items
	}
}

// drains reports whether a pod has an address in a block of a range, and that block had begun
// to drain.
func (r *readings) drains(pod *corev1.Pod, of netip.Prefix) bool {
	return slices.ContainsFunc(r.blocks, func(b v1alpha1.PodIPBlock) bool {
		cidr := netip.MustParsePrefix(b.Spec.CIDR)
		return phaseOf(&b) == v1alpha1.BlockDraining && b.Spec.NodeName == pod.Spec.NodeName && of.Overlaps(cidr) && statusIn(pod, cidr)
	})
}

// evict performs an eviction that no budget forbids.
func (w *World) evict(key string, p *metav1.Preconditions) error {
	pod, ok := w.api.Get(KindPod, key).(*corev1.Pod)
	switch {
	case !ok:
		return apierrors.NewNotFound(KindPod.resource(), key)
	case p == nil || p.UID == nil:
		w.violate(10, "pod %s was evicted, whatever pod that is", key)
		return nil
	case *p.UID != pod.UID:
		return conflict(KindPod, key, "Precondition failed: UID in precondition: "+string(*p.UID))
	case pod.DeletionTimestamp != nil:
		return nil
	}
	w.holdEviction(pod)
	w.Counts.Did["evict"]++
	w.api.terminate(KindPod, key, pod)
	return nil
}

// holdEviction checks that an evicted pod had an address in a draining block and a controller,
// and that no more pods are being evicted than allowed.
func (w *World) holdEviction(pod *corev1.Pod) {
	r, read := w.cfg.Renumbering, &w.mover.read
	from, _ := r.ranges(w.mover.command)
	if !read.drains(pod, from) {
		w.violate(10, "pod %s was evicted, which had no address of a block of %s that drained", keyOf(pod), from)
	}
	if metav1.GetControllerOf(pod) == nil {
		w.violate(10, "pod %s was evicted, and has no controller that would bring it back", keyOf(pod))
	}
	leaving := read.evicted
	for i := range read.pods {
		if p := &read.pods[i]; p.DeletionTimestamp != nil && read.drains(p, from) {
			leaving++
		}
	}
	if read.evicted++; leaving >= r.MaxConcurrent {
		w.violate(10, "pod %s was evicted while %d were on their way out, and %d may at a time", keyOf(pod), leaving, r.MaxConcurrent)
	}
}

// restartAgent ends an agent whose pod is deleted. Its DaemonSet creates another.
func (w *World) restartAgent(key string, p *metav1.Preconditions) error {
	pod, ok := w.api.Get(KindPod, key).(*corev1.Pod)
	if !ok {
		return apierrors.NewNotFound(KindPod.resource(), key)
	}
	if p == nil || p.UID == nil {
		w.violate(10, "agent %s was deleted, whatever agent that is", key)
		return nil
	}
	if err := w.api.Delete(KindPod, key, p.UID, nil); err != nil {
		return err
	}
	w.holdRestart(pod)
	w.Counts.Did["restart an agent"]++
	m := w.machine(pod.Spec.NodeName)
	m.crash()
	m.pod = podState{}
	return nil
}

// holdRestart checks that a restarted agent had an address of its own in the range, and that
// all other agents were Ready.
func (w *World) holdRestart(agent *corev1.Pod) {
	read, node := &w.mover.read, agent.Spec.NodeName
	from, _ := w.cfg.Renumbering.ranges(w.mover.command)
	if w.cfg.Renumbering.KeepAgents {
		w.violate(10, "the agent of %s was restarted, and people have not asked for that", node)
	}
	if !slices.ContainsFunc(read.ciliumNodes, func(cn ciliumv2.CiliumNode) bool {
		return cn.Name == node && slices.ContainsFunc(usedByAgent(&cn), from.Contains)
	}) {
		w.violate(10, "the agent of %s was restarted, which had no address of its own in %s", node, from)
	}
	for i := range read.ciliumNodes {
		if cn := &read.ciliumNodes[i]; cn.Name == node {
			w.holdNoneFree(cn, from)
		}
	}
	if read.restarted++; read.restarted > 1 {
		w.violate(10, "the agent of %s was restarted beside another", node)
	}
	for i := range read.nodes {
		if other := read.nodes[i].Name; other != node && !read.agentReady(other) {
			w.violate(10, "the agent of %s was restarted while the one of %s was not Ready", node, other)
		}
	}
}

// holdNoneFree checks that a restarted agent finds no address in the range that it could take:
// all its blocks there drain, and it has agreed to release their free addresses.
func (w *World) holdNoneFree(cn *ciliumv2.CiliumNode, from netip.Prefix) {
	used := usedByAgent(cn)
	for _, key := range sortedKeys(cn.Spec.IPAM.Pool) {
		addr, err := netip.ParseAddr(key)
		entry := expand.ReleaseStatus(cn.Status.IPAM.ReleaseIPs[key])
		if err == nil && from.Contains(addr) && entry != expand.Ready && entry != expand.Released && !slices.Contains(used, addr) && cn.Status.IPAM.Used[key].Owner == "" && !w.mover.read.ofPod(addr) {
			w.violate(10, "the agent of %s was restarted while it could take %s", cn.Name, key)
		}
	}
}

// ofPod reports whether a pod had an address.
func (r *readings) ofPod(addr netip.Addr) bool {
	return slices.ContainsFunc(r.pods, func(p corev1.Pod) bool {
		return slices.ContainsFunc(p.Status.PodIPs, func(ip corev1.PodIP) bool { return ip.IP == addr.String() })
	})
}

// usedByAgent returns the addresses that an agent names or reports as its own.
func usedByAgent(cn *ciliumv2.CiliumNode) []netip.Addr {
	out := ownIn(cn)
	for _, key := range sortedKeys(cn.Status.IPAM.Used) {
		if addr, err := netip.ParseAddr(key); err == nil && !strings.Contains(cn.Status.IPAM.Used[key].Owner, "/") {
			out = append(out, addr)
		}
	}
	return out
}

func (r *readings) agentReady(node string) bool {
	return slices.ContainsFunc(r.agents, func(p corev1.Pod) bool {
		return p.Spec.NodeName == node && p.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
	})
}

// holdPoolWrite checks what a command writes to a pool.
func (w *World) holdPoolWrite(v Version) {
	old, _ := v.Old.(*v1alpha1.PodIPPool)
	now, _ := v.New.(*v1alpha1.PodIPPool)
	if !w.byMover || w.cfg.Renumbering == nil || old == nil || now == nil {
		return
	}
	w.holdWrittenAsRead(old)
	w.holdTakenOut(old, now)
}

// holdWrittenAsRead checks that a pool that a command writes has the spec that the command last
// read.
func (w *World) holdWrittenAsRead(pool *v1alpha1.PodIPPool) {
	for i := range w.mover.read.pools {
		if p := &w.mover.read.pools[i]; p.Name == pool.Name && (p.UID != pool.UID || !equality.Semantic.DeepEqual(p.Spec, pool.Spec)) {
			w.violate(4, "%s wrote pool %s, which others had changed since it was read", w.mover.verb, pool.Name)
		}
	}
}

// holdTakenOut checks that a range that a command removes from the pool was empty, as far as
// the command had read.
func (w *World) holdTakenOut(old, now *v1alpha1.PodIPPool) {
	from, to := w.cfg.Renumbering.ranges(w.mover.command)
	if _, had := rangeOf(old, from); !had {
		return
	}
	if _, has := rangeOf(now, from); has {
		return
	}
	w.Counts.Did["take a range out"]++
	if c, serves := rangeOf(now, to); !serves || !allocates(c) {
		w.violate(10, "%s was taken out of the pool, and %s does not serve", from, to)
	}
	for i := range w.mover.read.blocks {
		if b := &w.mover.read.blocks[i]; from.Overlaps(netip.MustParsePrefix(b.Spec.CIDR)) {
			w.violate(10, "%s was taken out of the pool, and node %s had block %s", from, b.Spec.NodeName, b.Name)
		}
	}
	for i := range w.mover.read.ciliumNodes {
		if cn := &w.mover.read.ciliumNodes[i]; len(namedIn(cn, from)) > 0 {
			w.violate(10, "%s was taken out of the pool, and CiliumNode %s named %v", from, cn.Name, namedIn(cn, from))
		}
	}
}

// rangeOf returns a pool's entry for a range.
func rangeOf(pool *v1alpha1.PodIPPool, cidr netip.Prefix) (v1alpha1.PoolCIDR, bool) {
	cidrs, _ := ranges(pool, cidr.Addr().Is4())
	i := slices.IndexFunc(cidrs, func(c v1alpha1.PoolCIDR) bool { return c.CIDR == cidr.String() })
	if i < 0 {
		return v1alpha1.PoolCIDR{}, false
	}
	return cidrs[i], true
}

// namedIn returns everything that a CiliumNode names in a range, sorted.
func namedIn(cn *ciliumv2.CiliumNode, cidr netip.Prefix) []string {
	var out []string
	all := slices.Concat(sortedKeys(cn.Spec.IPAM.Pool), sortedKeys(cn.Status.IPAM.Used), sortedKeys(cn.Status.IPAM.ReleaseIPs))
	for _, own := range ownIn(cn) {
		all = append(all, own.String())
	}
	for _, s := range all {
		if addr, err := netip.ParseAddr(s); err == nil && cidr.Contains(addr) {
			out = append(out, s)
		}
	}
	for _, p := range cn.Spec.IPAM.PodCIDRs {
		if p.Overlaps(cidr) {
			out = append(out, p.String())
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
