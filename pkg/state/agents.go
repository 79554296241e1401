package state

import (
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// agentContainer is the agent's container in its pod (install/kubernetes/cilium
// in Cilium v1.20.1).
const agentContainer = "cilium-agent"

// Agents tracks the nodes with agents that run steadily. An agent that (re)starts does not restore
// an address marked for release, and may answer a mark before it has restored its pods. So no
// address is marked, and no answer trusted, until the agent has been Ready for a while with the
// same container. It is safe for concurrent use. Times are this process's own, not the node's, as
// its clock may be off.
type Agents struct {
	settle time.Duration

	mu sync.RWMutex
	// byNode holds slices because most nodes have one agent: maps of one entry take five
	// times as much memory.
	byNode map[string][]agentRun
}

// agentRun is an agent's pod in its current state, and since when it has been in it. ranBefore: its
// container ran when this process first saw the pod.
type agentRun struct {
	AgentPod
	since     time.Time
	ranBefore bool
}

// AgentPod holds the fields of an agent's pod that decisions need.
type AgentPod struct {
	PodKey
	container string
	ready     bool
	// ended: the previous or the current run of the container failed within briefRun, and
	// the pod has not been Ready since.
	ended bool
}

// briefRun bounds the run of an agent that lacks addresses of a family it was started with: it
// exits when it allocates the router's address (allocateRouterIPs in
// daemon/infraendpoints/infra_ip_allocation.go, Cilium v1.20.1), a second after its start on an
// idle machine.
const briefRun = time.Minute

// ReadAgent extracts an AgentPod from an agent's pod.
func ReadAgent(pod *corev1.Pod) AgentPod {
	a := AgentPod{PodKey: PodKey{pod.Spec.NodeName, pod.UID}}
	a.ready = pod.DeletionTimestamp == nil && IsReady(pod)
	for i := range pod.Status.ContainerStatuses {
		if c := &pod.Status.ContainerStatuses[i]; c.Name == agentContainer {
			a.container = c.ContainerID
			a.ended = !a.ready && (brief(c.State.Terminated) || brief(c.LastTerminationState.Terminated))
		}
	}
	return a
}

// brief reports whether a run failed soon after it began. Both times come from the node's
// clock.
func brief(end *corev1.ContainerStateTerminated) bool {
	return end != nil && end.ExitCode != 0 && end.FinishedAt.Sub(end.StartedAt.Time) < briefRun
}

// NewAgents returns an empty Agents that considers an agent settled once it has been Ready
// for settle.
func NewAgents(settle time.Duration) *Agents {
	return &Agents{settle: settle, byNode: map[string][]agentRun{}}
}

// Set stores the state of an agent's pod as of now, and reports whether anything relevant
// has changed.
func (a *Agents) Set(pod AgentPod, now time.Time) bool {
	if pod.Node == "" {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	runs := a.byNode[pod.Node]
	i := a.index(pod.PodKey)
	switch {
	case i < 0:
		a.byNode[pod.Node] = append(runs, agentRun{pod, now, pod.container != ""})
	case runs[i].AgentPod == pod:
		return false
	default:
		runs[i] = agentRun{pod, now, runs[i].ranBefore && runs[i].container == pod.container}
	}
	return true
}

func (a *Agents) index(key PodKey) int {
	return slices.IndexFunc(a.byNode[key.Node], func(run agentRun) bool { return run.PodKey == key })
}

// Delete removes an agent's pod.
func (a *Agents) Delete(key PodKey) {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := a.index(key)
	if i < 0 {
		return
	}
	a.byNode[key.Node] = slices.Delete(a.byNode[key.Node], i, i+1)
	if len(a.byNode[key.Node]) == 0 {
		delete(a.byNode, key.Node)
	}
}

// Nodes returns the nodes with agents' pods, sorted.
func (a *Agents) Nodes() []string {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return slices.Sorted(maps.Keys(a.byNode))
}

// Missing returns the known agent pods with a UID that is not among listed.
func (a *Agents) Missing(listed map[types.UID]bool) []AgentPod {
	a.mu.RLock()
	nodes := slices.Collect(maps.Keys(a.byNode))
	a.mu.RUnlock()
	var out []AgentPod
	inParts(a.mu.RLocker(), nodes, func(node string) {
		for _, run := range a.byNode[node] {
			if !listed[run.uid] {
				out = append(out, run.AgentPod)
			}
		}
	})
	return out
}

// Container returns the ID of the container of the node's agent, or "" if it is unknown or one pod
// is replacing another.
func (a *Agents) Container(node string) string {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if len(a.byNode[node]) != 1 {
		return ""
	}
	return a.byNode[node][0].container
}

// Inherit lets all agents count as begun before: another process led while this one saw them begin.
func (a *Agents) Inherit() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, runs := range a.byNode {
		for i := range runs {
			runs[i].ranBefore = runs[i].container != ""
		}
	}
}

// RanBefore reports whether the node's agent may have begun before this process led, or saw it.
func (a *Agents) RanBefore(node string) bool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return slices.ContainsFunc(a.byNode[node], func(run agentRun) bool { return run.ranBefore })
}

// Settled reports whether the node's agent runs steadily at now, and if it only takes time,
// when it will. While one pod replaces another the node has two agent pods, and the agent
// is not settled.
func (a *Agents) Settled(node string, now time.Time) (bool, time.Time) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if !a.isReady(node) {
		return false, time.Time{}
	}
	settles := a.byNode[node][0].since.Add(a.settle)
	return !now.Before(settles), settles
}

// Ready reports whether the node has one agent pod, which is Ready: the agent has addresses of its own.
func (a *Agents) Ready(node string) bool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.isReady(node)
}

func (a *Agents) isReady(node string) bool {
	return len(a.byNode[node]) == 1 && a.byNode[node][0].ready
}

// ReadySince returns since when a pod has been Ready, by the cluster's clock.
func ReadySince(p *corev1.Pod) time.Time {
	i := slices.IndexFunc(p.Status.Conditions, readyCondition)
	if i < 0 {
		return time.Time{}
	}
	return p.Status.Conditions[i].LastTransitionTime.Time
}

// IsReady reports whether a pod is Ready.
func IsReady(p *corev1.Pod) bool { return slices.ContainsFunc(p.Status.Conditions, readyCondition) }

func readyCondition(c corev1.PodCondition) bool {
	return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
}

// MayWaitForFamily reports whether the node's agent may have restarted with a family that it did
// not run before: without addresses of that family it exits right after its start, and its last
// report stays in place. If the answer only takes time, end is the time of the next check.
func (a *Agents) MayWaitForFamily(node string, now time.Time) (stuck bool, end time.Time) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	for _, run := range a.byNode[node] {
		if run.ready || run.container == "" {
			continue
		}
		if settles := run.since.Add(a.settle); run.ended || !now.Before(settles) {
			stuck = true
		} else {
			end = settles
		}
	}
	return stuck, end
}

// Runs reports whether an agent of a node has been started.
func (a *Agents) Runs(node string) bool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return slices.ContainsFunc(a.byNode[node], func(run agentRun) bool { return run.container != "" })
}
