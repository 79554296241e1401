package world

import (
	"context"
	"fmt"
	"maps"
	"os"
	"strings"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	ciliumv2alpha1 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cilium-pool/cilium-pool-operator/pkg/nodeagent"
	"github.com/cilium-pool/cilium-pool-operator/pkg/nodeipam"
)

// nodeAgent is this project's node agent on a machine, with the store on the machine's disk that the CNI plugin works on.
// Both are the product's own code; the node agent hands over at each call to the API server.
type nodeAgent struct {
	m     *machine
	dir   string
	store *nodeipam.Store
	boots int
	agent *nodeagent.Agent // nil: it is down
	// watches has a watch of each of nodeAgentWatches, by the kind's name. The machine watches the CiliumNode.
	watches map[string]*nodeAgentWatch
	due     time.Time // when it reconciles again

	pending *call // nil: no reconcile is in progress
	code    coroutine
	result  ctrl.Result
	err     error

	sandboxes int
	// dead are sandboxes that are gone, and were not released.
	dead []deadSandbox
}

// nodeAgentWatch is a kind as a node agent's watch shows it, after read of its versions.
type nodeAgentWatch struct {
	kind    Kind
	read    int
	objects map[string]client.Object
}

// nodeAgentWatches returns the kinds that node agents watch besides the CiliumNode.
func nodeAgentWatches() []Kind { return []Kind{KindPod, KindNamespace, KindCiliumPool} }

// nodeAgentRetry is the wait of a node agent after an error.
const nodeAgentRetry = time.Second

// newNodeAgent installs the node agent of a machine in its first boot, with an empty disk.
func newNodeAgent(m *machine) {
	parent := os.Getenv("TMPDIR")
	if _, err := os.Stat("/dev/shm"); err == nil && parent == "" {
		parent = "/dev/shm" // a sync is free there
	}
	dir, err := os.MkdirTemp(parent, "sim-"+m.name)
	m.w.mustNot(err)
	n := &nodeAgent{m: m, dir: dir}
	m.nodeAgent = n
	n.boot()
}

// up reports whether it runs.
func (n *nodeAgent) up() bool { return n != nil && n.agent != nil }

// start starts its process. Its first lists are of some versions ago.
func (n *nodeAgent) start(versionsAgo int) {
	n.agent = &nodeagent.Agent{
		Node: n.m.name, Store: n.store, Watched: watchedBy{nodeAgent: n}, Live: live{caller: n}, Client: live{caller: n},
		ReportEvery: 4 * n.m.w.cfg.UpdateRate, Now: n.m.w.Now,
		Restart: func() { n.m.w.violate(9, "node agent %s believes that its watch is of another etcd", n.m.name) },
	}
	api := n.m.w.api
	n.m.read = max(0, len(api.history[KindCiliumNode])-versionsAgo)
	n.m.seen, _ = api.at(KindCiliumNode, n.m.read)[n.m.name].(*ciliumv2.CiliumNode)
	n.watches = map[string]*nodeAgentWatch{}
	for _, kind := range nodeAgentWatches() {
		read := max(0, len(api.history[kind])-versionsAgo)
		n.watches[kind.String()] = &nodeAgentWatch{kind, read, maps.Clone(api.at(kind, read))}
	}
	n.due = n.m.w.clock.now
}

// sees processes an event of its watch of the CiliumNode.
func (n *nodeAgent) sees(cn *ciliumv2.CiliumNode) {
	n.m.seen = cn
	n.due = n.m.w.clock.now
}

// seesNext processes the next event of a watch.
func (n *nodeAgent) seesNext(watch *nodeAgentWatch) {
	v := n.m.w.api.history[watch.kind][watch.read]
	watch.read++
	if v.New == nil {
		delete(watch.objects, v.Key)
	} else {
		watch.objects[v.Key] = v.New
	}
	n.due = n.m.w.clock.now
}

// seesAll processes all events of these watches.
func (n *nodeAgent) seesAll() {
	for _, kind := range nodeAgentWatches() {
		for watch := n.watches[kind.String()]; n.isBehind(watch); {
			n.seesNext(watch)
		}
	}
}

// isBehind reports whether a watch has not shown the last version.
func (n *nodeAgent) isBehind(watch *nodeAgentWatch) bool {
	return watch.read < len(n.m.w.api.history[watch.kind])
}

// die ends the process, wherever it is.
func (n *nodeAgent) die() {
	if n.pending != nil {
		n.code.stop()
		n.pending = nil
	}
	n.agent = nil
}

// reconcile begins a reconcile, and runs it to its first call.
func (n *nodeAgent) reconcile() {
	n.due = time.Time{}
	ctx := n.m.w.quiet
	if n.m.w.trace != nil {
		ctx = log.IntoContext(context.Background(), traceLogger(func(line string) {
			n.m.w.tracef("node agent %s: %s", n.m.name, strings.ReplaceAll(line, n.dir, "")) // else no two traces are the same
		}))
	}
	n.code.begin(func() { n.result, n.err = n.agent.Reconcile(ctx, ctrl.Request{}) })
	n.resume()
}

// resume runs a reconcile to its next call, or to its end.
func (n *nodeAgent) resume() {
	c, more := n.code.next()
	n.pending = c
	if more {
		return
	}
	n.pending = nil
	wait := n.result.RequeueAfter
	if n.err != nil {
		n.m.w.tracef("node agent %s: error %v", n.m.name, n.err)
		wait = nodeAgentRetry
	}
	if wait > 0 && n.due.IsZero() { // else an event came meanwhile
		n.due = n.m.w.clock.now.Add(wait)
	}
}

func (n *nodeAgent) in() *World { return n.m.w }

func (n *nodeAgent) send(c *call) error { return n.code.send(c, n.carryOut) }

func (n *nodeAgent) carryOut(c *call) error {
	n.m.w.rules.byNodeAgent = true
	defer func() { n.m.w.rules.byNodeAgent = false }()
	if c.writes() && !c.conditional {
		n.m.w.violate(4, "node agent %s: %s is not conditional", n.m.name, c)
	}
	err := c.do()
	if err != nil {
		n.m.w.tracef("node agent %s: %s: %v", n.m.name, c, err)
	}
	return err
}

// watchedBy reads the objects of a node agent's watches.
type watchedBy struct {
	client.Reader
	*nodeAgent
}

// Get implements client.Reader.
func (w watchedBy) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	kind := kindOf(obj)
	stored := w.shown(kind, nameOf(key))
	if stored == nil {
		return apierrors.NewNotFound(kind.resource(), nameOf(key))
	}
	assign(obj, stored.DeepCopyObject().(client.Object))
	return nil
}

// shown returns an object as its watch shows it; nil: it does not.
func (w watchedBy) shown(kind Kind, name string) client.Object {
	if kind != KindCiliumNode {
		return w.watches[kind.String()].objects[name]
	}
	if w.m.seen == nil {
		return nil // and no client.Object that holds a nil
	}
	return w.m.seen
}

// List implements client.Reader.
func (w watchedBy) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch list := list.(type) {
	case *corev1.PodList:
		pods := w.watches[KindPod.String()].objects
		for _, key := range sortedKeys(pods) {
			if pod := pods[key].(*corev1.Pod); pod.Spec.NodeName == w.m.name {
				list.Items = append(list.Items, *pod.DeepCopy())
			}
		}
	case *ciliumv2alpha1.CiliumPodIPPoolList:
		pools := w.watches[KindCiliumPool.String()].objects
		for _, key := range sortedKeys(pools) {
			list.Items = append(list.Items, *pools[key].DeepCopyObject().(*ciliumv2alpha1.CiliumPodIPPool))
		}
	default:
		panic(fmt.Sprintf("no such list here: %T", list))
	}
	return nil
}

// enableNodeAgent enables the steps of a machine's node agent, and faults of its machine.
func (wl *workload) enableNodeAgent(m *machine) {
	n := m.nodeAgent
	if n == nil {
		return
	}
	for _, dead := range n.dead {
		if !dead.lost {
			wl.can(SandboxDel, m.name, dead.Container)
		}
	}
	wl.canIf(AgentKill, Reboot, m.name, "")
	wl.canIf(NodeGone, DiskLost, m.name, "")
	if m.showsAll() {
		wl.canIf(Edits, StoreLost, m.name, "")
	}
	if !n.up() {
		wl.can(NodeAgentStart, m.name, "")
		wl.canIf(StaleList, NodeAgentStart, m.name, "stale")
		return
	}
	wl.canIf(AgentKill, NodeAgentDies, m.name, "")
	wl.enableWatch(m)
	for _, kind := range nodeAgentWatches() {
		if n.isBehind(n.watches[kind.String()]) {
			wl.can(NodeAgentSee, m.name, kind.String())
		}
	}
	if n.pending == nil {
		if !n.due.IsZero() && !wl.clock.now.Before(n.due) && !m.silent {
			wl.can(NodeAgentRun, m.name, "")
		}
		return
	}
	wl.can(NodeAgentCall, m.name, "")
	wl.canIf(Fail, NodeAgentFails, m.name, "")
	if n.pending.writes() {
		wl.canIf(Unheard, NodeAgentUnheard, m.name, "")
		wl.canIf(KillAfterWrite, NodeAgentKills, m.name, "")
	}
}

func (wl *workload) doNodeAgent(verb Verb, m *machine, what string) bool {
	n := m.nodeAgent
	switch verb {
	case SandboxDel:
		n.releaseDead(what)
	case Reboot:
		m.reboot()
	case DiskLost:
		m.loseDisk()
	case StoreLost:
		m.loseStore()
	case NodeAgentStart:
		n.start(wl.processes.versionsAgo(what))
	case NodeAgentSee:
		n.seesNext(n.watches[what])
	case NodeAgentRun:
		n.reconcile()
	case NodeAgentDies:
		n.die()
	case NodeAgentKills:
		_ = n.carryOut(n.pending)
		n.die()
	case NodeAgentFails:
		n.pending.fate = failed
		n.resume()
	case NodeAgentUnheard:
		n.pending.fate = unheard
		n.resume()
	case NodeAgentCall:
		n.resume()
	default:
		return false
	}
	return true
}

// dues reports when the node agent reconciles again.
func (n *nodeAgent) dues(at func(time.Time)) {
	if n.up() && n.pending == nil {
		at(n.due)
	}
}

// closeNodeAgents ends node agents and removes the machines' disks.
func (w *World) closeNodeAgents() {
	for _, m := range w.machines {
		if m.nodeAgent != nil {
			m.nodeAgent.die()
			w.mustNot(os.RemoveAll(m.nodeAgent.dir))
		}
	}
}

// restartUnknown restarts Cilium's agents where the node agent does not believe the CiliumNode: users deleted or restored it
// before the node agent read it in this run of the machine, and only Cilium's agent writes families and boot ID
// (docs/contributing/architecture.md). It reports whether there were any.
func (qu *quiescence) restartUnknown() bool {
	restarted := false
	for _, m := range qu.machines {
		if m.nodeAgent == nil {
			continue
		}
		if _, err := m.nodeAgent.store.Ready(); err != nil {
			m.crash()
			restarted = true
		}
	}
	return restarted
}
