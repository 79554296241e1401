package main

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/sim/world"
)

// view is the state at rest. Two runs that end with the same spec must end with the same view:
// what nodes have in service, by pool and size, pods' addresses, the pools' counts and
// conditions. Which of a pool's blocks a node has may depend on what was free.
type view struct {
	// always is equal on every path: what is wrong with the spec.
	always map[string]string
	// held is what nodes and pods have. A spec may let nodes keep what they received under
	// another one (keeps), and if blocks run out, the first node gets them.
	held map[string]string
	// counted includes blocks that are leaving, which they do once no pod uses them.
	counted map[string]string
	// leaving and exhausted report whether there are such blocks, and whether no block is free.
	leaving, exhausted bool
}

// look returns the view of a world at rest.
func look(w *world.World) view {
	v := view{always: map[string]string{}, held: map[string]string{}, counted: map[string]string{}}
	for _, name := range w.API().Keys(world.KindPool) {
		v.pool(w.API().Get(world.KindPool, name).(*v1alpha1.PodIPPool))
	}
	for _, name := range w.API().Keys(world.KindNode) {
		v.node(w, name)
	}
	return v
}

// pool reads a pool's status. Whether a window is open depends on the time.
func (v *view) pool(p *v1alpha1.PodIPPool) {
	at := "pool " + p.Name + " "
	if p.Status.ObservedGeneration != p.Generation {
		v.always[at+"generation"] = fmt.Sprintf("%d, and its status speaks of %d", p.Generation, p.Status.ObservedGeneration)
	}
	for family, s := range map[string]*v1alpha1.FamilyStatus{"IPv4": p.Status.IPv4, "IPv6": p.Status.IPv6} {
		if s != nil {
			v.counted[at+family] = fmt.Sprintf("blocks %+v, addresses %+v", s.Blocks, s.Addresses)
			v.leaving = v.leaving || s.Blocks.Draining+s.Blocks.CoolingDown > 0
		}
	}
	v.counted[at+"nodes"] = fmt.Sprint(p.Status.Nodes)
	if n := p.Status.RoomNodes; n != nil {
		v.counted[at+"room"] = fmt.Sprint(*n)
	}
	if n := p.Status.UtilizationPercent; n != nil {
		v.counted[at+"utilization"] = fmt.Sprintf("%d%%", *n)
	}
	v.exhausted = v.exhausted || meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.PoolExhausted)
	for _, c := range p.Status.Conditions {
		v.condition(at+c.Type, c)
	}
}

// invalid is the reason of conditions that report what is wrong with a spec.
const invalid = "Invalid"

func (v *view) condition(at string, c metav1.Condition) {
	switch {
	case c.Reason == invalid:
		v.always[at] = c.Message
	case c.Type == v1alpha1.PoolWindow:
	case c.Type == v1alpha1.PoolFamilyNotRun && c.Status == metav1.ConditionFalse: // absent if it was never so
	default:
		v.counted[at] = fmt.Sprintf("%s, %s: %s", c.Status, c.Reason, ofBlock().ReplaceAllString(c.Message, "CIDR"))
	}
}

// ofBlock matches the CIDR of a block of these worlds.
func ofBlock() *regexp.Regexp { return regexp.MustCompile(`[0-9a-f.:]+/(30|126)\b`) }

// node reads what a node holds and what its pods have.
func (v *view) node(w *world.World, name string) {
	at := "node " + name + " "
	count := map[string]int{}
	for _, key := range w.API().Keys(world.KindBlock) {
		b := w.API().Get(world.KindBlock, key).(*v1alpha1.PodIPBlock)
		if b.Spec.NodeName != name {
			continue
		}
		cidr := netip.MustParsePrefix(b.Spec.CIDR)
		if b.Status.Phase != v1alpha1.PhaseInService {
			v.leaving = true
			continue
		}
		count[fmt.Sprintf("of %s, /%d with %d addresses", b.Spec.PoolName, cidr.Bits(), published(w, b, cidr))]++
	}
	var blocks []string
	for what, n := range count {
		blocks = append(blocks, fmt.Sprintf("%d %s", n, what))
	}
	slices.Sort(blocks)
	v.held[at+"blocks"] = strings.Join(blocks, "; ")
	for _, key := range w.API().Keys(world.KindPod) {
		if pod := w.API().Get(world.KindPod, key).(*corev1.Pod); pod.Spec.NodeName == name && !strings.HasPrefix(key, "kube-system/") {
			v.held["pod "+key] = fmt.Sprintf("%d addresses", len(pod.Status.PodIPs))
		}
	}
	for _, c := range w.API().Get(world.KindNode, name).(*corev1.Node).Status.Conditions {
		v.held[at+string(c.Type)] = fmt.Sprintf("%s, %s", c.Status, c.Reason)
	}
}

// published counts the addresses of a block in the node's CiliumNode. The first and the last
// stay there while they are in use, even if pods may no longer get them.
func published(w *world.World, b *v1alpha1.PodIPBlock, cidr netip.Prefix) int {
	cn, ok := w.API().Get(world.KindCiliumNode, b.Spec.NodeName).(*ciliumv2.CiliumNode)
	if !ok {
		return 0
	}
	n := 0
	for key := range cn.Spec.IPAM.Pool {
		addr, err := netip.ParseAddr(key)
		if err != nil || !cidr.Contains(addr) {
			continue
		}
		if _, used := cn.Status.IPAM.Used[key]; !used || !keptBack(w, b, cidr, addr) {
			n++
		}
	}
	return n
}

// keptBack reports whether an address is at an edge of its block that pods may not get.
func keptBack(w *world.World, b *v1alpha1.PodIPBlock, cidr netip.Prefix, addr netip.Addr) bool {
	pool, ok := w.API().Get(world.KindPool, b.Spec.PoolName).(*v1alpha1.PodIPPool)
	if !ok {
		return false
	}
	var edges v1alpha1.EdgeIPs
	switch {
	case addr.Is4() && pool.Spec.IPv4 != nil:
		edges = pool.Spec.IPv4.EdgeIPs
	case addr.Is6() && pool.Spec.IPv6 != nil:
		edges = pool.Spec.IPv6.EdgeIPs
	}
	return !edges.AllowFirstIP && addr == cidr.Addr() || !edges.AllowLastIP && !cidr.Contains(addr.Next())
}

// differs returns the differences between two views of the same spec that are not allowed.
// kept: nodes keep what they received under another one.
func (v *view) differs(other *view, kept bool) []string {
	out := differences(v.always, other.always)
	if kept || v.exhausted || other.exhausted {
		return out
	}
	out = append(out, differences(v.held, other.held)...)
	if v.leaving || other.leaving {
		return out
	}
	return append(out, differences(v.counted, other.counted)...)
}

func differences(a, b map[string]string) []string {
	var keys, out []string
	for _, m := range []map[string]string{a, b} {
		for key := range m {
			if a[key] != b[key] && !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		out = append(out, fmt.Sprintf("%s: %q, and %q", key, a[key], b[key]))
	}
	return out
}

// reports reports whether a condition names a field, or what contains it, as wrong.
func (v *view) reports(field string) bool {
	for strings.Contains(field, ".") {
		for _, message := range v.always {
			if strings.Contains(message, field) {
				return true
			}
		}
		field = field[:strings.LastIndexAny(field, ".[")]
	}
	return false
}
