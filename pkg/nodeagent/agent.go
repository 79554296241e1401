// Package nodeagent keeps the store of a node's addresses in step with the node's CiliumNode: it lets the CNI plugin
// assign addresses of the listed blocks, reports which are in use, and returns closed blocks that are empty.
//
// The store is the truth about use, and the agent only reports it: while the agent is down, pods end as before, and new
// ones start where the default Cilium pool is the only one.
package nodeagent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	ciliumv2alpha1 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumpool"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/nodeipam"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// Agent is the node agent of one node.
type Agent struct {
	// Node is the node's name.
	Node  string
	Store *nodeipam.Store
	// Watched reads the CiliumNode, the node's pods, Namespaces and CiliumPodIPPools from watches, Live reads from the API
	// server itself, and Client writes.
	Watched, Live client.Reader
	Client        client.Client
	// ReportEvery is the shortest time between two reports of the addresses in use.
	ReportEvery time.Duration
	// Now returns the time.
	Now func() time.Time
	// Restart ends the process, so that it starts anew.
	Restart func()

	reported time.Time
	// since is when it saw that a new store has addresses to adopt; zero: it has not, or not in this mode.
	since time.Time
	// loggedOther is set once it has logged that Cilium's agent runs in another mode.
	loggedOther bool
	// orphans are addresses without a sandbox, with the time since then.
	orphans map[netip.Addr]time.Time
}

const (
	// drainEvery is the time between two looks for addresses in use in closed blocks.
	drainEvery = time.Second
	// lockWait is longer than any process holds the lock of the store.
	lockWait = 10 * time.Second
)

// mostBoots is the number of boots that the store remembers.
const mostBoots = 16

// unknownPod stands for a pod without a name in the store.
const unknownPod = "unknown/unknown"

// Reconcile brings the store and the CiliumNode in step once.
func (a *Agent) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	if !a.Store.IsThere() {
		log.FromContext(ctx).Info("starting anew, as the directory of the store is gone")
		a.Restart()
		return ctrl.Result{}, nil
	}
	stored, err := a.stored()
	if err != nil {
		return ctrl.Result{}, err
	}
	cn, pods, err := a.observe(ctx, stored == nil)
	if err != nil {
		return ctrl.Result{}, err
	}
	if cn == nil || !a.isOfThisBoot(cn, stored) {
		return ctrl.Result{}, a.closeAll(ctx, stored)
	}
	families, other := ciliumnode.AgentFamilies(cn)
	if other.IsValid() {
		return ctrl.Result{}, a.forget(ctx, stored, other)
	}
	if families == [2]bool{} && stored != nil {
		families = stored.Families
	}
	if families == [2]bool{} { // Cilium's agent has not started since the CiliumNode was created: it writes them then
		return ctrl.Result{}, nil
	}
	node := nodeipam.Node{Version: cn.ResourceVersion, Families: families, Blocks: blocksOf(cn)}
	if err := a.choosePools(ctx, &node, pods); err != nil {
		return ctrl.Result{}, err
	}
	if isOlder, err := a.isOlder(ctx, cn, stored); isOlder || err != nil {
		return ctrl.Result{RequeueAfter: drainEvery}, err
	}
	if wait := a.adoptAfter(cn, stored, pods); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	return a.apply(ctx, cn, stored, node, pods)
}

// apply writes the node into the store, and a report into the CiliumNode.
func (a *Agent) apply(ctx context.Context, cn *ciliumv2.CiliumNode, stored *nodeipam.Node, node nodeipam.Node, pods []corev1.Pod) (ctrl.Result, error) {
	if err := a.setNode(ctx, cn, stored, node, pods); err != nil {
		return ctrl.Result{}, err
	}
	if err := a.releaseOrphans(ctx, pods); err != nil {
		return ctrl.Result{}, err
	}
	err := a.report(ctx, cn, node, pods)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return ctrl.Result{RequeueAfter: drainEvery}, a.checkWatch(ctx, cn)
	}
	if slices.ContainsFunc(node.Blocks, func(b nodeipam.Block) bool { return b.Closed }) {
		return ctrl.Result{RequeueAfter: drainEvery}, err
	}
	return ctrl.Result{RequeueAfter: a.ReportEvery}, err
}

// checkWatch restarts the process if the API server has only an older CiliumNode than the watch: etcd was restored, and the
// watch waits for versions that follow those from before. Otherwise it shows soon why a write failed.
func (a *Agent) checkWatch(ctx context.Context, cn *ciliumv2.CiliumNode) error {
	live, err := a.ciliumNode(ctx, a.Live)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	if precedes(live.ResourceVersion, cn.ResourceVersion) {
		log.FromContext(ctx).Info("starting anew, as etcd was restored", "watched", cn.ResourceVersion, "stored", live.ResourceVersion)
		a.Restart()
	}
	return nil
}

// observe returns the node's pods and its CiliumNode, or nil if there is none. A new store must not miss a pod, so live it
// reads from the API server itself.
func (a *Agent) observe(ctx context.Context, live bool) (*ciliumv2.CiliumNode, []corev1.Pod, error) {
	reader := a.Watched
	var ofNode []client.ListOption // the watch shows no others
	if live {
		reader = a.Live
		ofNode = append(ofNode, client.MatchingFields{"spec.nodeName": a.Node})
	}
	cn, err := a.ciliumNode(ctx, reader)
	if err != nil {
		return nil, nil, client.IgnoreNotFound(err)
	}
	var pods corev1.PodList
	if err := reader.List(ctx, &pods, ofNode...); err != nil {
		return nil, nil, fmt.Errorf("listing the pods of node %s: %w", a.Node, err)
	}
	return cn, pods.Items, nil
}

// ciliumNode reads the node's CiliumNode.
func (a *Agent) ciliumNode(ctx context.Context, from client.Reader) (*ciliumv2.CiliumNode, error) {
	cn := &ciliumv2.CiliumNode{}
	if err := from.Get(ctx, types.NamespacedName{Name: a.Node}, cn); err != nil {
		return nil, fmt.Errorf("reading CiliumNode %s: %w", a.Node, err)
	}
	return cn, nil
}

// isOfThisBoot reports whether Cilium's agent has written the CiliumNode since the machine's start. Otherwise it may be of
// another machine, or of a Node that was deleted meanwhile. Later in a run, the operator may have made it anew, without a boot
// ID, or a restore of etcd may have brought back one of an earlier start.
// (Cilium v1.20.2, pkg/nodediscovery/nodediscovery.go, mutateNodeResource.)
func (a *Agent) isOfThisBoot(cn *ciliumv2.CiliumNode, stored *nodeipam.Node) bool {
	if cn.Spec.BootID == a.Store.Boot {
		return true
	}
	return stored != nil && stored.Boot == a.Store.Boot && (cn.Spec.BootID == "" || slices.Contains(stored.Boots, cn.Spec.BootID))
}

// closeAll closes all blocks, which may become other nodes' while there is no CiliumNode. Pods keep their addresses. A store of
// another boot assigns none as it is.
func (a *Agent) closeAll(ctx context.Context, node *nodeipam.Node) error {
	if node == nil || node.Boot != a.Store.Boot {
		return nil
	}
	isOpen := func(b nodeipam.Block) bool { return !b.Closed }
	if !slices.ContainsFunc(node.Blocks, isOpen) {
		return nil
	}
	for i := range node.Blocks {
		node.Blocks[i].Closed = true
	}
	log.FromContext(ctx).Info("no further pod gets an address, as there is no CiliumNode of a running agent")
	return a.set(ctx, *node)
}

// forget makes the store new again while Cilium's agent runs in another mode, in which it assigns addresses that the store
// does not know. The store keeps the addresses of running pods.
func (a *Agent) forget(ctx context.Context, stored *nodeipam.Node, other netip.Addr) error {
	a.since = time.Time{}
	if stored != nil || !a.loggedOther {
		log.FromContext(ctx).Info("waiting, as Cilium's agent has an address that is not link-local: it runs in another IPAM mode, or local-router-ipv4 or local-router-ipv6 is wrong", "address", other)
		a.loggedOther = true
	}
	if stored == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	return a.Store.Forget(ctx)
}

// stored returns the node as it is in the store; nil: the store is new, or was lost.
func (a *Agent) stored() (*nodeipam.Node, error) {
	node, err := a.Store.Node()
	if errors.Is(err, nodeipam.ErrNotReady) {
		return nil, nil
	}
	return node, err
}

// set writes into the store.
func (a *Agent) set(ctx context.Context, node nodeipam.Node) error {
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	return a.Store.SetNode(ctx, node)
}

// blocksOf returns the blocks that a CiliumNode lists.
func blocksOf(cn *ciliumv2.CiliumNode) []nodeipam.Block {
	blocks := []nodeipam.Block{}
	for _, b := range ciliumnode.NodeBlocks(cn) {
		blocks = append(blocks, nodeipam.Block{CIDR: b.CIDR, Pool: b.CiliumPool, Closed: b.Closed, AllowFirst: b.AllowFirst, AllowLast: b.AllowLast})
	}
	return blocks
}

// choosePools adds the Cilium pools of pods, as multi-pool mode has them.
func (a *Agent) choosePools(ctx context.Context, node *nodeipam.Node, pods []corev1.Pod) error {
	var pools ciliumv2alpha1.CiliumPodIPPoolList
	if err := a.Watched.List(ctx, &pools); err != nil {
		return fmt.Errorf("listing CiliumPodIPPools: %w", err)
	}
	ciliumPools := state.NewCiliumPools()
	node.OnlyDefault = true
	for i := range pools.Items {
		ciliumPools.Set(ciliumpool.Read(&pools.Items[i]))
		node.OnlyDefault = node.OnlyDefault && pools.Items[i].Name == crd.DefaultCiliumPool
	}
	node.Pods = map[string]nodeipam.Pod{}
	for i := range pods {
		chosen, err := a.choosePool(ctx, node.Families, ciliumPools, &pods[i])
		if err != nil {
			return err
		}
		if !node.OnlyDefault || chosen != (nodeipam.Pod{}) { // one that names a pool that is not there yet waits for it
			node.Pods[uidOf(&pods[i])] = chosen
		}
	}
	return nil
}

// choosePool chooses the Cilium pools of a pod. It refuses a pod until the watch shows its Namespace.
func (a *Agent) choosePool(ctx context.Context, families [2]bool, ciliumPools *state.CiliumPools, pod *corev1.Pod) (chosen nodeipam.Pod, err error) {
	var namespace corev1.Namespace
	err = a.Watched.Get(ctx, types.NamespacedName{Name: pod.Namespace}, &namespace)
	if apierrors.IsNotFound(err) {
		chosen.Refused = fmt.Sprintf("the node agent has not seen Namespace %s yet", pod.Namespace)
		return chosen, nil
	}
	if err != nil {
		return chosen, fmt.Errorf("reading Namespace %s: %w", pod.Namespace, err)
	}
	for f, choice := range state.ChoosePools(&pod.ObjectMeta, &namespace.ObjectMeta, ciliumPools.Picking()) {
		chosen.Pools[f] = choice.Pool
		if families[f] && chosen.Refused == "" {
			chosen.Refused = choice.Refusal(pod.Namespace+"/"+pod.Name, ipalloc.Family(f))
		}
	}
	return chosen, nil
}

// isOlder reports whether the CiliumNode is older than the one in the store, as an API server that lags may show it: a
// block that this node has returned since may be another node's. If the API server has no newer one, etcd was restored.
func (a *Agent) isOlder(ctx context.Context, cn *ciliumv2.CiliumNode, stored *nodeipam.Node) (bool, error) {
	if stored == nil || !precedes(cn.ResourceVersion, stored.Version) {
		return false, nil
	}
	live, err := a.ciliumNode(ctx, a.Live)
	if err != nil {
		return false, err
	}
	return live.ResourceVersion != cn.ResourceVersion, nil
}

// precedes reports whether a resourceVersion is older than another one.
func precedes(version, other string) bool {
	order, err := resourceversion.CompareResourceVersion(version, other)
	return err == nil && order < 0
}

// setNode writes changes into the store. A store without blocks is new, or was lost: it first adopts the
// addresses of running pods, which another IPAM assigned, or this one.
func (a *Agent) setNode(ctx context.Context, cn *ciliumv2.CiliumNode, stored *nodeipam.Node, node nodeipam.Node, pods []corev1.Pod) error {
	if stored == nil {
		adopted := reportedBy(cn, pods)
		maps.Copy(adopted, addressesOf(pods))
		isGone := func(owner nodeipam.Owner) bool {
			return !slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return uidOf(&pod) == owner.UID })
		}
		if err := a.Store.Adopt(ctx, adopted, isGone); err != nil {
			return err
		}
		log.FromContext(ctx).Info("the store of addresses is new", "adopted", len(adopted))
		stored = &nodeipam.Node{}
	}
	known := *stored
	known.Version = node.Version
	node.Boot = a.Store.Boot
	node.Boots = stored.Boots
	if !slices.Contains(node.Boots, node.Boot) {
		node.Boots = append(slices.Clone(node.Boots[max(0, len(node.Boots)-mostBoots+1):]), node.Boot)
	}
	if reflect.DeepEqual(known, node) {
		return nil
	}
	if err := a.set(ctx, node); err != nil {
		return err
	}
	if !reflect.DeepEqual(stored.Blocks, node.Blocks) {
		log.FromContext(ctx).Info("assigning from", "blocks", node.Blocks)
	}
	return nil
}

// report writes the addresses in use, and returns closed blocks without any at once: neither in the store, which assigns
// none of a closed block since setNode, nor by the status of a pod.
func (a *Agent) report(ctx context.Context, cn *ciliumv2.CiliumNode, node nodeipam.Node, pods []corev1.Pod) error {
	taken, err := a.Store.Assignments()
	if err != nil {
		return err
	}
	report := ciliumnode.NodeReport{Families: node.Families, Used: map[netip.Addr]string{}}
	for addr, owner := range taken {
		report.Used[addr] = cmp.Or(owner.Pod, unknownPod)
		if owner.IsGone() { // its pod, if there is one, waits for another address
			report.Used[addr] = unknownPod
		}
	}
	inUse := slices.Concat(slices.Collect(maps.Keys(taken)), slices.Collect(maps.Keys(addressesOf(pods))))
	for _, b := range node.Blocks {
		if b.Closed && !slices.ContainsFunc(inUse, b.CIDR.Contains) {
			report.Returned = append(report.Returned, b.CIDR)
		}
	}
	isNew := len(cn.Spec.IPAM.Pools.Requested) == 0
	if !isNew && len(report.Returned) == 0 && a.Now().Sub(a.reported) < a.ReportEvery {
		return nil
	}
	if err := report.Write(ctx, a.Client, cn); err != nil {
		return err
	}
	a.reported = a.Now()
	if len(report.Returned) > 0 {
		log.FromContext(ctx).Info("returned closed blocks", "blocks", report.Returned)
	}
	return nil
}
