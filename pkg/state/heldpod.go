package state

import (
	"net/netip"
	"strings"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
)

// heldPod is a pod in memory. Its UID, name and addresses share one string, because a
// cluster has more pods than anything else: separate fields take twice as much memory.
type heldPod struct {
	// text is the UID, the name, and each address preceded by its length in bytes.
	text    string
	request requestHandle
	// seen is when it was first seen bound, in microseconds since 1970.
	seen int64
	// created is in seconds since 1970; 0: unknown.
	created  uint32
	requests [2]uint16
	// nameAt and ipsAt are the offsets of the name and of the addresses in text.
	nameAt, ipsAt uint16
	// uuid: the UID is a UUID, and text has its 16 bytes.
	uuid bool
}

func hold(p BoundPod, seen time.Time) heldPod {
	uid, isUUID := packUID(p.uid)
	h := heldPod{request: p.request, seen: seen.UnixMicro(), requests: p.requests, uuid: isUUID}
	if !p.created.IsZero() {
		h.created = uint32(p.created.Unix())
	}
	h.setText(uid, p.name, p.ips)
	return h
}

// setText sets text from its parts. Kubernetes limits a name and a namespace to 317 bytes
// together.
func (h *heldPod) setText(uid, name string, ips []netip.Addr) {
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
	h.setText(h.text[:h.nameAt], h.name(), p.ips)
	h.request = p.request
	return *h != was
}

func (h *heldPod) uid() types.UID {
	if h.uuid {
		return types.UID(uuid.UUID([]byte(h.text[:h.nameAt])).String())
	}
	return types.UID(h.text[:h.nameAt])
}

// packUID returns a UID as heldPod has it: a UUID, as Kubernetes' UIDs are, in 16 bytes in
// place of 36.
func packUID(uid types.UID) (packed string, isUUID bool) {
	text := string(uid)
	if id, err := uuid.Parse(text); err == nil && len(text) == 36 && strings.ToLower(text) == text {
		return string(id[:]), true
	}
	return text, false
}

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
	p := expand.Pod{Name: h.name(), IPs: h.ips(), Requests: h.requests, Seen: time.UnixMicro(h.seen).UTC()}
	if h.created != 0 {
		p.Created = time.Unix(int64(h.created), 0)
	}
	return p
}

// appendPod appends a pod and leaves room for a quarter more, where append would leave as
// much again.
func appendPod(pods []heldPod, h heldPod) []heldPod {
	if len(pods) == cap(pods) {
		pods = append(make([]heldPod, 0, len(pods)+max(2, len(pods)/4)), pods...)
	}
	return append(pods, h)
}
