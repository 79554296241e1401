package drain

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterview"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/list"
	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
)

const (
	// retryEvery is the wait after a refused eviction, as in kubectl drain.
	retryEvery = 5 * time.Second
	// hangsAfter is how long past its grace period a pod counts as one that does not end by itself.
	hangsAfter = time.Minute
)

// evicter evicts pods from draining blocks. Its memory only serves its output and saves
// requests: another process can continue where it was stopped.
type evicter struct {
	client client.Client
	out    io.Writer
	now    func() time.Time
	// limit is the number of pods that may be terminating at a time.
	limit int
	// emptyDirs: evict pods with emptyDir volumes too.
	emptyDirs bool

	// alone is why pods are not evicted, leaving since when this process has known that they end.
	alone   map[types.NamespacedName]string
	leaving map[types.UID]time.Time
	retryAt map[types.NamespacedName]time.Time
	said    map[types.NamespacedName]string
}

func newEvicter(e *cli.Env, c client.Client, f flags) *evicter {
	return &evicter{
		client: c, out: e.Out, now: e.TimeNow, limit: f.maxConcurrent, emptyDirs: f.emptyDirs,
		alone:   map[types.NamespacedName]string{},
		leaving: map[types.UID]time.Time{},
		retryAt: map[types.NamespacedName]time.Time{},
		said:    map[types.NamespacedName]string{},
	}
}

// placed is a pod with an address in a block.
type placed struct {
	key     types.NamespacedName
	node    string
	address netip.Addr
	block   string
	uid     types.UID
	// gracePeriod is its grace period, if it was terminating when the cluster was read.
	gracePeriod *time.Duration
}

// podsIn returns the pods with an address in the blocks, sorted by node and name.
func podsIn(c *clusterview.Cluster, rows []list.BlockRow) []placed {
	ofNode := map[string][]list.BlockRow{}
	for _, r := range rows {
		ofNode[r.Node] = append(ofNode[r.Node], r)
	}
	var out []placed
	for i := range c.Objects.Pods {
		p := &c.Objects.Pods[i]
		if p.Spec.HostNetwork {
			continue
		}
		for _, r := range ofNode[p.Spec.NodeName] {
			if a, ok := addressIn(p, r.CIDR); ok {
				key := types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
				out = append(out, placed{key, r.Node, a, r.Block, p.UID, graceOf(p)})
				break
			}
		}
	}
	slices.SortFunc(out, func(a, b placed) int {
		return strings.Compare(a.node+"\x00"+a.key.String(), b.node+"\x00"+b.key.String())
	})
	return out
}

// graceOf returns the grace period of a pod that ends, or nil.
func graceOf(p *corev1.Pod) *time.Duration {
	if p.DeletionTimestamp == nil {
		return nil
	}
	return new(time.Duration(ptr.Deref(p.DeletionGracePeriodSeconds, 0)) * time.Second)
}

func addressIn(p *corev1.Pod, cidr netip.Prefix) (netip.Addr, bool) {
	for _, ip := range p.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil && cidr.Contains(a) {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// draining returns the rows of blocks that have begun to drain: a pod evicted from any other
// could get an address in the same block again.
func draining(rows []list.BlockRow) []list.BlockRow {
	return slices.DeleteFunc(slices.Clone(rows), func(r list.BlockRow) bool { return r.Phase != ipalloc.Draining.String() })
}

// step evicts pods until as many as allowed are terminating. It first counts the pods that already
// are: an earlier pod may have waited for its budget.
func (v *evicter) step(ctx context.Context, pods []placed) error {
	leaving := 0
	for _, p := range pods {
		if p.gracePeriod == nil {
			continue
		}
		begin, known := v.leaving[p.uid]
		if !known {
			begin = v.now()
			v.leaving[p.uid] = begin
		}
		if v.now().Sub(begin) <= *p.gracePeriod+hangsAfter {
			leaving++
			continue
		}
		v.say(p, "does not end, and the others no longer wait for it: if its node is off, delete the Node")
	}
	for _, p := range pods {
		if leaving >= v.limit {
			return nil
		}
		if p.gracePeriod != nil || v.skips(p.key) {
			continue
		}
		pod, err := v.read(ctx, p)
		if err != nil {
			return err
		}
		if pod == nil {
			continue
		}
		if pod.DeletionTimestamp != nil {
			leaving++
			continue
		}
		if reason := v.leftAlone(pod); reason != "" {
			v.alone[p.key] = reason
			v.say(p, "is left alone: "+reason)
			continue
		}
		accepted, err := v.evict(ctx, p, pod.UID)
		if err != nil {
			return err
		}
		if accepted {
			leaving++
		}
	}
	return nil
}

// skips reports whether a pod is left alone, at least for now.
func (v *evicter) skips(pod types.NamespacedName) bool {
	return v.alone[pod] != "" || v.now().Before(v.retryAt[pod])
}

// read reads a pod, and returns it if it still has the address.
func (v *evicter) read(ctx context.Context, p placed) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	err := v.client.Get(ctx, p.key, pod)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading pod %s: %w", p.key, err)
	}
	if _, ok := addressIn(pod, netip.PrefixFrom(p.address, p.address.BitLen())); !ok {
		return nil, nil // its successor
	}
	return pod, nil
}

// leftAlone returns why a pod is not evicted; "": it is. The pod of a DaemonSet returns to its
// node, with another address.
func (v *evicter) leftAlone(pod *corev1.Pod) string {
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	local := slices.ContainsFunc(pod.Spec.Volumes, func(volume corev1.Volume) bool { return volume.EmptyDir != nil })
	if mirror {
		return "a static pod, which only its kubelet can end"
	}
	if metav1.GetControllerOf(pod) == nil {
		return "it has no controller that would bring it back"
	}
	if local && !v.emptyDirs {
		return "its emptyDir volumes would be lost; --delete-emptydir-data evicts it all the same"
	}
	return ""
}

// evict requests the eviction of exactly this pod, not of another with its name. accepted is
// false if a PodDisruptionBudget forbids it for now, or the pod is gone.
func (v *evicter) evict(ctx context.Context, p placed, uid types.UID) (accepted bool, err error) {
	meta := metav1.ObjectMeta{Namespace: p.key.Namespace, Name: p.key.Name}
	err = v.client.SubResource("eviction").Create(ctx, &corev1.Pod{ObjectMeta: meta}, &policyv1.Eviction{
		ObjectMeta:    meta,
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}},
	})
	if err == nil {
		v.say(p, "is evicted")
		return true, nil
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return false, nil
	}
	if apierrors.IsTooManyRequests(err) || apierrors.IsInternalError(err) || // the latter: of two budgets
		strings.Contains(err.Error(), "denied the request") || // by a webhook that looks at the pod
		apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) { // it ends without an eviction
		v.retryAt[p.key] = v.now().Add(retryEvery)
		v.say(p, "waits: "+err.Error())
		return false, nil
	}
	return false, fmt.Errorf("evicting pod %s: %w", p.key, err)
}

func (v *evicter) say(p placed, message string) {
	line := fmt.Sprintf("pod %s on %s (%s) %s", p.key, p.node, p.address, message)
	if v.said[p.key] != line {
		v.said[p.key] = line
		fmt.Fprintln(v.out, "  "+line)
	}
}

// needsPeople adds the steps for users to rows that only pods left alone keep.
func (v *evicter) needsPeople(rows []list.BlockRow, pods []placed) []list.BlockRow {
	alone := map[string][]string{}
	movable := map[string]bool{}
	for _, p := range pods {
		if v.alone[p.key] == "" {
			movable[p.block] = true
		} else {
			alone[p.block] = append(alone[p.block], p.key.String())
		}
	}
	rows = slices.Clone(rows)
	for i := range rows {
		if r := &rows[i]; r.NeedsAction == "" && len(alone[r.Block]) > 0 && !movable[r.Block] {
			r.NeedsAction = "move or delete the pods that --evict leaves alone: " + suggest.Few(alone[r.Block])
		}
	}
	return rows
}

// plan prints which pods would be evicted, which it returns, and which would not.
func (v *evicter) plan(ctx context.Context, pods []placed) (evicts []*corev1.Pod, err error) {
	var evicted, alone []string
	for _, p := range pods {
		pod, err := v.read(ctx, p)
		if err != nil {
			return nil, err
		}
		if pod == nil || pod.DeletionTimestamp != nil {
			continue
		}
		line := fmt.Sprintf("  %s on %s: %s", p.key, p.node, p.address)
		if reason := v.leftAlone(pod); reason != "" {
			alone = append(alone, line+", "+reason)
		} else {
			evicted = append(evicted, line)
			evicts = append(evicts, pod)
		}
	}
	fmt.Fprintf(v.out, "would evict %s, %d at a time\n", suggest.Count(len(evicted), "pod"), v.limit)
	for _, line := range evicted {
		fmt.Fprintln(v.out, line)
	}
	if len(alone) > 0 {
		fmt.Fprintf(v.out, "would leave %s alone\n", suggest.Count(len(alone), "pod"))
	}
	for _, line := range alone {
		fmt.Fprintln(v.out, line)
	}
	return evicts, nil
}
