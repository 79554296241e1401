// Package wire is shared by the two programs that test/truth compares. The test drives cilium-ipam by
// lines of JSON: a Request each, answered by a Response.
package wire

import (
	"encoding/json"
	"net/netip"
	"time"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
)

// Modes of IPAM in which cilium-ipam runs.
const (
	CRD        = "crd"
	MultiPool  = "multi-pool"
	Kubernetes = "kubernetes"
)

// Request is one step of an agent, or of its environment.
type Request struct {
	// Do names the step. In all modes: next, allocate, restore, release, exclude, restored, say. In crd mode
	// also gate. In multi-pool mode also put, delete, refuse, see, see-again, sync, know, start, crash, pass. In kubernetes mode
	// also start.
	Do    string     `json:"do"`
	Pool  string     `json:"pool,omitempty"` // empty: default
	Owner string     `json:"owner,omitempty"`
	IP    netip.Addr `json:"ip,omitzero"`
	// Family restricts next to "ipv4" or "ipv6".
	Family string `json:"family,omitempty"`
	// Quietly makes next trigger no write.
	Quietly bool `json:"quietly,omitempty"`
	// Gate is "open", "block" or "fail".
	Gate string `json:"gate,omitempty"`
	// Node is the object that put stores.
	Node *ciliumv2.CiliumNode `json:"node,omitempty"`
	// Refuse is the error of the next write: "conflict" or "error".
	Refuse string `json:"refuse,omitempty"`
	// Last makes see skip the versions in between.
	Last bool `json:"last,omitempty"`
	// Known is true if a CiliumPodIPPool of that name exists.
	Known bool `json:"known,omitempty"`
	// Reserve, IPv6, Rate and the Node of Kubernetes configure the agent at start.
	Reserve map[string]string `json:"reserve,omitempty"`
	IPv6    bool              `json:"ipv6,omitempty"`
	Rate    time.Duration     `json:"rate,omitempty"`
	K8sNode json.RawMessage   `json:"k8sNode,omitempty"`
	// For is the duration of pass.
	For time.Duration `json:"for,omitempty"`
}

// Response has the result of a Request, and the state after it.
type Response struct {
	Err string `json:"err,omitempty"`
	// Got are the addresses that next allocated, at most one of each family.
	Got []netip.Addr `json:"got,omitempty"`
	// Ready is true if the allocators exist, and Allocated are their addresses, sorted as texts.
	Ready     bool     `json:"ready,omitempty"`
	Allocated []string `json:"allocated,omitempty"`
	// Seen is the resourceVersion that the allocators work with in crd mode, and Attempts the number of writes
	// that have reached the gate since it was set.
	Seen     string `json:"seen,omitempty"`
	Attempts int    `json:"attempts,omitempty"`
	// Node is the CiliumNode stored in multi-pool mode.
	Node *ciliumv2.CiliumNode `json:"node,omitempty"`
	// PodCIDRs are read from the Node in kubernetes mode, IPv4 first.
	PodCIDRs []string `json:"podCIDRs,omitempty"`
}
