package claims

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/anishathalye/porcupine"
)

// Kind is what a request does to a block.
type Kind string

// The kinds of requests.
const (
	// Create creates the block's object for Node: the claim.
	Create Kind = "create"
	// Publish means that Node's CiliumNode holds the block after the write, which adds an
	// address or states the content otherwise.
	Publish Kind = "publish"
	// Withdraw means that Node's CiliumNode does not hold the block after the write.
	Withdraw Kind = "withdraw"
	// Remove deletes the block's object: the release.
	Remove Kind = "remove"
)

// Outcome is the outcome of a request.
type Outcome string

// The outcomes of requests.
const (
	Done Outcome = "done"
	// Refused means that the object already existed (Create) or did not exist (Remove).
	Refused Outcome = "refused"
	// Unknown means that the API server died before it answered, or answered with an error
	// that leaves the outcome open. Only Publish and Withdraw have it.
	Unknown Outcome = "unknown"
)

// Request is one request about one block.
type Request struct {
	Kind  Kind
	Block netip.Prefix
	// Node is the node of the block or CiliumNode; empty for Remove.
	Node string
	// UID is the UID of the created object, or the precondition of the request. "" means
	// unknown, or any.
	UID string
	By  string
}

// state is the state of a block's register.
type state struct {
	exists    bool
	node, uid string
	// published is the node whose CiliumNode holds the block.
	published string
	// removed is the UID of the object that was removed last.
	removed string
}

// Model returns the model of a block as a register: its object exists for one node or not at
// all, and one node or none publishes it.
func Model() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Partition: byBlock,
		Init:      func() []any { return []any{state{}} },
		Step: func(at, in, out any) []any {
			return after(at.(state), in.(Request), out.(Outcome))
		},
		DescribeOperation: func(in, out any) string {
			r := in.(Request)
			return fmt.Sprintf("%s %s for %s by %s: %s", r.Kind, r.Block, r.Node, r.By, out)
		},
	}
	return m.ToModel()
}

func byBlock(history []porcupine.Operation) [][]porcupine.Operation {
	index := map[netip.Prefix]int{}
	var out [][]porcupine.Operation
	for _, op := range history {
		block := op.Input.(Request).Block
		i, found := index[block]
		if !found {
			i = len(out)
			index[block] = i
			out = append(out, nil)
		}
		out[i] = append(out[i], op)
	}
	return out
}

// after returns the states that a request may lead to; none if it is impossible in this state.
func after(s state, r Request, outcome Outcome) []any {
	if outcome == Refused {
		if s.exists == (r.Kind == Create) {
			return []any{s}
		}
		return nil
	}
	var out []any
	if next, allowed := s.take(r); allowed {
		out = append(out, next)
	}
	if outcome == Unknown {
		out = append(out, s)
	}
	return out
}

// take returns the state after a completed request, or false if that breaks a rule.
func (s state) take(r Request) (state, bool) {
	switch r.Kind {
	case Create:
		// Its own node may still list it: an object removed by force is recreated.
		allowed := !s.exists && (s.published == "" || s.published == r.Node)
		s.exists, s.node, s.uid = true, r.Node, r.UID
		return s, allowed
	case Publish:
		allowed := s.exists && s.node == r.Node && (s.published == "" || s.published == r.Node)
		s.published = r.Node
		return s, allowed
	case Withdraw:
		if s.published == r.Node {
			s.published = ""
		}
		return s, true
	case Remove:
		if s.removedTwice(r) {
			return s, true
		}
		allowed := s.exists && s.published == "" && s.mayBe(r.UID)
		return state{removed: cmp.Or(s.uid, r.UID)}, allowed
	}
	return s, false
}

// mayBe reports whether the object may have that UID: it has it, or one of the two is unknown.
func (s state) mayBe(uid string) bool { return uid == "" || s.uid == "" || uid == s.uid }

// removedTwice reports whether r removes the last finalizer of an object concurrently with the
// request that has removed it. The API server answers both with success (k8s.io/apiserver
// v0.36.3, pkg/registry/generic/registry/store.go, deleteWithoutFinalizers).
func (s state) removedTwice(r Request) bool {
	return r.UID != "" && r.UID == s.removed && r.UID != s.uid
}
