package world

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/scheduling"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// Scheduling is a scheduler that binds pods by the addresses that Nodes offer.
type Scheduling struct {
	// Pods is the largest number of its pods at a time.
	Pods int
	// CiliumPools are those that the pods request in turn. Nil: the default one.
	CiliumPools []string
}

// schedulerName is the actor of the scheduler's actions, and of those that create its pods.
const schedulerName = "scheduler"

// boundWithin is the time that a pod may be pending once faults have ended, in worlds without
// maintenance: the agent's answer, hold and cooldown of several blocks, one after the other.
const boundWithin = 10 * time.Minute

// scheduler binds pods to Nodes as its watch has delivered them. It knows its own bindings at
// once.
type scheduler struct {
	w     *World
	slots []string // of the pods that it binds
	pools []string // Cilium's, that these request in turn
	nodes map[string]*corev1.Node
	read  int // versions of Nodes that it has seen
	// faultless is when faults ended; zero: they have not.
	faultless time.Time
}

func newScheduler(w *World, s *Scheduling) *scheduler {
	if s == nil {
		return nil
	}
	out := &scheduler{w: w, nodes: map[string]*corev1.Node{}, pools: s.CiliumPools}
	if len(out.pools) == 0 {
		out.pools = []string{crd.DefaultCiliumPool}
	}
	for i := range s.Pods {
		out.slots = append(out.slots, fmt.Sprintf("w%d", i+1))
	}
	return out
}

// binds reports whether the scheduler binds the pods of a slot.
func (s *scheduler) binds(slot string) bool { return s != nil && slices.Contains(s.slots, slot) }

// enable enables the actions of the scheduler and of its pods' creators.
func (s *scheduler) enable() {
	if s == nil {
		return
	}
	if s.read < len(s.w.api.history[KindNode]) {
		s.w.can(SchedulerSee, schedulerName, "")
	}
	for _, slot := range s.slots {
		pod := s.pod(slot)
		switch {
		case pod == nil:
			s.w.can(PodWait, schedulerName, slot)
			for _, m := range s.w.machines {
				s.w.can(PodWait, schedulerName, slot+"="+m.name)
			}
		case pod.Spec.NodeName == "":
			s.w.can(PodDrop, schedulerName, slot)
			if fit, why := s.fit(pod); len(fit) > 0 || why != unschedulableSays(pod) {
				s.w.can(Schedule, schedulerName, slot)
			}
		}
	}
}

func (s *scheduler) pod(slot string) *corev1.Pod {
	pod, _ := s.w.api.Get(KindPod, "default/"+slot).(*corev1.Pod)
	return pod
}

func (s *scheduler) do(verb Verb, what string) {
	switch slot, node, _ := strings.Cut(what, "="); verb {
	case SchedulerSee:
		s.see()
	case PodWait:
		s.newPod(slot, node)
	case PodDrop:
		s.w.mustNot(s.w.api.Delete(KindPod, "default/"+slot, nil, nil))
	case Schedule:
		s.schedule(s.pod(slot))
	}
}

// see receives the next version of a Node.
func (s *scheduler) see() {
	v := s.w.api.history[KindNode][s.read]
	s.read++
	if node, ok := v.New.(*corev1.Node); ok {
		s.nodes[v.Key] = node
	} else {
		delete(s.nodes, v.Key)
	}
}

// seeAll brings the scheduler's watch up to date.
func (s *scheduler) seeAll() {
	for s != nil && s.read < len(s.w.api.history[KindNode]) {
		s.see()
	}
}

// faultsEnd records that faults are over.
func (s *scheduler) faultsEnd() {
	if s != nil && s.faultless.IsZero() {
		s.faultless = s.w.clock.now
	}
}

// dropAll deletes the pods that are not bound.
func (s *scheduler) dropAll() {
	if s == nil {
		return
	}
	for _, slot := range s.slots {
		if pod := s.pod(slot); pod != nil && pod.Spec.NodeName == "" {
			s.do(PodDrop, slot)
		}
	}
}

// newPod creates a pod that requests an address of each family, for one node or, for "", for
// any.
func (s *scheduler) newPod(slot, node string) {
	pod := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodPending}}
	pod.Namespace, pod.Name = "default", slot
	one, of := corev1.ResourceList{}, s.pools[slices.Index(s.slots, slot)%len(s.pools)]
	for _, f := range s.w.families() {
		one[state.OfferResource(f, named(of))] = resource.MustParse("1")
	}
	ask(pod, named(of))
	pod.Spec.Containers = []corev1.Container{{Name: "app", Resources: corev1.ResourceRequirements{Requests: one, Limits: one}}}
	if node != "" {
		pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	}
	s.w.must(s.w.api.Create(pod))
}

// schedule is one attempt to bind a pod.
func (s *scheduler) schedule(pod *corev1.Pod) {
	fit, why := s.fit(pod)
	pod = pod.DeepCopy()
	if len(fit) == 0 {
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: why,
		}}
		s.w.must(s.w.api.Update(pod, false))
		return
	}
	s.w.bind(pod, fit[s.w.pick(pod.Name, s.w.api.version, len(fit))])
	s.w.must(s.w.api.Update(pod, false))
	s.w.offers.checkBind(pod)
}

// bind binds a pod to a node, where the kubelet accepts it at once.
func (w *World) bind(pod *corev1.Pod, node string) {
	pod.Spec.NodeName = node
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}
	pod.Status.StartTime = &metav1.Time{Time: w.clock.now}
}

// fit returns the nodes to which a pod can be bound as far as the scheduler knows, and if there
// are none, why.
func (s *scheduler) fit(pod *corev1.Pod) (fit []string, why string) {
	var lack [2]int
	unlike := 0
	for _, name := range sortedKeys(s.nodes) {
		node := s.nodes[name]
		if !suits(pod, node) {
			unlike++
			continue
		}
		lacking := s.w.offers.lacking(node, requestedBy(pod))
		for _, f := range lacking {
			lack[f]++
		}
		if len(lacking) == 0 {
			fit = append(fit, name)
		}
	}
	why = fmt.Sprintf("0/%d nodes are available: %d node(s) didn't match", len(s.nodes), unlike)
	for _, f := range ipalloc.Families() {
		if lack[f] > 0 {
			why += fmt.Sprintf(", %d Insufficient %s", lack[f], state.OfferResource(f, named(requestedBy(pod))))
		}
	}
	return fit, why + "."
}

func unschedulableSays(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Reason == corev1.PodReasonUnschedulable {
			return c.Message
		}
	}
	return ""
}

// suits reports whether a pod could be bound to a Node that has an address for it.
func suits(pod *corev1.Pod, node *corev1.Node) bool {
	want := pod.Spec.NodeSelector[corev1.LabelHostname]
	return !node.Spec.Unschedulable && len(node.Spec.Taints) == 0 && (want == "" || want == node.Labels[corev1.LabelHostname])
}

// offerOf returns a Node's offer of a family and a Cilium pool; 0 without the resource.
func offerOf(node *corev1.Node, f ipalloc.Family, ciliumPool string) int {
	return max(0, scheduling.OffersIn(node.Status.Allocatable).Of(named(ciliumPool))[f])
}

// named is the name of a Cilium pool, or "" for the default one.
func named(ciliumPool string) string {
	if ciliumPool == crd.DefaultCiliumPool {
		return ""
	}
	return ciliumPool
}

// requestedBy returns the Cilium pool of a pod in a world with a scheduler.
func requestedBy(pod *corev1.Pod) string {
	return cmp.Or(pod.Annotations[asksPool], crd.DefaultCiliumPool)
}

// requests reports whether a pod requests addresses of a Cilium pool as a resource.
func requests(pod *corev1.Pod, ciliumPool string) bool {
	return requestedBy(pod) == ciliumPool && len(pod.Spec.Containers) > 0 && len(pod.Spec.Containers[0].Resources.Requests) > 0
}

// addressUse is the actual use of a node's addresses of a family.
type addressUse struct {
	// free are published addresses that neither leave nor are held, except for the one that the
	// agent will still take.
	free int
	// waiting are bound pods without an address, and plain are those of them that request none.
	waiting, plain int
}
