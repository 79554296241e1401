package world

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/pkg/nodeipam"
	"github.com/cilium-pool/cilium-pool-operator/test/agent"
)

// deadSandbox is a sandbox that is gone.
type deadSandbox struct {
	nodeipam.Owner
	// lost: no runtime knows that it was there. released: it has been, and is once more, as runtimes do when they collect it.
	lost, released bool
}

// localRouter is the agents' own address, the same on all nodes (docs/modes.md).
var localRouter = map[agent.Family]netip.Addr{agent.IPv4: netip.MustParseAddr("169.254.23.0"), agent.IPv6: netip.MustParseAddr("fe80::1")}

// boot begins another run of the machine: all sandboxes are gone.
func (n *nodeAgent) boot() {
	n.boots++
	n.open()
	n.m.w.mustNot(os.RemoveAll(filepath.Join(n.dir, "netns")))
	n.m.w.mustNot(os.Mkdir(filepath.Join(n.dir, "netns"), 0o700))
}

func (n *nodeAgent) open() {
	store, err := nodeipam.Open(filepath.Join(n.dir, "store"))
	n.m.w.mustNot(err)
	n.store = store
	n.store.Boot = n.m.bootID()
}

// loseStore deletes the store of a running machine, as people may who look for space.
func (m *machine) loseStore() {
	m.nodeAgent.die()
	m.w.mustNot(os.RemoveAll(filepath.Join(m.nodeAgent.dir, "store")))
	m.nodeAgent.open()
}

// showsAll reports whether the API server shows each address that a pod has: a new store can know no other.
func (m *machine) showsAll() bool {
	cn := m.w.CiliumNode(m.name)
	for slot, e := range m.endpoints {
		if pod := m.kubelet.podObject(slot); pod == nil || pod.UID != e.pod.GetUID() || finished(pod) {
			return false
		}
		for _, addr := range e.addrs() {
			if !m.kubelet.isWritten(slot) && (cn == nil || cn.Status.IPAM.Used[addr.String()].Owner != e.owner()) {
				return false
			}
		}
	}
	return true
}

// bootID identifies the machine's run.
func (m *machine) bootID() string {
	if m.nodeAgent == nil {
		return "boot"
	}
	return fmt.Sprint(m.name, "-", m.nodeAgent.boots)
}

// reboot restarts the machine. Its kubelet releases the sandboxes later.
func (m *machine) reboot() {
	m.crash()
	m.nodeAgent.die()
	for _, slot := range sortedKeys(m.endpoints) {
		m.nodeAgent.dead = append(m.nodeAgent.dead, deadSandbox{Owner: m.endpoints[slot].sandbox})
	}
	m.endpoints = map[string]*endpoint{}
	m.nodeAgent.boot()
}

// loseDisk restarts the machine with an empty disk, as after it was installed again.
func (m *machine) loseDisk() {
	m.crash()
	m.nodeAgent.die()
	m.endpoints = map[string]*endpoint{}
	m.nodeAgent.dead = nil
	m.w.mustNot(os.RemoveAll(filepath.Join(m.nodeAgent.dir, "store")))
	m.nodeAgent.boot()
}

// bootDelegated starts Cilium's agent, which is ready at once: it allocates no address.
func (m *machine) bootDelegated() {
	for _, family := range m.families {
		m.router[family] = localRouter[family]
	}
	m.discover()
	m.phase, m.kubelet.pod.ready = serving, true
}

// forgetIPv6 takes the agent's own IPv6 address off the CiliumNode, as people must before they switch IPv6 off: a new agent
// would go on naming it (docs/operations.md, dual stack; Cilium v1.20.2, pkg/node/sync/local_node_sync.go, initFromK8s).
func (m *machine) forgetIPv6() {
	delete(m.router, agent.IPv6)
	cn := m.w.CiliumNode(m.name)
	if cn == nil {
		return
	}
	cn = cn.DeepCopy()
	cn.Spec.Addresses = slices.DeleteFunc(cn.Spec.Addresses, func(a ciliumv2.NodeAddress) bool {
		return a.IP == localRouter[agent.IPv6].String()
	})
	m.w.must(m.w.api.Update(cn, false))
}

// assign is a CNI ADD in the plugin. The sandbox exists if it fails.
func (n *nodeAgent) assign(pod client.Object) (sandbox nodeipam.Owner, v4, v6 netip.Addr, err error) {
	n.sandboxes++
	name := fmt.Sprint("c", n.sandboxes)
	sandbox = nodeipam.Owner{
		Attachment: nodeipam.Attachment{Container: name, Interface: "eth0"}, Pod: keyOf(pod), UID: string(pod.GetUID()),
		Netns: filepath.Join(n.dir, "netns", name),
	}
	n.m.w.mustNot(os.WriteFile(sandbox.Netns, nil, 0o600))
	addrs, err := n.store.Assign(context.Background(), sandbox)
	for _, addr := range addrs {
		if addr.Is4() {
			v4 = addr
		} else {
			v6 = addr
		}
	}
	return sandbox, v4, v6, err
}

// release is a CNI DEL. Then the runtime removes the sandbox.
func (n *nodeAgent) release(sandbox nodeipam.Owner) {
	n.m.w.mustNot(n.store.ReleasePod(context.Background(), sandbox))
	n.removeNetns(sandbox)
}

func (n *nodeAgent) removeNetns(sandbox nodeipam.Owner) {
	if err := os.Remove(sandbox.Netns); !errors.Is(err, os.ErrNotExist) {
		n.m.w.mustNot(err)
	}
}

// addKilled is a CNI ADD whose runtime is killed once the plugin has assigned addresses. Restarted, it may or may not know of
// the sandbox.
func (m *kubelet) addKilled(slot string) {
	n := m.nodeAgent
	sandbox, _, _, err := n.assign(m.podObject(slot))
	m.w.workload.refused[m.podKey(slot)] = m.w.clock.now
	if err != nil {
		n.release(sandbox)
		return
	}
	n.removeNetns(sandbox)
	n.dead = append(n.dead, deadSandbox{Owner: sandbox, lost: m.w.pick(m.name, uint64(n.sandboxes), 3) == 0})
}

// releaseDead is a CNI DEL for a sandbox that is gone.
func (n *nodeAgent) releaseDead(container string) {
	i := slices.IndexFunc(n.dead, func(d deadSandbox) bool { return d.Container == container })
	n.release(n.dead[i].Owner)
	if n.dead[i].released {
		n.dead = slices.Delete(n.dead, i, i+1)
		return
	}
	n.dead[i].released = true
}

// hasDead reports whether a kubelet has to have a sandbox of a pod released before it makes another one.
func (n *nodeAgent) hasDead(pod client.Object) bool {
	return n != nil && slices.ContainsFunc(n.dead, func(d deadSandbox) bool { return !d.lost && !d.released && d.UID == string(pod.GetUID()) })
}

// opens returns the blocks that the plugin assigns addresses of.
func (n *nodeAgent) opens() []netip.Prefix {
	node, err := n.store.Ready()
	if err != nil {
		return nil
	}
	var out []netip.Prefix
	for _, b := range node.Blocks {
		if !b.Closed {
			out = append(out, b.CIDR)
		}
	}
	return out
}
