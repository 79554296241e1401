package nodeagent

import (
	"context"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/nodeipam"
)

// orphanedFor is the time until an address without a sandbox is free: the container runtime releases it much sooner, if it
// does.
const orphanedFor = 5 * time.Minute

// releaseOrphans releases addresses that no container runtime will: see isOrphan.
func (a *Agent) releaseOrphans(ctx context.Context, pods []corev1.Pod) error {
	taken, err := a.Store.Assignments()
	if err != nil {
		return err
	}
	known := map[string]*corev1.Pod{}
	for i := range pods {
		known[uidOf(&pods[i])] = &pods[i]
	}
	hasSandbox := map[string]bool{}
	for _, owner := range taken {
		if owner.Netns != "" && !owner.IsGone() {
			hasSandbox[owner.UID] = true
		}
	}
	orphans := map[netip.Addr]time.Time{}
	expired := map[netip.Addr]nodeipam.Owner{}
	for addr, owner := range taken {
		if !isOrphan(addr, owner, known[owner.UID], hasSandbox[owner.UID]) {
			continue
		}
		since, seen := a.orphans[addr]
		if !seen {
			since = a.Now()
		}
		orphans[addr] = since
		if a.Now().Sub(since) >= orphanedFor {
			expired[addr] = owner
		}
	}
	a.orphans = orphans
	if len(expired) == 0 {
		return nil
	}
	log.FromContext(ctx).Info("releasing addresses whose sandboxes are gone", "addresses", expired)
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	return a.Store.ReleaseWhere(ctx, func(addr netip.Addr, owner nodeipam.Owner) bool {
		orphan, ok := expired[addr]
		return ok && orphan == owner // not of a pod that has it by now
	})
}

// isOrphan reports whether no sandbox seems to have an address: its network namespace is gone, and its pod, which may be
// nil, is too, has ended, or has another sandbox. Of an adopted address only the pod is known.
func isOrphan(addr netip.Addr, owner nodeipam.Owner, pod *corev1.Pod, hasSandbox bool) bool {
	hasEnded := pod == nil || !mayRun(pod)
	if owner.Netns != "" {
		return owner.IsGone() && (hasEnded || hasSandbox)
	}
	if owner.UID == "" {
		return false
	}
	isNamed := func(ip corev1.PodIP) bool {
		named, ok := ipalloc.ParseAddr(ip.IP)
		return ok && named == addr
	}
	return hasEnded || len(pod.Status.PodIPs) > 0 && !slices.ContainsFunc(pod.Status.PodIPs, isNamed)
}
