package state

import (
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
)

// heldPod is a pod in memory. Its UID, name and addresses share one string, because a
// cluster has more pods than anything else: separate fields take twice as much memory.
type heldPod struct {
	// text is the UID, the name, and each address preceded by its length in bytes.
	text    string
	request requestHandle
	// seen is when it was first seen bound.
	seen time.Time
	// created is in seconds since 1970; 0: unknown.
	created  int64
	requests [2]uint16
	// nameAt and ipsAt are the offsets of the name and of the addresses in text.
	nameAt, ipsAt uint16
}

func hold(p BoundPod, seen time.Time) heldPod {
	h := heldPod{request: p.request, seen: seen, requests: p.requests}
	if !p.created.IsZero() {
		h.created = p.created.Unix()
	}
	h.setText(p.uid, p.name, p.ips)
	return h
}

// setText sets text from its parts. Kubernetes limits a name and a namespace to 317 bytes
// together.
func (h *heldPod) setText(uid types.UID, name string, ips []netip.Addr) {
	text := make([]byte, 0, len(uid)+len(name)+len(ips)*17)
	text = append(append(text, uid...), name...)
	h.nameAt, h.ipsAt = uint16(len(uid)), uint16(len(text))
	for _, addr := range ips {
		text = append(text, byte(addr.BitLen()/8))
		text = append(text, addr.AsSlice()...)
	}
	h.text = string(text)
}

// update stores a later state of the pod, and reports whether anything has changed.
func (h *heldPod) update(p BoundPod) bool {
	was := *h
	h.setText(h.uid(), h.name(), p.ips)
	h.request = p.request
	return *h != was
}

func (h *heldPod) uid() types.UID { return types.UID(h.text[:h.nameAt]) }

func (h *heldPod) name() string { return h.text[h.nameAt:h.ipsAt] }

func (h *heldPod) ips() []netip.Addr {
	rest := h.text[h.ipsAt:]
	if rest == "" {
		return nil
	}
	out := make([]netip.Addr, 0, 2)
	for rest != "" {
		n := int(rest[0])
		addr, _ := netip.AddrFromSlice([]byte(rest[1 : 1+n]))
		out, rest = append(out, addr), rest[1+n:]
	}
	return out
}

// pod returns the pod as decisions see it.
func (h *heldPod) pod() expand.Pod {
	p := expand.Pod{Name: h.name(), IPs: h.ips(), Requests: h.requests, Seen: h.seen}
	if h.created != 0 {
		p.Created = time.Unix(h.created, 0)
	}
	return p
}
