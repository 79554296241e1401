package world

import (
	"net/netip"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
)

// excuse is for an address that was removed from a node's pool by hand. It lasts until the
// address is back and the node's agent has seen it.
type excuse struct {
	node string
	back int // the number of CiliumNode versions with which it was back; 0: it is not
}

func (e excuse) holds(m *machine) bool { return e.node == m.name && (e.back == 0 || m.read < e.back) }

// noteExcuses records addresses that were removed from a pool by hand, or with the Node: pods
// may lose them.
func (w *World) noteExcuses(v Version) {
	old, _ := v.Old.(*ciliumv2.CiliumNode)
	now, _ := v.New.(*ciliumv2.CiliumNode)
	if now == nil {
		now = &ciliumv2.CiliumNode{}
	}
	if old == nil {
		old = &ciliumv2.CiliumNode{}
	}
	if (w.whole() || w.fixed()) && v.New != nil {
		return // agents take off what they do not use
	}
	for key := range w.poolOf(old) {
		addr, err := netip.ParseAddr(key)
		if _, still := w.poolOf(now)[key]; err == nil && !still && (w.writer == nil || v.New == nil) {
			w.excused[addr] = excuse{node: v.Key}
			w.forfeit(v.Key, addr)
		}
	}
	for key := range w.poolOf(now) {
		if addr, err := netip.ParseAddr(key); err == nil && w.excused[addr] == (excuse{node: v.Key}) {
			w.excused[addr] = excuse{v.Key, len(w.api.history[KindCiliumNode])}
		}
	}
}

// forfeit gives up on an address after users have deleted both the block and the CiliumNode:
// nothing is left that mentions it.
func (w *World) forfeit(node string, addr netip.Addr) {
	if w.inBlockOf(node, addr) {
		return
	}
	for _, e := range w.machine(node).endpoints {
		e.forfeited = e.forfeited || contains(e.addrs(), addr)
	}
}
