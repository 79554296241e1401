package scheduling

import (
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	schedulingv1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// UnscheduledFields makes the API server send only pods on the pod network that are not
// bound to a node.
func UnscheduledFields() fields.Selector {
	return fields.ParseSelectorOrDie("spec.nodeName=,spec.hostNetwork=false,status.phase=Pending")
}

// UnscheduledPod holds the fields of an unbound pod that decisions need.
type UnscheduledPod struct {
	uid types.UID
	// short: the scheduler found no node with the addresses that it requests.
	short bool
	// kindKey is equal for pods that have the same requests and suit the same nodes.
	kindKey string
	podKind
	// seen is when it was first seen to wait.
	seen time.Time
}

// UID returns the pod's UID.
func (p UnscheduledPod) UID() types.UID { return p.uid }

// CiliumPools returns the Cilium pools, by family, that the pod requests addresses of.
func (p UnscheduledPod) CiliumPools() [2]string { return p.ciliumPools }

// podKind is a pod's requests and its possible nodes.
type podKind struct {
	requests [2]uint16
	// ciliumPools are the Cilium pools, by family, that it requests addresses of.
	ciliumPools [2]string
	affinity    nodeaffinity.RequiredNodeAffinity
	tolerations []corev1.Toleration
}

// ReadUnscheduled extracts from a pod the fields that decisions need.
func ReadUnscheduled(pod *corev1.Pod) UnscheduledPod {
	p := UnscheduledPod{uid: pod.UID, short: LacksAddresses(pod)}
	if p.short {
		p.podKind, p.kindKey = kindOf(pod)
	}
	return p
}

// LacksAddresses reports whether a pod waits for the scheduler because some node lacks the
// addresses that it requests. The scheduler names every insufficient resource (Kubernetes
// v1.36.3, pkg/scheduler/framework/plugins/noderesources/fit.go).
func LacksAddresses(pod *corev1.Pod) bool {
	if pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil {
		return false
	}
	for _, c := range pod.Status.Conditions {
		if c.Type != corev1.PodScheduled || c.Status != corev1.ConditionFalse || c.Reason != corev1.PodReasonUnschedulable {
			continue
		}
		_, requests := state.AddressRequests(&pod.Spec)
		for _, pool := range append(slices.Collect(maps.Keys(requests)), "") {
			for _, f := range ipalloc.Families() {
				if strings.Contains(c.Message, "Insufficient "+string(state.OfferResource(f, pool))) {
					return true
				}
			}
		}
	}
	return false
}

func kindOf(pod *corev1.Pod) (kind podKind, key string) {
	kind = podKind{affinity: nodeaffinity.GetRequiredNodeAffinity(pod), tolerations: pod.Spec.Tolerations}
	var requests map[string][2]uint16
	kind.requests, requests = state.AddressRequests(&pod.Spec)
	for _, pool := range slices.Sorted(maps.Keys(requests)) {
		for f, n := range requests[pool] {
			if n > 0 { // agents give a pod an address of one pool
				kind.requests[f] = n
				kind.ciliumPools[f] = pool
			}
		}
	}
	var required *corev1.NodeSelector
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		required = a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	text, err := json.Marshal([]any{kind.requests, kind.ciliumPools, pod.Spec.NodeSelector, required, kind.tolerations})
	if err != nil {
		return kind, string(pod.UID) // as a kind of its own
	}
	return kind, string(text)
}

// Suits reports whether pods of the kind can be scheduled, by labels and taints, to a Node
// that has addresses.
func (k *podKind) Suits(node *corev1.Node) bool {
	if node.DeletionTimestamp != nil {
		return false
	}
	cordon := corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
	if node.Spec.Unschedulable && !schedulingv1.TolerationsTolerateTaint(logr.Discard(), k.tolerations, &cordon, true) {
		return false
	}
	_, tainted := schedulingv1.FindMatchingUntoleratedTaint(logr.Discard(), node.Spec.Taints, k.tolerations, func(t *corev1.Taint) bool {
		return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
	}, true)
	if tainted {
		return false
	}
	matches, err := k.affinity.Match(node)
	return err == nil && matches
}

// Unscheduled stores the pods that no node has addresses for, the number of addresses that each
// node should have for them, and the nodes that wait for their first block. It is safe for
// concurrent use.
type Unscheduled struct {
	// Changed, if set, is called when a node begins or ceases to wait for its first block.
	Changed func()

	mu   sync.Mutex
	pods map[types.UID]UnscheduledPod
	// needs are the needs of nodes for these pods.
	needs map[NodeCiliumPool]NodeNeeds
	// ciliumPools is what CiliumPools returns.
	ciliumPools []string
	// scarce are the pools of each family that some of these pods, or nodes without a
	// block, wait for.
	scarce [2]map[string]bool
	// free are the free addresses of nodes when pods were last assigned.
	free map[candidateKey]freeAddresses
	// withoutBlock are the nodes that wait for the first block of a family.
	withoutBlock map[string]bool
}

// NodeCiliumPool is a Cilium pool, "" being the default one, on a node.
type NodeCiliumPool struct{ Node, CiliumPool string }

// NodeNeeds is a node's share for unscheduled pods, and for nodes without a block.
type NodeNeeds struct {
	// Expected is the number of additional addresses per family that unscheduled pods will need on
	// this node, beyond the Requested ones of its bound pods at that time.
	Expected, Requested [2]int
	// Recall are the blocks that the node should return at once unless it needs them, of any Cilium pool.
	// Only the needs of the default one have any.
	Recall []netip.Prefix
}

func (n NodeNeeds) equal(m NodeNeeds) bool {
	return n.Expected == m.Expected && n.Requested == m.Requested && slices.Equal(n.Recall, m.Recall)
}

// NewUnscheduled returns an empty store.
func NewUnscheduled() *Unscheduled {
	return &Unscheduled{pods: map[types.UID]UnscheduledPod{}, free: map[candidateKey]freeAddresses{}, withoutBlock: map[string]bool{}}
}

// Set stores the state of a pod as of now, and reports whether anything relevant has
// changed.
func (u *Unscheduled) Set(pod UnscheduledPod, now time.Time) bool {
	if !pod.short {
		return u.Delete(pod.uid)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if old, known := u.pods[pod.uid]; known && old.kindKey == pod.kindKey {
		return false
	}
	pod.seen = now
	u.pods[pod.uid] = pod // another kind: tolerations can be added to a pod
	return true
}

// Delete removes a pod that is bound or deleted, and reports whether it was known.
func (u *Unscheduled) Delete(uid types.UID) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, known := u.pods[uid]
	delete(u.pods, uid)
	return known
}

// Missing returns the known pods with a UID that is not among listed.
func (u *Unscheduled) Missing(listed map[types.UID]bool) []UnscheduledPod {
	u.mu.Lock()
	known := slices.Collect(maps.Values(u.pods))
	u.mu.Unlock()
	return slices.DeleteFunc(known, func(pod UnscheduledPod) bool { return listed[pod.uid] })
}

// Any reports whether pods wait, nodes wait for their first block, or nodes still have
// needs for pods that waited.
func (u *Unscheduled) Any() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.pods)+len(u.needs)+len(u.withoutBlock) > 0
}

// CiliumPools returns the Cilium pools, except the default one, that pods request, or that nodes
// have needs of; some more than once.
func (u *Unscheduled) CiliumPools() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.ciliumPools
}

// Needs returns the number of addresses of a Cilium pool and family that a node should have room for, if its bound
// pods request that many now, and the blocks that it should return. Pods that were bound since the
// node was assigned some no longer count.
func (u *Unscheduled) Needs(node, ciliumPool string, f ipalloc.Family, requested int) (expected int, recall []netip.Prefix) {
	u.mu.Lock()
	defer u.mu.Unlock()
	n := u.needs[NodeCiliumPool{node, ciliumPool}]
	return max(0, min(n.Expected[f], n.Expected[f]+n.Requested[f]-requested)), n.Recall
}

// SetScarce replaces the pools of each family that pods, or nodes without a block, wait for.
func (u *Unscheduled) SetScarce(pools [2]map[string]bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.scarce = pools
}

// IsScarce reports whether pods, or nodes without a block, wait for blocks of every one of
// these pools.
func (u *Unscheduled) IsScarce(f ipalloc.Family, pools []*crd.Pool) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, pool := range pools {
		if !u.scarce[f][pool.Name] {
			return false
		}
	}
	return len(pools) > 0
}

// SetNeeds replaces the needs of nodes, and returns the nodes with changed ones. The caller must
// not modify the map afterwards.
func (u *Unscheduled) SetNeeds(next map[NodeCiliumPool]NodeNeeds) (changed []string) {
	u.mu.Lock()
	old := u.needs
	u.needs = next
	u.findPools()
	u.mu.Unlock()
	for key, n := range next {
		if !old[key].equal(n) {
			changed = append(changed, key.Node)
		}
	}
	for key := range old {
		if _, still := next[key]; !still {
			changed = append(changed, key.Node)
		}
	}
	slices.Sort(changed)
	return slices.Compact(changed)
}

// findPools sets ciliumPools. It locks nothing.
func (u *Unscheduled) findPools() {
	pools := map[string]bool{}
	for key := range u.needs {
		pools[key.CiliumPool] = true
	}
	for _, p := range u.pods {
		pools[p.ciliumPools[0]] = true
		pools[p.ciliumPools[1]] = true
	}
	delete(pools, "")
	u.ciliumPools = slices.Sorted(maps.Keys(pools))
}

// waitingKind is the number of pods of a kind that have or have not waited for unusedFor.
type waitingKind struct {
	*podKind
	pods int
	// long: they have waited for unusedFor.
	long bool
}

// Addresses returns the number of addresses of each family that a pod of the kind requests.
func (k *podKind) Addresses() [2]int { return [2]int{int(k.requests[0]), int(k.requests[1])} }

// waiting returns the pods that wait at now, by the Cilium pools that they request, and when the next ones will have waited for
// unusedFor; zero: never.
func (u *Unscheduled) waiting(now time.Time) (kinds []waitingKind, next time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.findPools()
	groups := map[string][2]waitingKind{} // per kind: pods that have not waited for long, pods that have
	for _, p := range u.pods {
		i := 1
		deadline := p.seen.Add(unusedFor)
		if now.Before(deadline) {
			i = 0
			if next.IsZero() || deadline.Before(next) {
				next = deadline
			}
		}
		group := groups[p.kindKey]
		group[i] = waitingKind{&p.podKind, group[i].pods + 1, i == 1}
		groups[p.kindKey] = group
	}
	for _, kind := range slices.Sorted(maps.Keys(groups)) {
		for _, k := range groups[kind] {
			if k.pods > 0 {
				kinds = append(kinds, k)
			}
		}
	}
	slices.SortStableFunc(kinds, func(a, b waitingKind) int { return slices.Compare(a.ciliumPools[:], b.ciliumPools[:]) })
	return kinds, next
}
