package world

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// An agent that starts does not restore a pod with an address that is marked for release: the
// window of the agents' protocol (docs/reliability.md). Two guards keep it narrow, and each is
// checked here: no address is marked while a pod is awaited, and marks are withdrawn when the agent
// restarts. Pods that are lost nevertheless are counted in Counts.Lost, for which a search has a
// budget.

// awaited returns the pods of a node with an address of a family that an operator cannot know yet:
// they arrived within the AckTimeout, and neither their status nor the agent's report names the
// address.
func (o *Operator) awaited(node string, f ipalloc.Family) []string {
	view := o.parts.Node.Cluster.Ledger.CiliumNode(node)
	if view == nil {
		return nil
	}
	owned := map[string]bool{}
	for _, owners := range []map[netip.Addr]string{view.Used, view.Published()} {
		for addr, owner := range owners {
			if ipalloc.FamilyOf(addr) == f {
				owned[strings.TrimSuffix(owner, " [restored]")] = true
			}
		}
	}
	var out []string
	for _, pod := range o.parts.Node.Cluster.Pods.On(node) {
		known := owned[pod.Name] || view.FamilyDisabled(f) && len(pod.IPs) > 0 || slices.ContainsFunc(pod.IPs, func(addr netip.Addr) bool { return ipalloc.FamilyOf(addr) == f })
		if !known && (processClock{o}).Now().Before(pod.Seen.Add(o.settings.Defaults.Policy.AckTimeout)) {
			out = append(out, pod.Name)
		}
	}
	return out
}

// knowWindow records, as a reconcile begins, the operator's knowledge for its guards.
func (f *flight) knowWindow(o *Operator) {
	f.awaited = [2][]string{ipalloc.IPv4: o.awaited(f.name, ipalloc.IPv4), ipalloc.IPv6: o.awaited(f.name, ipalloc.IPv6)}
	view := o.parts.Node.Cluster.Ledger.CiliumNode(f.name)
	if view == nil || f.settled {
		return
	}
	for addr, state := range view.Release {
		if _, published := view.Published()[addr]; published && state == expand.Marked && o.drains(f.name, addr) {
			f.marked = append(f.marked, addr)
		}
	}
	slices.SortFunc(f.marked, netip.Addr.Compare)
}

// drains reports whether, as an operator knows, an address lies in a draining block of a node.
func (o *Operator) drains(node string, addr netip.Addr) bool {
	for _, b := range o.parts.Node.Cluster.Ledger.NodeBlocks(node) {
		if b.CIDR.Contains(addr) {
			return b.Phase == ipalloc.Draining
		}
	}
	return false
}

// stillAwaited returns the pods of a family that a reconcile knew to be awaited when it began,
// and that still are.
func (f *flight) stillAwaited(o *Operator, family ipalloc.Family) []string {
	if len(f.awaited[family]) == 0 {
		return nil
	}
	now := o.awaited(f.name, family)
	return slices.DeleteFunc(slices.Clone(f.awaited[family]), func(pod string) bool { return !slices.Contains(now, pod) })
}

// leaveMarks records the marks left by a reconcile that ended without a call although it knew of
// them and of the agent's restart. Paused operators and pools, nodes that another IPAM serves, and
// nodes that no pool may serve keep their marks.
func (o *Operator) leaveMarks(f *flight) {
	if f.err != nil || f.called || o.settings.Shadow || o.w.cfg.Move != nil || o.w.cfg.Labels != nil || o.w.everPaused() {
		return
	}
	for _, addr := range f.marked {
		o.w.rules.left[addr] = f.name
	}
}

// dropLeft forgets marks that are gone.
func (r *writeRules) dropLeft(v Version) {
	now, _ := v.New.(*ciliumv2.CiliumNode)
	maps.DeleteFunc(r.left, func(addr netip.Addr, node string) bool { return node == v.Key && !isMarked(now, addr.String()) })
}

func isMarked(cn *ciliumv2.CiliumNode, key string) bool {
	return cn != nil && expand.ReleaseStatus(cn.Status.IPAM.ReleaseIPs[key]) == expand.Marked
}

// noteRead records that a reconcile has read a block live.
func (f *flight) noteRead(o *Operator, name string) {
	live := o.w.Block(name)
	if live == nil {
		return
	}
	cidr := cidrOf(live)
	f.others = deleted(f.others, name) // it may decide anew
	if f.found == name {               // it claims the found block, not the known one
		f.found = ""
		return
	}
	if known, held := o.parts.Node.Cluster.Ledger.Block(cidr); held && known.UID != live.UID {
		f.others = append(f.others, name)
	}
	f.changed = slices.DeleteFunc(f.changed, func(p netip.Prefix) bool { return p == cidr })
	if is, err := crd.BlockFrom(live); err == nil && !f.unshown(cidr) && f.knew[cidr].Phase != is.Phase {
		f.changed = append(f.changed, cidr)
	}
}

// unshown reports whether a block was unknown when the write in progress was decided, or in another
// phase than the found one.
func (f *flight) unshown(cidr netip.Prefix) bool {
	_, known := f.knew[cidr]
	return !known || slices.Contains(f.changed, cidr)
}

// knowsPodWith reports whether the operator knows of a pod on a node with an address in its status.
func (o *Operator) knowsPodWith(node string, addr netip.Addr) bool {
	return slices.ContainsFunc(o.parts.Node.Cluster.Pods.On(node), func(p expand.Pod) bool { return slices.Contains(p.IPs, addr) })
}

// unknownClaim is a claim that was carried out without a response.
type unknownClaim struct {
	node, ciliumPool string
	cidr             netip.Prefix
	uid              types.UID
	// pools and nodes are the numbers of versions of these that the claimer had received.
	pools, nodes int
}

// unheard records that the claimer of the block just created does not know whether it exists.
func (o *Operator) unheard(name string) {
	b, ok := o.w.api.Get(KindBlock, name).(*v1alpha1.PodIPBlock)
	if !ok {
		return
	}
	if o.unknownClaims == nil {
		o.unknownClaims = map[string]unknownClaim{}
	}
	delete(o.w.rules.first, b.UID) // for all it knows, it was there before
	if o.w.lists(b) {
		return // recreated, which is no claim
	}
	o.unknownClaims[name] = unknownClaim{
		b.Spec.NodeName, o.w.ciliumPoolOf(b), cidrOf(b), b.UID,
		o.stream(KindPool.String()).delivered(), o.stream(KindNode.String()).delivered(),
	}
}

// delivered returns the least number of versions of its kind that the handler has received.
func (s *stream) delivered() int {
	if len(s.listed) > 0 || s.initial > 0 {
		return 0
	}
	return max(0, s.read-len(s.undelivered))
}

// learn drops the claims in doubt that the operator has resolved or whose block is gone, its own writes
// that it has received, and what reconciles in progress may not have known to belong to the
// cluster.
func (o *Operator) learn() {
	o.forgetAcked()
	if o.cluster != nil {
		known := o.cluster.all()
		for _, f := range o.flights {
			f.cluster = slices.DeleteFunc(f.cluster, func(p netip.Prefix) bool { return !slices.Contains(known, p) })
		}
	}
	for name, d := range o.unknownClaims {
		known, held := o.parts.Node.Cluster.Ledger.Block(d.cidr)
		now := o.w.api.Get(KindBlock, name)
		if held && known.UID == d.uid || now == nil || now.GetUID() != d.uid {
			delete(o.unknownClaims, name)
		}
	}
}

// checkOneNeed checks that an operator does not claim a second block for a need for which it may
// already have claimed one: it has to try that block again. Recreating a block that the
// CiliumNode names is not a claim, and if pools or labels have changed since, another block may
// be the right one.
func (r *writeRules) checkOneNeed(b *v1alpha1.PodIPBlock) {
	if len(r.writer.unknownClaims) == 0 || r.lists(b) || r.api.Get(KindCiliumNode, b.Spec.NodeName) == nil {
		return
	}
	cidr := cidrOf(b)
	for _, name := range sortedKeys(r.writer.unknownClaims) {
		d := r.writer.unknownClaims[name]
		sameNeed := d.node == b.Spec.NodeName && d.cidr != cidr && sameFamily(d.cidr, cidr) && d.ciliumPool == r.ciliumPoolOf(b)
		if sameNeed && !r.chosenAnew(d) {
			r.violate(6, "block %s was claimed for node %s before any answer said whether %s is its own, which it is", b.Name, d.node, name)
		}
	}
}

// chosenAnew reports whether, since a claim, another block may have become the right one: a
// pool was created, deleted or edited, or the Node's labels changed.
func (r *writeRules) chosenAnew(d unknownClaim) bool {
	changed := func(v Version) bool {
		return v.Old == nil || v.New == nil || v.New.GetGeneration() != v.Old.GetGeneration() || v.New.GetDeletionTimestamp() != nil
	}
	relabelled := func(v Version) bool {
		return v.Key == d.node && (v.Old == nil || v.New == nil || !maps.Equal(v.Old.GetLabels(), v.New.GetLabels()))
	}
	return slices.ContainsFunc(r.api.history[KindPool][d.pools:], changed) || slices.ContainsFunc(r.api.history[KindNode][d.nodes:], relabelled)
}

// noteAck records a CiliumNode that a process has written, when it receives the response.
func (o *Operator) noteAck(c *call) {
	if c.kind != KindCiliumNode || !c.writes() || c.fate != carriedOut {
		return
	}
	if cn := o.w.api.Get(c.kind, c.key); cn != nil {
		if o.acked == nil {
			o.acked = map[string]string{}
		}
		o.acked[c.key] = cn.GetResourceVersion()
	}
}

// forgetAcked drops versions that the process's memory has reached.
func (o *Operator) forgetAcked() {
	for name, version := range o.acked {
		if o.knowsVersion(name, version) {
			delete(o.acked, name)
		}
	}
}

// knowsVersion reports whether a process knows a CiliumNode in this version or a later one.
func (o *Operator) knowsVersion(name, version string) bool {
	ledger := o.parts.Node.Cluster.Ledger
	if cn := ledger.CiliumNode(name); cn != nil {
		return !older(cn.ResourceVersion, version)
	}
	last := ledger.LastCiliumNode(name)
	return last != nil && !older(last.ResourceVersion, version)
}

func older(a, b string) bool {
	m, _ := strconv.ParseUint(a, 10, 64)
	n, _ := strconv.ParseUint(b, 10, 64)
	return m < n
}

// checkOwnWrite checks that a process does not decide on a CiliumNode older than its own last
// write, once it has received the response.
func (o *Operator) checkOwnWrite(c *call) {
	if last, ok := o.acked[c.key]; ok && c.kind == KindCiliumNode && c.version != "" && older(c.version, last) {
		o.w.violate(4, "%s: %s is bound to version %s, which its own last write, answered with version %s, has replaced", o.name, c, c.version, last)
	}
}

// knownAgents are the agents' pods that an operator's watch has delivered, interpreted here and
// not by the code under test.
type knownAgents struct {
	clock processClock
	runs  map[string]knownRun // by pod
}

// knownRun is an agent's pod, and since when the operator has seen it in this state.
type knownRun struct {
	node, container string
	uid             types.UID
	ready           bool
	since           time.Time
}

func newKnownAgents(o *Operator) *knownAgents {
	return &knownAgents{clock: processClock{o}, runs: map[string]knownRun{}}
}

func (k *knownAgents) there(obj client.Object) {
	if k == nil {
		return
	}
	pod := obj.(*corev1.Pod)
	run := knownRun{node: pod.Spec.NodeName, uid: pod.UID, since: k.clock.Now()}
	for _, c := range pod.Status.ContainerStatuses {
		run.container = c.ContainerID
	}
	for _, c := range pod.Status.Conditions {
		run.ready = run.ready || c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	}
	if was, known := k.runs[keyOf(pod)]; known && was.uid == run.uid && was.container == run.container && was.ready == run.ready {
		return
	}
	k.runs[keyOf(pod)] = run
}

func (k *knownAgents) gone(key string) {
	if k != nil {
		delete(k.runs, key)
	}
}

// settled reports whether the operator has seen the agent of a node Ready with the same
// container for long enough.
func (k *knownAgents) settled(node string) bool {
	for _, run := range k.runs {
		if run.node == node {
			return run.ready && k.clock.Since(run.since) >= k.clock.o.settings.AgentSettle
		}
	}
	return false
}
