package claims

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
)

// InFlight is how long a write may still take effect after the API server timed out or died:
// etcd has already received it, and responds within 7 s (etcd v3.6, server/config,
// ReqTimeout).
const InFlight = 10 * time.Second

// History is the history of all blocks, in porcupine's form.
type History struct {
	Operations []porcupine.Operation
	// Requests counts requests by kind and outcome, as "create done".
	Requests map[string]int
}

// Sighting is an observed creation or deletion of a block object.
type Sighting struct {
	Block netip.Prefix
	Node  string
	UID   string
	Gone  bool
	// Created is the object's creationTimestamp, in whole seconds.
	Created time.Time
	// Seen is when it was observed, which is after it happened.
	Seen time.Time
}

// Read reads an audit log written under AuditPolicy. deaths are the times at which API servers
// were known to be dead, sorted: a request that an API server had not answered can take effect
// no later than inFlight after its death, and so can one that it answered with a server error.
// sightings are all observed creations and deletions: they decide the outcome of requests that
// were not answered.
func Read(log io.Reader, deaths []time.Time, inFlight time.Duration, sightings []Sighting) (*History, error) {
	calls, err := readCalls(log)
	if err != nil {
		return nil, err
	}
	r := &reader{
		deaths: deaths, inFlight: inFlight, listed: map[string]map[netip.Prefix]bool{}, blocks: map[netip.Prefix]bool{},
		explained: map[string]bool{}, unanswered: map[netip.Prefix][]*call{},
		history: History{Requests: map[string]int{}},
	}
	r.findBlocks(calls, sightings)
	for _, c := range calls {
		switch {
		case c.Object.Subresource != "":
		case c.Object.Resource == "podipblocks":
			r.block(c)
		case tells(c):
			r.ciliumNode(c)
		}
	}
	return &r.history, r.unexplained(sightings)
}

type reader struct {
	deaths   []time.Time
	inFlight time.Duration
	history  History
	// listed are the blocks that a node's CiliumNode has ever held.
	listed map[string]map[netip.Prefix]bool
	// blocks are all blocks that have ever existed.
	blocks map[netip.Prefix]bool
	// explained are the creations and deletions that were answered, by UID.
	explained map[string]bool
	// unanswered are the writes of a block that may have deleted it; blankCreates are
	// creations of which not even the name is known.
	unanswered   map[netip.Prefix][]*call
	blankCreates int
	clients      []string
}

// blockObject is the part of a block's body that is read.
type blockObject struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name       string     `json:"name"`
		UID        string     `json:"uid"`
		Finalizers []string   `json:"finalizers"`
		Deletion   *time.Time `json:"deletionTimestamp"`
	} `json:"metadata"`
	Spec struct {
		CIDR     string `json:"cidr"`
		NodeName string `json:"nodeName"`
	} `json:"spec"`
	Preconditions struct { // of a deletion's options
		UID string `json:"uid"`
	} `json:"preconditions"`
	Details struct { // of a Status
		UID string `json:"uid"`
	} `json:"details"`
}

// ciliumNode is the object that assigns blocks to an agent: a CiliumNode or, in
// kubernetes mode, the Node.
type ciliumNode struct {
	Metadata struct {
		Name        string             `json:"name"`
		Annotations map[string]*string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		IPAM struct {
			Pool     map[string]json.RawMessage `json:"pool"`
			PodCIDRs *[]string                  `json:"podCIDRs"`
			Pools    struct {
				Allocated *[]struct {
					CIDRs []string `json:"cidrs"`
				} `json:"allocated"`
			} `json:"pools"`
		} `json:"ipam"`
	} `json:"spec"`
}

// podCIDR is the annotation by which a Node assigns a block to its agent (Cilium v1.20.1,
// pkg/annotation/k8s.go).
const podCIDR = "network.cilium.io/ipv4-pod-cidr"

// tells reports whether a request is about an object that assigns blocks to an agent.
func tells(c *call) bool {
	return c.Object.Subresource == "" && (c.Object.Resource == "ciliumnodes" || c.Object.Resource == "nodes")
}

// lists returns the CIDRs that a body lists; false if it has no such list.
func (n *ciliumNode) lists() (cidrs []string, is bool) {
	if listed := n.Spec.IPAM.PodCIDRs; listed != nil {
		cidrs, is = append(cidrs, *listed...), true
	}
	if allocated := n.Spec.IPAM.Pools.Allocated; allocated != nil {
		is = true
		for _, entry := range *allocated {
			cidrs = append(cidrs, entry.CIDRs...)
		}
	}
	if assigned, is := n.Metadata.Annotations[podCIDR]; is && assigned != nil {
		return append(cidrs, *assigned), true
	}
	return cidrs, is
}

// findBlocks collects all blocks that have ever existed, and which CiliumNodes have ever
// listed which of them.
func (r *reader) findBlocks(calls []*call, sightings []Sighting) {
	for _, s := range sightings {
		r.blocks[s.Block] = true
	}
	for _, c := range calls {
		if cidr, err := blockOf(c); err == nil && c.Object.Resource == "podipblocks" {
			r.blocks[cidr] = true
		}
	}
	for _, c := range calls {
		if !tells(c) {
			continue
		}
		name, body := nodeBody(c)
		if r.listed[name] == nil {
			r.listed[name] = map[netip.Prefix]bool{}
		}
		maps.Copy(r.listed[name], r.held(body))
	}
}

// block processes a write of a PodIPBlock.
func (r *reader) block(c *call) {
	var request, response blockObject
	_ = json.Unmarshal(c.Request, &request) // an unreadable body stays empty
	_ = json.Unmarshal(c.Response, &response)
	cidr, err := blockOf(c)
	switch {
	case err != nil:
		r.blankCreates++
	case c.Verb == "create":
		outcome := c.outcome("AlreadyExists")
		if outcome == Unknown {
			r.blankCreates++
			return
		}
		r.explain(Create, response.Metadata.UID, outcome)
		r.add(c, Request{Kind: Create, Block: cidr, Node: request.Spec.NodeName, UID: response.Metadata.UID}, outcome)
	default:
		outcome := c.outcome("NotFound")
		if outcome == Unknown {
			r.unanswered[cidr] = append(r.unanswered[cidr], c)
			return
		}
		if outcome == Done && !removed(c, response) {
			return // it asks for a drain, or changes metadata
		}
		uid := cmp.Or(request.Preconditions.UID, response.Details.UID, response.Metadata.UID)
		r.explain(Remove, uid, outcome)
		r.add(c, Request{Kind: Remove, Block: cidr, UID: uid}, outcome)
	}
}

func (r *reader) explain(k Kind, uid string, outcome Outcome) {
	if outcome == Done {
		r.explained[string(k)+uid] = true
	}
}

// unexplained adds creations and deletions that were observed but whose requests were not
// answered. It fails if there was no such request.
func (r *reader) unexplained(sightings []Sighting) error {
	for _, s := range sightings {
		request := Request{Kind: Create, Block: s.Block, Node: s.Node, UID: s.UID, By: "unanswered"}
		begin := s.Created
		if s.Gone {
			request.Kind = Remove
		}
		if r.explained[string(request.Kind)+s.UID] {
			continue
		}
		if s.Gone {
			i := slices.IndexFunc(r.unanswered[s.Block], func(c *call) bool { return c.Received.After(s.Created) && c.Received.Before(s.Seen) })
			if i < 0 {
				return fmt.Errorf("block %s of %s (UID %s) ended by no request that was logged", s.Block, s.Node, s.UID)
			}
			begin = r.unanswered[s.Block][i].Received
		} else if r.blankCreates--; r.blankCreates < 0 {
			return fmt.Errorf("block %s of %s (UID %s) was made by no request that was logged", s.Block, s.Node, s.UID)
		}
		r.record(request, Done, begin, s.Seen)
	}
	return nil
}

// removed reports whether a completed write deleted the object: the response to a deletion is
// a Status or the object, which stays while it has finalizers. Removing the last finalizer of
// an object that is being deleted deletes it.
func removed(c *call, answer blockObject) bool {
	if c.Verb == "delete" {
		return answer.Kind == "Status" || len(answer.Metadata.Finalizers) == 0
	}
	return answer.Metadata.Deletion != nil && len(answer.Metadata.Finalizers) == 0
}

// ciliumNode processes a write of a CiliumNode, or of a Node in its place: it lists the blocks
// that the node publishes.
func (r *reader) ciliumNode(c *call) {
	outcome := c.outcome("")
	name, body := nodeBody(c)
	held := r.held(body)
	_, all := body.lists()
	switch {
	case c.Verb == "delete":
		held = nil
	case c.Request == nil: // logged on arrival only: its content is unknown
		for _, b := range sorted(r.listed[name]) {
			r.add(c, Request{Kind: Publish, Block: b, Node: name}, outcome)
			r.add(c, Request{Kind: Withdraw, Block: b, Node: name}, outcome)
		}
		return
	case c.Verb == "patch" && !all:
		for _, b := range sorted(held) {
			r.add(c, Request{Kind: Publish, Block: b, Node: name}, outcome)
		}
		return // nothing else about it changes
	}
	for _, b := range sorted(r.listed[name]) {
		kind := Withdraw
		if held[b] {
			kind = Publish
		}
		r.add(c, Request{Kind: kind, Block: b, Node: name}, outcome)
	}
}

func nodeBody(c *call) (name string, body ciliumNode) {
	if c.Verb != "delete" {
		_ = json.Unmarshal(c.Request, &body) // an unreadable body stays empty
	}
	name = c.Object.Name
	if name == "" {
		name = body.Metadata.Name
	}
	if c.Object.Resource != "nodes" {
		body.Metadata.Annotations = nil // agents copy annotations of Nodes
	}
	return name, body
}

// held returns the blocks that a body lists, or of which it puts addresses into the pool.
func (r *reader) held(body ciliumNode) map[netip.Prefix]bool {
	out := map[netip.Prefix]bool{}
	listed, _ := body.lists()
	for _, s := range listed {
		if cidr, err := netip.ParsePrefix(s); err == nil && r.blocks[cidr] {
			out[cidr] = true
		}
	}
	for key, value := range body.Spec.IPAM.Pool {
		addr, err := netip.ParseAddr(key)
		if err != nil || string(value) == "null" {
			continue
		}
		for bits := range addr.BitLen() + 1 {
			if cidr, err := addr.Prefix(bits); err == nil && r.blocks[cidr] {
				out[cidr] = true
			}
		}
	}
	return out
}

func sorted(blocks map[netip.Prefix]bool) []netip.Prefix {
	return slices.SortedFunc(maps.Keys(blocks), netip.Prefix.Compare)
}

// blockOf reads which block a request is about, from the object's name or from the body.
func blockOf(c *call) (netip.Prefix, error) {
	if c.Object.Name == "" {
		var body blockObject
		if err := json.Unmarshal(c.Request, &body); err != nil {
			return netip.Prefix{}, fmt.Errorf("read block: %w", err)
		}
		return netip.ParsePrefix(body.Spec.CIDR)
	}
	return crd.ParseBlockName(c.Object.Name)
}

// add appends a request to the history. A request without a final response may take effect
// until some time later.
func (r *reader) add(c *call, request Request, outcome Outcome) {
	if outcome == "" {
		return
	}
	request.By = strings.TrimPrefix(c.User.Username, "system:serviceaccount:kube-system:")
	end := c.answered
	if outcome == Unknown {
		if end.IsZero() {
			end = r.deathAfter(c.Received)
		}
		end = end.Add(r.inFlight)
	}
	r.record(request, outcome, c.Received, end)
}

func (r *reader) record(request Request, outcome Outcome, begin, end time.Time) {
	r.history.Requests[fmt.Sprintf("%s %s", request.Kind, outcome)]++
	r.history.Operations = append(r.history.Operations, porcupine.Operation{
		ClientId: r.client(request.By), Input: request, Output: outcome,
		Call: begin.UnixNano(), Return: end.UnixNano(),
	})
}

// forever is longer than any test run.
const forever = 24 * time.Hour

func (r *reader) deathAfter(t time.Time) time.Time {
	for _, death := range r.deaths {
		if !death.Before(t) {
			return death
		}
	}
	return t.Add(forever)
}

func (r *reader) client(name string) int {
	if i := slices.Index(r.clients, name); i >= 0 {
		return i
	}
	r.clients = append(r.clients, name)
	return len(r.clients) - 1
}
