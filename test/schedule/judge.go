package main

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	ipamoption "github.com/cilium/cilium/pkg/ipam/option"
	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/cilium/cilium/pkg/node/addressing"
	corev1 "k8s.io/api/core/v1"

	"github.com/cilium-pool/cilium-pool-operator/test/agent"
	"github.com/cilium-pool/cilium-pool-operator/test/invariant"
)

// Kinds of findings.
const (
	wrongBind = "bound to a node without an address for it"
	overOffer = "offers more than there is"
	waited    = "pending too long"
	noAddress = "no address for a CNI ADD"
)

// judge judges binds and offers, one version of an object after the other.
type judge struct {
	mu       sync.Mutex
	machines map[string]*machine
	pending  map[string]*pending
	// room is since when some node of a zone, or of any zone if "", can admit a pod; zero if
	// none can.
	room          map[string]time.Time
	binds, offers int
	longest       time.Duration
	findings      []string
	misses        []miss
}

// machine is a node.
type machine struct {
	node *corev1.Node // nil: there is none
	// free are the addresses that pods may get, leaving the others: marked for release, or in a
	// later state of it.
	free, leaving []netip.Addr
	had           []have
	pods          map[string]*corev1.Pod // bound there, and not ended
}

// have is the number of free addresses that a CiliumNode had from a version on.
type have struct {
	version uint64
	free    int
}

type pending struct {
	since  time.Time
	zone   string
	waited bool
}

// miss is a CNI ADD that found no address.
type miss struct {
	pod *corev1.Pod
	err error
}

func newJudge() *judge {
	return &judge{machines: map[string]*machine{}, pending: map[string]*pending{}, room: map[string]time.Time{}}
}

func (j *judge) found(kind, format string, args ...any) {
	j.findings = append(j.findings, kind+": "+fmt.Sprintf(format, args...))
}

func (j *judge) machine(name string) *machine {
	if j.machines[name] == nil {
		j.machines[name] = &machine{pods: map[string]*corev1.Pod{}}
	}
	return j.machines[name]
}

// bound returns the number of pods with a request that were bound so far.
func (j *judge) bound() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.binds
}

// step judges a version of an object.
func (j *judge) step(c invariant.Change) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch c.Kind {
	case invariant.KindPod:
		if strings.HasPrefix(c.Name, corev1.NamespaceDefault+"/") {
			j.pod(c)
		}
	case invariant.KindNode:
		m := j.machine(c.Name)
		m.node, _ = c.New.(*corev1.Node)
		j.offer(c, m)
	case invariant.KindCiliumNode:
		m := j.machine(c.Name)
		cn, _ := c.New.(*ciliumv2.CiliumNode)
		m.free, m.leaving = addressesOf(cn)
		m.had = append(m.had, have{c.Version, len(m.free)})
		j.offer(c, m)
	}
	j.wait(c.Received)
}

func (j *judge) pod(c invariant.Change) {
	p, _ := c.New.(*corev1.Pod)
	before, _ := c.Old.(*corev1.Pod)
	if before != nil && before.Spec.NodeName != "" {
		delete(j.machine(before.Spec.NodeName).pods, c.Name)
	}
	switch {
	case p == nil || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed:
		delete(j.pending, c.Name)
	case p.Spec.NodeName == "":
		if j.pending[c.Name] == nil && requestOf(p) > 0 {
			j.pending[c.Name] = &pending{since: c.Received, zone: p.Spec.NodeSelector[corev1.LabelTopologyZone]}
		}
	default:
		delete(j.pending, c.Name)
		m := j.machine(p.Spec.NodeName)
		m.pods[c.Name] = p
		if requestOf(p) == 0 || before != nil && before.Spec.NodeName != "" {
			return
		}
		j.binds++
		if has := m.capacity(); len(m.pods) > has {
			j.found(wrongBind, "pod %s, at version %d, to node %s: %d pods, %d addresses, offers %d", c.Name, c.Version, p.Spec.NodeName, len(m.pods), has, m.offer())
		}
	}
}

// capacity returns the number of the node's addresses for pods. An address that leaves counts if
// a pod has it: its agent refuses to release it.
func (m *machine) capacity() int {
	n := len(m.free)
	for _, p := range m.pods {
		if a, err := netip.ParseAddr(p.Status.PodIP); err == nil && slices.Contains(m.leaving, a) {
			n++
		}
	}
	return n
}

func (m *machine) offer() int {
	if m.node == nil {
		return -1
	}
	return offerOf(m.node)
}

func (m *machine) requested() (n int) {
	for _, p := range m.pods {
		n += requestOf(p)
	}
	return n
}

// offer judges the offer of a Node, or of the Node of a CiliumNode.
func (j *judge) offer(c invariant.Change, m *machine) {
	if len(m.had) == 0 || c.New == nil {
		return
	}
	j.offers++
	if has, requested := m.capacity(), m.requested(); m.offer() > max(has, requested) {
		j.found(overOffer, "node %s, at version %d: offers %d, has %d addresses, its pods request %d", c.Name, c.Version, m.offer(), has, requested)
	}
}

// wait judges the time of pods that are pending although a node offers an address.
func (j *judge) wait(now time.Time) {
	room := map[string]time.Time{}
	for _, m := range j.machines {
		if m.node == nil || m.node.Spec.Unschedulable || len(m.node.Spec.Taints) > 0 || m.offer() <= m.requested() {
			continue
		}
		for _, zone := range []string{"", m.node.Labels[corev1.LabelTopologyZone]} {
			if room[zone] = j.room[zone]; room[zone].IsZero() {
				room[zone] = now
			}
		}
	}
	j.room = room
	for name, p := range j.pending {
		since, ok := room[p.zone]
		if !ok || p.waited {
			continue
		}
		if p.since.After(since) {
			since = p.since
		}
		j.longest = max(j.longest, now.Sub(since))
		if p.waited = now.Sub(since) > bound; p.waited {
			j.found(waited, "pod %s (zone %q) was pending for %s while a node had an address for it", name, p.zone, now.Sub(since))
		}
	}
}

// missed records a CNI ADD that found no address.
func (j *judge) missed(pod *corev1.Pod, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.misses = append(j.misses, miss{pod, err})
}

// early reports whether the agent had not yet seen addresses that its CiliumNode had when the
// pod was bound. The kubelet here requests an address as soon as it sees a pod; a real one
// creates a sandbox first.
func (m *machine) early(is miss) bool {
	var saw *agent.Exhausted
	if !errors.As(is.err, &saw) {
		return false
	}
	seen, bound := versionOf(saw.Seen), versionOf(is.pod.ResourceVersion)
	var was have
	for _, h := range m.had {
		if h.version <= bound {
			was = h
		}
	}
	return seen < was.version && saw.Pool-saw.Leaving-saw.Own < was.free
}

// versionOf returns zero if the text is not a resourceVersion.
func versionOf(text string) uint64 {
	version, _ := strconv.ParseUint(text, 10, 64)
	return version
}

// verdict prints the counts, and returns an error if a rule was broken. Call it once.
func (j *judge) verdict(broken []invariant.Violation) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, is := range j.misses {
		if !j.machine(is.pod.Spec.NodeName).early(is) {
			j.found(noAddress, "pod %s on node %s: %v", is.pod.Name, is.pod.Spec.NodeName, is.err)
		}
	}
	for _, v := range broken {
		j.findings = append(j.findings, v.String())
	}
	fmt.Printf("%d binds, %d offers judged; a pod was pending beside an address for at most %s; %d CNI ADDs came before the agent had seen its block\n",
		j.binds, j.offers, j.longest.Round(time.Millisecond), len(j.misses))
	if len(j.findings) == 0 {
		return nil
	}
	const most = 20
	return fmt.Errorf("%d findings:\n%s", len(j.findings), strings.Join(j.findings[:min(most, len(j.findings))], "\n"))
}

// addressesOf leaves out the agent's own addresses: its report names them without a namespace,
// and the CiliumNode names them before there is a report.
func addressesOf(cn *ciliumv2.CiliumNode) (free, leaving []netip.Addr) {
	if cn == nil {
		return nil, nil
	}
	own := map[string]bool{cn.Spec.HealthAddressing.IPv4: true}
	for _, a := range cn.Spec.Addresses {
		own[a.IP] = own[a.IP] || a.Type == addressing.NodeCiliumInternalIP
	}
	for a, use := range cn.Status.IPAM.Used {
		own[a] = own[a] || !strings.Contains(use.Owner, "/")
	}
	for key, entry := range cn.Spec.IPAM.Pool {
		a, err := netip.ParseAddr(key)
		if own[key] || entry.Owner != "" || err != nil {
			continue
		}
		switch cn.Status.IPAM.ReleaseIPs[key] {
		case ipamoption.IPAMMarkForRelease, ipamoption.IPAMReadyForRelease, ipamoption.IPAMReleased:
			leaving = append(leaving, a)
		default:
			free = append(free, a)
		}
	}
	return free, leaving
}
