package state

import (
	"sync"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
)

// agentsRewrite is the time within which an agent that is assigned whole blocks has compared its CiliumNode
// with its own list twice (refreshPoolInterval in pkg/ipam/multipool_manager.go, Cilium v1.20.2).
const agentsRewrite = 2 * time.Minute

// Recovery holds back all changes of nodes and blocks after a restore of etcd. The restored objects do not show
// the blocks that nodes have claimed since the snapshot, though pods use their addresses: so agents
// report first, and each node gets its blocks back before any node claims another. A nil Recovery is none. It is
// safe for concurrent use.
type Recovery struct {
	mu sync.Mutex
	// changed, if set, is called after it begins or ends.
	changed func()
	active  bool
	// certain: etcd was restored. Otherwise it may have been, as nobody renewed the Lease for a while.
	certain bool
	since   time.Time
	// reports are the nodes with agents that were asked for a report; true: their blocks are back.
	reports map[string]bool
}

// Notify sets the function that is called after the recovery begins or ends.
func (r *Recovery) Notify(changed func()) {
	if r != nil {
		r.changed = changed
	}
}

// Begin holds changes back from now on. A recovery that is under way may become certain.
func (r *Recovery) Begin(certain bool, now time.Time) {
	r.mu.Lock()
	if r.active && (r.certain || !certain) {
		r.mu.Unlock()
		return
	}
	r.active = true
	r.certain = certain
	r.since = now
	r.reports = map[string]bool{}
	r.mu.Unlock()
	r.change()
}

// End lets changes go on.
func (r *Recovery) End() {
	r.mu.Lock()
	wasActive := r.active
	r.active = false
	r.mu.Unlock()
	if wasActive {
		r.change()
	}
}

func (r *Recovery) change() {
	if r.changed != nil {
		r.changed()
	}
}

// Active reports whether changes are held back.
func (r *Recovery) Active() bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.active
}

// Certain reports whether changes are held back as etcd was certainly restored.
func (r *Recovery) Certain() bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.active && r.certain
}

// because returns why changes are held back; "": they are not.
func (r *Recovery) because() string {
	if r.Certain() {
		return "etcd was restored, and agents must report first which addresses they use (annotation cilium-pool.io/restored of the operator's Lease)"
	}
	if r.Active() {
		return "no operator has run for a while, so agents report first which addresses they use (annotation cilium-pool.io/restored of the operator's Lease)"
	}
	return ""
}

// Probed reports whether NoteProbe was called for a node.
func (r *Recovery) Probed(node string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.reports[node]
	return ok
}

// NoteProbe records that the agent of a node was asked for its report.
func (r *Recovery) NoteProbe(node string) { r.set(node, false) }

// Recovered records that the agent of a node has reported, and that the node has its blocks back.
func (r *Recovery) Recovered(node string) { r.set(node, true) }

func (r *Recovery) set(node string, recovered bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.active {
		r.reports[node] = recovered
	}
}

// HasRecovered reports whether Recovered was called for a node.
func (r *Recovery) HasRecovered(node string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reports[node]
}

// Rewritten returns when agents that cannot be asked have corrected their CiliumNodes.
func (r *Recovery) Rewritten() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.since.Add(agentsRewrite)
}

// MayEnd reports whether changes may go on while agents of waiting nodes have yet to report. Nodes that joined
// since the snapshot are unknown, so a certain recovery lasts as long as blocks of a Node that is gone
// cool down. One that is not certain lasts no longer than that.
func (r *Recovery) MayEnd(waiting int, nodeGoneCooldown time.Duration, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	over := !now.Before(r.since.Add(nodeGoneCooldown))
	if r.certain {
		return over && waiting == 0
	}
	return over || waiting == 0
}

// AwaitsReport returns the nodes with a running agent that has yet to report, sorted.
func (c *Cluster) AwaitsReport(now time.Time) []string {
	var out []string
	for _, name := range c.Agents.Nodes() { // the CiliumNode of one that joined since the snapshot is gone
		cn := c.Ledger.CiliumNode(name)
		if c.Recovery.HasRecovered(name) || cn != nil && len(cn.Unadopted(crd.CIDRs(c.Ledger.NodeBlocks(name)))) > 0 {
			continue // back, or another IPAM's
		}
		settled, settles := c.Agents.Settled(name, now)
		if settled || !settles.IsZero() {
			out = append(out, name)
		}
	}
	return out
}
