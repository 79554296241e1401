package state

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// PodFields makes the API server send only pods that need an address.
func PodFields() fields.Selector {
	return fields.ParseSelectorOrDie("spec.nodeName!=,spec.hostNetwork=false,status.phase!=Succeeded,status.phase!=Failed")
}

// PodKey identifies a pod and its node, which never changes.
type PodKey struct {
	Node string
	uid  types.UID
}

// UID returns the pod's UID.
func (k PodKey) UID() types.UID { return k.uid }

// BoundPod holds the fields of a bound pod that decisions need.
type BoundPod struct {
	PodKey
	expand.Pod // Accepted and Created only in modes with several pools per agent
	// Named: no generator chose its name, so another pod may have it later.
	Named bool

	// NeedsAddress: it runs, or will, and not on the host's network.
	NeedsAddress bool
	// request is shared by the pods of a workload; empty in modes with one pool per agent.
	request unique.Handle[PoolRequest]
}

var noRequest = unique.Make(PoolRequest{})

// ReadPodWithRequest reads a pod of a mode with several pools per agent.
func ReadPodWithRequest(pod *corev1.Pod) BoundPod {
	p := ReadPod(pod)
	p.Created = pod.CreationTimestamp.Time
	if pod.Status.StartTime != nil {
		p.Accepted = pod.Status.StartTime.Time
	}
	p.Named = isNamed(pod)
	p.request = unique.Make(PoolRequestOf(&pod.ObjectMeta))
	return p
}

// generated is the least number of characters that the API server adds to metadata.generateName, after it
// has cut a long one (k8s.io/apiserver v0.36.3, pkg/storage/names, randomLength). A StatefulSet adds an ordinal
// to it by itself.
const generated = 5

func isNamed(pod *corev1.Pod) bool {
	return pod.GenerateName == "" || strings.HasPrefix(pod.Name, pod.GenerateName) && len(pod.Name) < len(pod.GenerateName)+generated
}

// ReadPod extracts from a pod the fields that decisions need.
func ReadPod(pod *corev1.Pod) BoundPod {
	node := unique.Make(pod.Spec.NodeName).Value() // one copy for all pods of the node
	p := BoundPod{PodKey: PodKey{node, pod.UID}, request: noRequest}
	p.Name = pod.Namespace + "/" + pod.Name
	p.IPs = podIPs(pod)
	p.Requests, p.PoolRequests = AddressRequests(&pod.Spec)
	p.NeedsAddress = pod.Spec.NodeName != "" && !pod.Spec.HostNetwork &&
		pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
	return p
}

// waits reports whether the pod needs an address and has none.
func (p *BoundPod) waits() bool { return p.NeedsAddress && len(p.IPs) == 0 }

// UsedByPods returns the addresses in the statuses of those pods that need an address, and
// whether any of these pods has no address yet and is missing from shown.
func UsedByPods(pods []corev1.Pod, shown []expand.Pod) (used map[netip.Addr]bool, unseen bool) {
	used = map[netip.Addr]bool{}
	for i := range pods {
		pod := ReadPod(&pods[i])
		if !pod.NeedsAddress {
			continue
		}
		for _, addr := range pod.IPs {
			used[addr] = true
		}
		isShown := func(p expand.Pod) bool { return p.Name == pod.Name }
		unseen = unseen || pod.waits() && !slices.ContainsFunc(shown, isShown)
	}
	return used, unseen
}

func podIPs(pod *corev1.Pod) []netip.Addr {
	var out []netip.Addr
	for _, ip := range pod.Status.PodIPs {
		if addr, err := netip.ParseAddr(ip.IP); err == nil {
			out = append(out, addr.Unmap().WithZone(""))
		}
	}
	return out
}

// Pods stores the pods that need an address, by node. It is safe for concurrent use.
type Pods struct {
	mu     sync.RWMutex
	byNode map[string][]BoundPod
	// owned are the nodes of the pods of each owner, one for each pod. ownerLabels are the keys of labels that own
	// addresses.
	owned       map[string][]string
	ownerLabels map[string]bool
	// namespaces are the pool requests that namespaces make for their pods.
	namespaces map[string]PoolRequest
	// RememberEnded keeps the names of pods that have left a node for expand.ReportLag.
	RememberEnded bool
	ended         map[string][]endedPod
	// endings are the nodes of all ended pods. Both are sorted by time.
	endings []ending
}

// ending is when a pod left a node.
type ending struct {
	node string
	at   time.Time
}

// endedPod is a pod that has left its node.
type endedPod struct {
	name string
	at   time.Time
}

// NewPods returns an empty store.
func NewPods() *Pods {
	return &Pods{byNode: map[string][]BoundPod{}, owned: map[string][]string{}, ownerLabels: map[string]bool{}, namespaces: map[string]PoolRequest{}, ended: map[string][]endedPod{}}
}

// Set stores the state of a pod as of now, and reports whether anything relevant has
// changed.
func (p *Pods) Set(pod BoundPod, now time.Time) bool {
	if !pod.NeedsAddress {
		return p.Delete(pod.PodKey, now)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forgetEnded(now)
	i := p.index(pod.PodKey)
	if i < 0 {
		pod.Seen = now
		p.byNode[pod.Node] = append(p.byNode[pod.Node], pod)
		p.own(&pod)
		return true
	}
	known := &p.byNode[pod.Node][i]
	if slices.Equal(known.IPs, pod.IPs) && known.request == pod.request {
		return false
	}
	known.IPs = pod.IPs
	if known.request != pod.request { // its labels may be others
		p.disown(known)
		known.request = pod.request
		p.own(known)
	}
	return true
}

func (p *Pods) index(key PodKey) int {
	return slices.IndexFunc(p.byNode[key.Node], func(pod BoundPod) bool { return pod.uid == key.uid })
}

// Delete removes a pod as of now, and reports whether it was known.
func (p *Pods) Delete(key PodKey, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := p.index(key)
	if i < 0 {
		return false
	}
	p.forgetEnded(now)
	if p.RememberEnded {
		p.ended[key.Node] = append(p.ended[key.Node], endedPod{p.byNode[key.Node][i].Name, now})
		p.endings = append(p.endings, ending{key.Node, now})
	}
	p.disown(&p.byNode[key.Node][i])
	p.byNode[key.Node] = slices.Delete(p.byNode[key.Node], i, i+1)
	if len(p.byNode[key.Node]) == 0 {
		delete(p.byNode, key.Node)
	}
	return true
}

// forgetEnded drops the pods, of any node, that left it expand.ReportLag ago.
func (p *Pods) forgetEnded(now time.Time) {
	for len(p.endings) > 0 && !now.Before(p.endings[0].at.Add(expand.ReportLag)) {
		node := p.endings[0].node
		p.endings = p.endings[1:]
		if p.ended[node] = p.ended[node][1:]; len(p.ended[node]) == 0 {
			delete(p.ended, node)
		}
	}
}

// On returns the pods on a node, sorted by name.
func (p *Pods) On(node string) []expand.Pod {
	p.mu.RLock()
	defer p.mu.RUnlock()
	out := make([]expand.Pod, 0, len(p.byNode[node]))
	for i := range p.byNode[node] {
		out = append(out, p.byNode[node][i].Pod)
	}
	slices.SortFunc(out, func(a, b expand.Pod) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Ended returns the names of the pods that have left a node within expand.ReportLag, and
// until when the first of them counts.
func (p *Pods) Ended(node string, now time.Time) (names []string, freed time.Time) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	for _, e := range p.ended[node] { // oldest first
		end := e.at.Add(expand.ReportLag)
		if !now.Before(end) {
			continue
		}
		if freed.IsZero() {
			freed = end
		}
		names = append(names, e.name)
	}
	return names, freed
}

// uid returns the UID of a pod on a node; "": there is none of the name.
func (p *Pods) uid(node, name string) types.UID {
	p.mu.RLock()
	defer p.mu.RUnlock()
	for i := range p.byNode[node] {
		if p.byNode[node][i].Name == name {
			return p.byNode[node][i].uid
		}
	}
	return ""
}

// SetNamespace stores the requests of a namespace for its pods, none if it is deleted. If that has
// changed, it returns the nodes of its pods.
func (p *Pods) SetNamespace(name string, w PoolRequest) (nodes []string) {
	p.mu.Lock()
	changed := p.namespaces[name] != w
	if p.namespaces[name] = w; w == (PoolRequest{}) {
		delete(p.namespaces, name)
	}
	p.mu.Unlock()
	if !changed {
		return nil
	}
	prefix := name + "/"
	p.eachNode(func(node string, pods []BoundPod) {
		if slices.ContainsFunc(pods, func(pod BoundPod) bool { return strings.HasPrefix(pod.Name, prefix) }) {
			nodes = append(nodes, node)
		}
	})
	return nodes
}

// owners are the owners that a pod may be of. The caller holds the lock.
func (p *Pods) owners(pod *BoundPod) []string {
	var owners []string
	if pod.Named {
		owners = append(owners, pod.Name)
	}
	if len(p.ownerLabels) == 0 {
		return owners
	}
	namespace, _, _ := strings.Cut(pod.Name, "/")
	for key, value := range pod.request.Value().eachLabel() {
		if p.ownerLabels[key] {
			owners = append(owners, crd.OwnerByLabel(namespace, key, value))
		}
	}
	return owners
}

// MayOwn reports whether a pod may be of an owner.
func (p *Pods) MayOwn(pod BoundPod) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return len(p.owners(&pod)) > 0
}

func (p *Pods) own(pod *BoundPod) {
	for _, owner := range p.owners(pod) {
		p.owned[owner] = append(p.owned[owner], pod.Node)
	}
}

func (p *Pods) disown(pod *BoundPod) {
	for _, owner := range p.owners(pod) {
		removeFrom(p.owned, owner, pod.Node)
	}
}

// OwnBy lets the values of a label, besides names, own addresses.
func (p *Pods) OwnBy(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if key == "" || p.ownerLabels[key] {
		return
	}
	p.ownerLabels[key] = true
	for node := range p.byNode {
		for i := range p.byNode[node] {
			pod := &p.byNode[node][i]
			namespace, _, _ := strings.Cut(pod.Name, "/")
			if value, labelled := pod.request.Value().label(key); labelled {
				owner := crd.OwnerByLabel(namespace, key, value)
				p.owned[owner] = append(p.owned[owner], node)
			}
		}
	}
}

// NodesOf returns the nodes that pods of an owner are bound to: Named ones, or those with a label of OwnBy.
func (p *Pods) NodesOf(owner string) []string {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return slices.Clone(p.owned[owner])
}

// eachNode calls visit with the pods of each node that has any. It holds the lock for one node
// at a time, because all pods would take many milliseconds.
func (p *Pods) eachNode(visit func(node string, pods []BoundPod)) {
	p.mu.RLock()
	nodes := slices.Collect(maps.Keys(p.byNode))
	p.mu.RUnlock()
	for _, node := range nodes {
		p.mu.RLock()
		visit(node, p.byNode[node])
		p.mu.RUnlock()
	}
}

// Missing returns the known pods with a UID that is not among listed.
func (p *Pods) Missing(listed map[types.UID]bool) []BoundPod {
	var out []BoundPod
	p.eachNode(func(node string, pods []BoundPod) {
		for _, pod := range pods {
			if !listed[pod.uid] {
				out = append(out, BoundPod{PodKey: PodKey{node, pod.uid}})
			}
		}
	})
	return out
}

// OwnerPod is a bound pod that may be of an owner: no generator chose its name, so that another pod may have it later,
// or it has a label of OwnBy.
type OwnerPod struct {
	PodKey
	Name string // namespace/name
	// Owners are those that it may be of: by its name, by labels.
	Owners []string
	IPs    []netip.Addr
	// Labels and Namespace are what the selectors of PodIPPools match.
	Labels, Namespace labels.Set
	// Choices are the Cilium pools that it is for, by family.
	Choices [2]PoolChoice
	// Strict: unless an annotation names its pool, agents give it only an address of a pool that selects it.
	Strict bool
	// Wanted are the addresses of its AddressAnnotation, by family. Unreadable says why that has none; "": it has.
	Wanted     [2]netip.Addr
	Unreadable string
}

// OwnerBy returns the owner of the pod by a label, "" for its name, or "" if it has none.
func (p *OwnerPod) OwnerBy(label string) string {
	i := slices.IndexFunc(p.Owners, func(owner string) bool {
		_, key, _ := crd.SplitOwner(owner)
		return key == label
	})
	if i < 0 {
		return ""
	}
	return p.Owners[i]
}

// NamesPool reports whether an annotation names a Cilium pool for the pod.
func (p *OwnerPod) NamesPool() bool {
	return slices.ContainsFunc(p.Choices[:], func(choice PoolChoice) bool {
		return choice.By == podAnnotation || choice.By == namespaceAnnotation
	})
}

// OtherCandidates returns the CiliumPodIPPools that select the pod, beside the one of an owner.
func (p *OwnerPod) OtherCandidates(owner string) []string {
	candidates := slices.Concat(p.Choices[ipalloc.IPv4].Candidates, p.Choices[ipalloc.IPv6].Candidates)
	return slices.DeleteFunc(candidates, func(pool string) bool { return crd.OwnerOfPool(pool) == owner })
}

// OfOwners returns the pods that may be of an owner, sorted by name.
func (p *Pods) OfOwners(picking *Picking) []OwnerPod {
	var out []OwnerPod
	p.eachNode(func(_ string, pods []BoundPod) {
		for i := range pods {
			pod := &pods[i]
			owners := p.owners(pod)
			if len(owners) == 0 {
				continue
			}
			name, _, _ := strings.Cut(pod.Name, "/")
			request := pod.request.Value()
			namespace := p.namespaces[name]
			wanted, unreadable := request.wanted()
			out = append(out, OwnerPod{
				PodKey: pod.PodKey, Name: pod.Name, Owners: owners, IPs: pod.IPs, Labels: request.labelSet(), Namespace: namespace.labelSet(),
				Choices: p.choosePools(pod, picking), Strict: request.strict || namespace.strict,
				Wanted: wanted, Unreadable: unreadable,
			})
		}
	})
	slices.SortFunc(out, func(a, b OwnerPod) int { return strings.Compare(a.Name, b.Name) })
	return out
}
