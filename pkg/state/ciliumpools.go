package state

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumpool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
)

// CiliumPools stores the existing CiliumPodIPPools. It is safe for concurrent use.
type CiliumPools struct {
	optional[*ciliumpool.View]
	// picking is what Picking returns; nil after a change.
	picking *Picking
}

// Picking are the CiliumPodIPPools that select pods. Each of the pods that have one of their own is
// looked up by name: there may be thousands.
type Picking struct {
	byPod  map[string][]*ciliumpool.View
	others []*ciliumpool.View
}

// PickingOf returns the CiliumPodIPPools that select pods.
func PickingOf(views ...*ciliumpool.View) *Picking {
	p := &Picking{byPod: map[string][]*ciliumpool.View{}}
	for _, v := range views {
		if pod := v.Selector.Pod(); pod != "" {
			p.byPod[pod] = append(p.byPod[pod], v)
		} else if v.Selector != nil {
			p.others = append(p.others, v)
		}
	}
	return p
}

// NewCiliumPools returns an empty CiliumPools that does not know whether the API server
// serves the kind.
func NewCiliumPools() *CiliumPools {
	return &CiliumPools{optional: optional[*ciliumpool.View]{byName: map[string]*ciliumpool.View{}, uid: func(v *ciliumpool.View) types.UID { return v.UID }}}
}

// Set stores a CiliumPodIPPool. It reports whether it selects different pods than
// before, or has other families.
func (c *CiliumPools) Set(v *ciliumpool.View) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.byName[v.Name]
	c.byName[v.Name], c.picking = v, nil
	if was == nil {
		return v.Selector != nil
	}
	return !was.Selector.Same(v.Selector) || (was.MaskSize[0] == 0) != (v.MaskSize[0] == 0) || (was.MaskSize[1] == 0) != (v.MaskSize[1] == 0)
}

// lacksFamily returns why no CIDR of a family may be listed for a Cilium pool, "" for the default one; "": it may.
// An agent that announces the pool by BGP to a peer of that family ends at such a CIDR
// (pkg/bgp/manager/reconciler/pod_ip_pool.go, getPodIPPoolPolicyStatements, v1.20.1).
func (c *CiliumPools) lacksFamily(ciliumPool string, f ipalloc.Family) string {
	if c == nil {
		return ""
	}
	is := c.Get(cmp.Or(ciliumPool, crd.DefaultCiliumPool))
	if is == nil || is.MaskSize[f] != 0 {
		return ""
	}
	return fmt.Sprintf("CiliumPodIPPool %s has no %s ranges, and agents that announce it by BGP would crash", is.Name, f)
}

// Delete removes a CiliumPodIPPool, unless its name was reused since. It reports
// whether it selected pods.
func (c *CiliumPools) Delete(v *ciliumpool.View) (picked bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.byName[v.Name]
	if was == nil || was.UID != v.UID {
		return false
	}
	delete(c.byName, v.Name)
	c.picking = nil
	return was.Selector != nil
}

// OfPod returns the name of the CiliumPodIPPool for the pinned addresses of a pod: the old one while that exists
// or a block is for it, as agents assign nothing to a pod that two of them select.
func (c *CiliumPools) OfPod(pod string, ledger *Ledger) string {
	old := crd.OldPodPool(pod)
	isForOld := func(cidr netip.Prefix) bool {
		block, _ := ledger.Block(cidr)
		return block.CiliumPool == old
	}
	if c.Get(old) != nil || slices.ContainsFunc(ledger.PinsOf(pod), isForOld) {
		return old
	}
	return crd.PodPool(pod)
}

// Picking returns the CiliumPodIPPools that select pods. A nil receiver has none.
func (c *CiliumPools) Picking() *Picking {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.picking == nil {
		c.picking = PickingOf(slices.Collect(maps.Values(c.byName))...)
	}
	return c.picking
}

// Annotations of pods and namespaces that request a Cilium pool, or that make the pod
// accept only a pool that they name or that selects it (pkg/annotation/k8s.go, IPAMPoolKey,
// IPAMIPv4PoolKey, IPAMIPv6PoolKey and IPAMRequirePoolMatch, v1.20.1).
const (
	poolAnnotation    = "ipam.cilium.io/ip-pool"
	v4PoolAnnotation  = "ipam.cilium.io/ipv4-pool"
	v6PoolAnnotation  = "ipam.cilium.io/ipv6-pool"
	RequireAnnotation = "ipam.cilium.io/require-pool-match"
)

// noPool stands for the pool of a pod that agents assign no address to. No pool name contains a
// slash.
const noPool = "/"

// PoolRequest is a pod's or a namespace's request for Cilium pools.
type PoolRequest struct {
	// pools are the pools that annotations name, by family; "": none.
	pools [2]string
	// strict: it accepts only a pool that it names or that selects it.
	strict bool
	// labels are encoded, so that requests can be compared.
	labels string
}

// PoolRequestOf reads a PoolRequest from the annotations and labels of a pod or a namespace. The
// family's own annotation takes precedence (pkg/ipam/metadata/manager.go, determinePoolByAnnotations,
// v1.20.1).
func PoolRequestOf(meta *metav1.ObjectMeta) PoolRequest {
	all := meta.Annotations[poolAnnotation]
	return PoolRequest{
		pools: [2]string{
			ipalloc.IPv4: cmp.Or(meta.Annotations[v4PoolAnnotation], all),
			ipalloc.IPv6: cmp.Or(meta.Annotations[v6PoolAnnotation], all),
		},
		strict: meta.Annotations[RequireAnnotation] == "true", labels: labels.Set(meta.Labels).String(),
	}
}

// labelSet decodes labels. Neither keys nor values contain a comma or an equals sign.
func (w PoolRequest) labelSet() labels.Set {
	set := labels.Set{}
	for pair := range strings.SplitSeq(w.labels, ",") {
		if key, value, ok := strings.Cut(pair, "="); ok {
			set[key] = value
		}
	}
	return set
}

// KeepPoolRequests returns the annotations that request a Cilium pool.
func KeepPoolRequests(annotations map[string]string) map[string]string {
	var kept map[string]string
	for _, key := range []string{poolAnnotation, v4PoolAnnotation, v6PoolAnnotation, RequireAnnotation} {
		if value, asks := annotations[key]; asks {
			if kept == nil {
				kept = map[string]string{}
			}
			kept[key] = value
		}
	}
	return kept
}

// PoolRequests are the Cilium pools that pods request, by "namespace/name" and family. Pods
// that request the default pool are left out.
type PoolRequests map[string]*[2]string

// add adds a pod by its own request, its namespace's, and the CiliumPodIPPools that select pods.
func (a PoolRequests) add(name string, pod, namespace PoolRequest, picking *Picking) {
	picked := pickedFor(name, pod, namespace, picking)
	var asked [2]string
	for _, f := range ipalloc.Families() {
		asked[f], _ = poolFor(f, pod, namespace, picked[f])
	}
	if asked != [2]string{} {
		a[name] = &asked
	}
}

// pickedFor returns the pools that select a pod, by family.
func pickedFor(name string, pod, namespace PoolRequest, picking *Picking) (picked [2][]string) {
	if picking == nil {
		return picked
	}
	pools := slices.Clone(picking.byPod[name])
	if len(picking.others) > 0 {
		in, of, _ := strings.Cut(name, "/")
		own, space := ciliumpool.PodLabels(in, of, pod.labelSet()), namespace.labelSet()
		for _, pool := range picking.others {
			if pool.Selector.Picks(own, space) {
				pools = append(pools, pool)
			}
		}
	}
	for _, pool := range pools {
		for _, f := range ipalloc.Families() {
			if pool.MaskSize[f] != 0 {
				picked[f] = append(picked[f], pool.Name)
			}
		}
	}
	return picked
}

// PoolForNewPod returns the Cilium pool, "" being the default one, that agents will give a new pod an address
// of. offered is false if they give it none, or Nodes offer none of the pool.
func (c *Cluster) PoolForNewPod(pod *metav1.ObjectMeta, f ipalloc.Family) (pool string, offered bool) {
	if !c.Defaults.CiliumPools {
		return "", true
	}
	request := PoolRequestOf(pod)
	c.Pods.mu.RLock()
	namespace := c.Pods.namespaces[pod.Namespace]
	c.Pods.mu.RUnlock()
	picked := pickedFor(pod.Namespace+"/"+pod.Name, request, namespace, c.CiliumPools.Picking())
	pool, _ = poolFor(f, request, namespace, picked[f])
	return pool, pool != noPool && MayOffer(pool)
}

// asker is who determines the Cilium pool of a pod.
type asker int

const (
	nobody asker = iota
	podAnnotation
	namespaceAnnotation
	podSelector
)

// poolFor returns the pool of a pod's address, "" for the default one, and who determines it
// (pkg/ipam/metadata/manager.go, GetIPPoolForPod, v1.20.1). If more than one selects the pod, the
// agent refuses.
func poolFor(f ipalloc.Family, pod, namespace PoolRequest, picked []string) (pool string, by asker) {
	switch {
	case pod.pools[f] != "":
		pool, by = pod.pools[f], podAnnotation
	case namespace.pools[f] != "":
		pool, by = namespace.pools[f], namespaceAnnotation
	case len(picked) > 1:
		return noPool, podSelector
	case len(picked) == 1:
		pool, by = picked[0], podSelector
	case pod.strict:
		return noPool, podAnnotation
	case namespace.strict:
		return noPool, namespaceAnnotation
	}
	if pool == crd.DefaultCiliumPool {
		pool = ""
	}
	return pool, by
}

// poolSource is who determines the Cilium pool of a pod, and the CiliumPodIPPools that select it.
type poolSource struct {
	uid    types.UID
	by     asker
	none   bool // agents give it no address of any pool
	picked []string
}

// poolSource returns the source of the Cilium pool of a pod on a node.
func (p *Pods) poolSource(node, name string, f ipalloc.Family, picking *Picking) poolSource {
	p.mu.RLock()
	defer p.mu.RUnlock()
	i := slices.IndexFunc(p.byNode[node], func(pod BoundPod) bool { return pod.Name == name })
	if i < 0 {
		return poolSource{}
	}
	in, _, _ := strings.Cut(name, "/")
	request, namespace := p.byNode[node][i].request.Value(), p.namespaces[in]
	s := poolSource{uid: p.byNode[node][i].uid, picked: pickedFor(name, request, namespace, picking)[f]}
	slices.Sort(s.picked)
	pool, by := poolFor(f, request, namespace, s.picked)
	s.by, s.none = by, pool == noPool
	return s
}

// says describes the source of a pod's request, for users.
func (s *poolSource) says(pod string, f ipalloc.Family) string {
	namespace, _, _ := strings.Cut(pod, "/")
	of := map[asker]string{podAnnotation: "pod " + pod, namespaceAnnotation: "namespace " + namespace}[s.by]
	switch {
	case s.none && s.by == podSelector:
		return fmt.Sprintf("agents give no %s address to pod %s, as several CiliumPodIPPools select it: %s", f, pod, suggest.Few(s.picked))
	case s.none:
		return fmt.Sprintf("agents give no %s address to pod %s, as no CiliumPodIPPool selects it, and the annotation %s of %s requires one", f, pod, RequireAnnotation, of)
	case s.by == podSelector:
		return "CiliumPodIPPool " + s.picked[0] + " selects pod " + pod
	case s.by == nobody:
		return "pod " + pod + " names no pool, and Cilium's setting " + ciliumconfig.DefaultPoolSetting + " makes this one the node's default"
	}
	return "the annotation of " + of + " asks for it"
}

// Of returns the pool that a pod requests; "": the default one.
func (a PoolRequests) Of(name string, f ipalloc.Family) string {
	if asked := a[name]; asked != nil {
		return asked[f]
	}
	return ""
}
