package invariant

import (
	"fmt"
	"net/netip"
	"strings"

	ipamoption "github.com/cilium/cilium/pkg/ipam/option"
	corev1 "k8s.io/api/core/v1"
)

// retired is rule 2 for addresses in the pool with entries that become released: the agent does not
// take them again when it restarts. They must be the agent's own, in a block that must leave, and
// the pool must have another address for each of them.
func (j *judgement) retired() {
	if j.old == nil {
		return
	}
	newly := groups{}
	for addr, state := range j.now.release {
		if state != ipamoption.IPAMReleased || !j.now.pool[addr] || j.old.release[addr] == state {
			continue
		}
		if why := j.notToRetire(addr); why != "" {
			newly.add(why, addr)
		}
	}
	for _, why := range newly.sorted() {
		j.find(2, "%s released while in the pool, %s%s", list(newly[why]), why, j.since)
	}
}

// notToRetire returns why an address must not be retired; "": it may be.
func (j *judgement) notToRetire(addr netip.Addr) string {
	owner, used := j.old.used[addr]
	b := j.heldBy(j.node, addr)
	switch {
	case used && strings.Contains(owner, "/"):
		return "though " + owner + " uses it"
	case !used && !j.old.own[addr]:
		return "though it is not the agent's own"
	case b == nil || !b.vacated:
		return "though its block was not asked for"
	}
	for key, pod := range j.podsOn[j.node] {
		if hasIP(pod, addr) {
			return fmt.Sprintf("though pod %s has it", key)
		}
	}
	if moving, free := j.roomToMove(addr.Is4()); free < moving {
		return fmt.Sprintf("though %d addresses are free for %d of the agent's own", free, moving)
	}
	return ""
}

// roomToMove counts the addresses of a family that the agent must release when it restarts, and the
// addresses that it may take instead.
func (j *judgement) roomToMove(ipv4 bool) (moving, free int) {
	for addr := range j.now.pool {
		_, used := j.now.used[addr]
		used = used || j.now.own[addr]
		switch state := j.now.release[addr]; {
		case addr.Is4() != ipv4:
		case used && state == ipamoption.IPAMReleased:
			moving++
		case !used && (state == "" || state == ipamoption.IPAMDoNotRelease):
			free++
		}
	}
	return moving, free
}

func hasIP(pod *corev1.Pod, addr netip.Addr) bool {
	for _, ip := range pod.Status.PodIPs {
		if podIP, ok := parse(ip.IP); ok && podIP == addr {
			return true
		}
	}
	return false
}
