package demo

import (
	"strconv"
	"strings"
	"time"

	ipamoption "github.com/cilium/cilium/pkg/ipam/option"
	ipamtypes "github.com/cilium/cilium/pkg/ipam/types"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
)

// narrator prints a line for each change.
type narrator struct {
	*printer
	at       time.Time // of the change
	cooldown time.Duration
}

func (n narrator) event(colour, who, format string, args ...any) {
	n.eventAt(n.at, colour, who, format, args...)
}

func (n narrator) tell(c invariant.Change) {
	n.at = c.Received
	switch c.Kind {
	case invariant.KindCiliumNode:
		old, _ := c.Old.(*ciliumv2.CiliumNode)
		now, _ := c.New.(*ciliumv2.CiliumNode)
		n.ciliumNode(c.Name, old, now)
	case invariant.KindBlock:
		old, _ := c.Old.(*v1alpha1.PodIPBlock)
		now, _ := c.New.(*v1alpha1.PodIPBlock)
		n.block(old, now)
	case invariant.KindPool:
		old, _ := c.Old.(*v1alpha1.PodIPPool)
		now, _ := c.New.(*v1alpha1.PodIPPool)
		n.pool(old, now)
	case invariant.KindNode:
		old, _ := c.Old.(*corev1.Node)
		now, _ := c.New.(*corev1.Node)
		n.node(old, now)
	}
}

func (n narrator) ciliumNode(name string, old, now *ciliumv2.CiliumNode) {
	switch {
	case now == nil:
		n.event(red, name, "its CiliumNode is deleted, with %s", plural(len(listed(old)), "block"))
		return
	case old == nil:
		old = &ciliumv2.CiliumNode{}
	}
	n.published(name, old, now)
	n.handshake(name, old.Status.IPAM, now.Status.IPAM)
}

func (n narrator) published(name string, old, now *ciliumv2.CiliumNode) {
	pool := now.Spec.IPAM.Pool
	came, went := missing(pool, old.Spec.IPAM.Pool), missing(old.Spec.IPAM.Pool, pool)
	before, after := len(listed(old)), len(listed(now))
	if came == 0 && went == 0 && before == after {
		return
	}
	var parts []string
	if came > 0 {
		parts = append(parts, plural(came, "address")+" published")
	}
	if went > 0 {
		parts = append(parts, plural(went, "address")+" taken out")
	}
	colour := plain
	switch {
	case before == 0 && after > 0:
		colour = green
		parts = append(parts, "it has "+cidrs(now))
	case after > before:
		colour = green
		parts = append(parts, "it grows from "+plural(before, "block")+" to "+plural(after, "block"))
	case after < before:
		colour = cyan
		parts = append(parts, "it shrinks from "+plural(before, "block")+" to "+plural(after, "block"))
	}
	if len(pool) > 0 {
		parts = append(parts, strconv.Itoa(len(pool))+" in spec.ipam.pool")
	}
	n.event(colour, name, "%s", strings.Join(parts, ", "))
}

func (n narrator) handshake(name string, old, now ipamtypes.IPAMStatus) {
	var marked, agreed, refused int
	for ip, state := range now.ReleaseIPs {
		if old.ReleaseIPs[ip] == state {
			continue
		}
		switch state {
		case ipamoption.IPAMMarkForRelease:
			marked++
		case ipamoption.IPAMReadyForRelease:
			agreed++
		case ipamoption.IPAMDoNotRelease:
			refused++
		}
	}
	if marked > 0 {
		n.event(plain, name, "handshake: its agent is asked to release %s", plural(marked, "address"))
	}
	if agreed > 0 {
		n.event(plain, name, "handshake: the agent agrees to %d", agreed)
	}
	if refused > 0 {
		n.event(yellow, name, "handshake: the agent refuses %d", refused)
	}
}

func (n narrator) block(old, now *v1alpha1.PodIPBlock) {
	switch {
	case now == nil:
		n.event(cyan, old.Spec.NodeName, "block %s is back in pool %s, free for any node", old.Spec.CIDR, old.Spec.PoolName)
		return
	case old == nil:
		n.event(green, now.Spec.NodeName, "claims block %s of pool %s", now.Spec.CIDR, now.Spec.PoolName)
		return
	}
	was, is := condition(old.Status.Conditions), condition(now.Status.Conditions)
	switch {
	case was == is:
	case is == "":
		n.event(green, now.Spec.NodeName, "demand is back: block %s is in service again", now.Spec.CIDR)
	case strings.HasPrefix(is, v1alpha1.BlockDraining):
		n.event(cyan, now.Spec.NodeName, "drains block %s (%s)", now.Spec.CIDR, strings.TrimPrefix(is, v1alpha1.BlockDraining+" "))
	default:
		n.event(cyan, now.Spec.NodeName, "block %s cools down for %s", now.Spec.CIDR, n.cooldown)
	}
}

// condition returns the type and reason of the condition that is true, or "".
func condition(conditions []metav1.Condition) string {
	for _, c := range conditions {
		if c.Status == metav1.ConditionTrue && c.Type != v1alpha1.BlockPublished {
			return c.Type + " " + c.Reason
		}
	}
	return ""
}

func (n narrator) pool(old, now *v1alpha1.PodIPPool) {
	switch {
	case now == nil:
		n.event(yellow, old.Name, "pool is gone")
		return
	case old == nil:
		n.event(bold, now.Name, "new pool, priority %d: %s", now.Spec.Priority, poolCIDRs(now))
		return
	}
	if old.Generation != now.Generation {
		n.event(bold, now.Name, "pool is changed: %s", poolCIDRs(now))
	}
	was := meta.IsStatusConditionTrue(old.Status.Conditions, v1alpha1.PoolExhausted)
	switch is := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.PoolExhausted); {
	case is == nil:
	case !was && is.Status == metav1.ConditionTrue:
		n.event(yellow, now.Name, "pool exhausted: %s", is.Message)
	case was && is.Status != metav1.ConditionTrue:
		n.event(green, now.Name, "pool has free blocks again")
	}
}

func poolCIDRs(p *v1alpha1.PodIPPool) string {
	var parts []string
	if p.Spec.IPv4 != nil {
		for _, c := range p.Spec.IPv4.CIDRs {
			parts = append(parts, c.CIDR)
		}
	}
	if p.Spec.IPv6 != nil {
		for _, c := range p.Spec.IPv6.CIDRs {
			parts = append(parts, c.CIDR)
		}
	}
	return strings.Join(parts, ", ")
}

func (n narrator) node(old, now *corev1.Node) {
	if now == nil || old == nil {
		return
	}
	was, is := shortage(old), shortage(now)
	switch {
	case was == is:
	case is != "":
		n.event(red, now.Name, "pods cannot get an address: %s", is)
	default:
		n.event(green, now.Name, "every pod can have an address again")
	}
}

func shortage(node *corev1.Node) string {
	for _, c := range node.Status.Conditions {
		if c.Type == v1alpha1.NodeAddressShortage && c.Status == corev1.ConditionTrue {
			return c.Message
		}
	}
	return ""
}

// missing counts the addresses of a that are not in b.
func missing(a, b ipamtypes.AllocationMap) int {
	count := 0
	for ip := range a {
		if _, ok := b[ip]; !ok {
			count++
		}
	}
	return count
}

func cidrs(cn *ciliumv2.CiliumNode) string {
	var parts []string
	for _, p := range listed(cn) {
		parts = append(parts, p.String())
	}
	return strings.Join(parts, ", ")
}
