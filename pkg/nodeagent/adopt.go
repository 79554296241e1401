package nodeagent

import (
	"net/netip"
	"slices"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/nodeipam"
)

const (
	// statusLag is longer than a connected kubelet takes to report the address of a pod that runs, and pullLag than most pulls
	// of an image, during which it reports none.
	statusLag = 15 * time.Second
	pullLag   = 2 * time.Minute
)

// adoptAfter returns how long a new store has to wait for kubelet to show the addresses of all pods, if another IPAM, or a store
// that was lost, has assigned some.
func (a *Agent) adoptAfter(cn *ciliumv2.CiliumNode, stored *nodeipam.Node, pods []corev1.Pod) time.Duration {
	if stored != nil {
		return 0
	}
	isServed := len(addressesOf(pods))+len(cn.Status.IPAM.Used)+len(cn.Spec.IPAM.Pool)+len(cn.Spec.IPAM.PodCIDRs) > 0
	if !isServed {
		return 0
	}
	if a.since.IsZero() {
		a.since = a.Now()
	}
	lag := statusLag
	mayHaveAddress := func(pod corev1.Pod) bool {
		return mayRun(&pod) && len(pod.Status.PodIPs) == 0 && pod.Status.StartTime != nil && pod.Status.StartTime.Time.Before(a.since)
	}
	if slices.ContainsFunc(pods, mayHaveAddress) {
		lag = pullLag
	}
	return a.since.Add(lag).Sub(a.Now())
}

// addressesOf returns the addresses of the pods that may run. Their sandboxes are unknown. Of two pods with one address the
// one has it that is not being deleted.
func addressesOf(pods []corev1.Pod) map[netip.Addr]nodeipam.Owner {
	out := map[netip.Addr]nodeipam.Owner{}
	for i := range pods {
		pod := &pods[i]
		if !mayRun(pod) {
			continue
		}
		for _, ip := range pod.Status.PodIPs {
			addr, ok := ipalloc.ParseAddr(ip.IP)
			if _, isTaken := out[addr]; ok && (!isTaken || pod.DeletionTimestamp == nil) {
				out[addr] = nodeipam.Owner{Pod: pod.Namespace + "/" + pod.Name, UID: uidOf(pod)}
			}
		}
	}
	return out
}

// reportedBy returns the addresses of pods in the last report, which statuses may not show yet.
func reportedBy(cn *ciliumv2.CiliumNode, pods []corev1.Pod) map[netip.Addr]nodeipam.Owner {
	out := map[netip.Addr]nodeipam.Owner{}
	for key, ip := range cn.Status.IPAM.Used {
		isOwner := func(pod corev1.Pod) bool { return mayRun(&pod) && pod.Namespace+"/"+pod.Name == ip.Owner }
		i := slices.IndexFunc(pods, isOwner)
		if addr, ok := ipalloc.ParseAddr(key); ok && i >= 0 {
			out[addr] = nodeipam.Owner{Pod: ip.Owner, UID: uidOf(&pods[i])}
		}
	}
	return out
}

// mayRun reports whether a pod may have a network of its own.
func mayRun(pod *corev1.Pod) bool {
	return !pod.Spec.HostNetwork && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// uidOf returns a pod's UID as container runtimes know it: that of a static pod is not the UID of its mirror.
func uidOf(pod *corev1.Pod) string {
	if hash := pod.Annotations["kubernetes.io/config.mirror"]; hash != "" {
		return hash
	}
	return string(pod.UID)
}
