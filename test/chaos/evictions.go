package main

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant/budgets"
)

// leastLabel is the label of a pod that has the minimum of its app's budget.
const leastLabel = "budget"

// mostHarm is how many entries of Harm are kept.
const mostHarm = 20

// evictions are the effects of kubectl cilium-pool renumber.
type evictions struct {
	// Evicted counts pods; Stayed those that had an address before the first range drained and
	// still exist; Restarted the agents' pods that were deleted.
	Evicted, Stayed, Restarted int
	// Budgets counts those that had as many Ready pods as they require, Spent those of them
	// that had no more than that at some later time.
	Budgets, Spent int
	// Harm describes violations, with the resourceVersion.
	Harm []string
}

// evictionJudge judges every version of all pods while renumber runs: budgets hold, only pods
// with an address of a draining range are evicted, and only those with a controller. All
// others keep their addresses, and agents of one zone restart one at a time.
type evictionJudge struct {
	seen    evictions
	budgets *budgets.Judge
	drains  []netip.Prefix
	zones   map[string]string    // of Nodes
	away    map[string]bool      // Nodes whose agent was deleted, and is not Ready again
	had     map[types.UID]string // the addresses of existing pods
	first   map[types.UID]string // had, when the first range began to drain
}

func newEvictionJudge() *evictionJudge {
	return &evictionJudge{budgets: budgets.New(map[string]int{}), zones: map[string]string{}, away: map[string]bool{}, had: map[types.UID]string{}}
}

// tell returns the effects seen so far.
func (j *evictionJudge) tell() evictions {
	seen := j.seen
	seen.Evicted, seen.Budgets = len(j.budgets.Evicted), len(j.budgets.Lowest)
	for pod := range j.first {
		if j.had[pod] != "" {
			seen.Stayed++
		}
	}
	for app, lowest := range j.budgets.Lowest {
		if lowest == j.budgets.Least[app] {
			seen.Spent++
		}
	}
	seen.Harm = slices.Concat(seen.Harm, j.budgets.Broken)
	seen.Harm = seen.Harm[:min(len(seen.Harm), mostHarm)]
	return seen
}

// see judges a version.
func (j *evictionJudge) see(change invariant.Change) {
	switch change.Kind {
	case invariant.KindNode:
		if node, is := change.New.(*corev1.Node); is {
			j.zones[node.Name] = node.Labels[zoneLabel]
		}
	case invariant.KindPool:
		if pool, is := change.New.(*v1alpha1.PodIPPool); is {
			j.drains = draining(pool)
			if len(j.drains) > 0 && j.first == nil {
				j.first = maps.Clone(j.had)
			}
		}
	case invariant.KindPod:
		before, _ := change.Old.(*corev1.Pod)
		now, is := change.New.(*corev1.Pod)
		if !is {
			now = before
		}
		leaves := (!is || now.DeletionTimestamp != nil) && before != nil && before.DeletionTimestamp == nil
		if now.Namespace == metav1.NamespaceSystem {
			j.agent(now, leaves, change.Version)
		} else {
			j.pod(now, leaves, !is, change.Version)
		}
	}
}

// draining returns the ranges of a pool that drain.
func draining(pool *v1alpha1.PodIPPool) []netip.Prefix {
	var out []netip.Prefix
	for _, cidr := range pool.Spec.IPv4.CIDRs {
		if cidr.AllocationPolicy == v1alpha1.AllocationDrain {
			out = append(out, netip.MustParsePrefix(cidr.CIDR)) // the CRD admits nothing else
		}
	}
	return out
}

func (j *evictionJudge) harm(version uint64, format string, args ...any) {
	j.seen.Harm = append(j.seen.Harm, fmt.Sprintf(format+" (resourceVersion %d)", append(args, version)...))
}

// agent judges a version of an agent's pod. leaves is true for the first version that is being
// deleted.
func (j *evictionJudge) agent(pod *corev1.Pod, leaves bool, version uint64) {
	node := pod.Spec.NodeName
	switch {
	case leaves:
		for other := range j.away {
			if other != node && j.zones[other] == j.zones[node] {
				j.harm(version, "the agent of %s restarts beside that of %s, both in %s", node, other, j.zones[node])
			}
		}
		j.seen.Restarted++
		j.away[node] = true
	case pod.DeletionTimestamp == nil && budgets.HasCondition(pod, corev1.PodReady):
		delete(j.away, node)
	}
}

// pod judges a version of any other pod. leaves is true for the first version that is being
// deleted, gone for the last one.
func (j *evictionJudge) pod(pod *corev1.Pod, leaves, gone bool, version uint64) {
	if least, err := strconv.Atoi(pod.Labels[leastLabel]); err == nil {
		j.budgets.Least[pod.Labels[appLabel]] = least
	}
	j.budgets.See(pod, gone)
	ip := pod.Status.PodIP
	if had := j.had[pod.UID]; had != "" && had != ip {
		j.harm(version, "pod %s had %s and has %q", pod.Name, had, ip)
	}
	if leaves {
		j.leaves(pod, version)
	}
	if pod.DeletionTimestamp != nil || gone {
		delete(j.had, pod.UID)
	} else if ip != "" {
		j.had[pod.UID] = ip
	}
}

func (j *evictionJudge) leaves(pod *corev1.Pod, version uint64) {
	addr, err := netip.ParseAddr(pod.Status.PodIP)
	inRange := err == nil && slices.ContainsFunc(j.drains, func(p netip.Prefix) bool { return p.Contains(addr) })
	controlled := metav1.GetControllerOf(pod) != nil
	switch evicted := budgets.HasCondition(pod, corev1.DisruptionTarget); {
	case !evicted && controlled:
		j.harm(version, "pod %s was deleted without an eviction", pod.Name)
	case evicted && !controlled:
		j.harm(version, "pod %s was evicted, and no controller brings it back", pod.Name)
	case !inRange:
		j.harm(version, "pod %s had to leave, and its address %q does not drain", pod.Name, pod.Status.PodIP)
	}
}
