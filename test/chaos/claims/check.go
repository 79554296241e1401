package claims

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// perBlock limits the time to search for an order of one block's requests.
const perBlock = 5 * time.Minute

// provenWith limits the history to which Prove adds: proving that there is no order takes an
// exhaustive search.
const provenWith = 200

// ErrNoOrder means that a history is impossible under the rules.
var ErrNoOrder = errors.New("no order of the requests keeps the rules")

// Check searches an order of every block's requests. If a block has no valid order, or none
// was found in time, Check fails and draws that block's history into the file called picture.
func (h *History) Check(picture string) error {
	for _, part := range byBlock(h.Operations) {
		result, info := porcupine.CheckOperationsVerbose(Model(), part, perBlock)
		if result == porcupine.Ok {
			continue
		}
		block := part[0].Input.(Request).Block
		err := fmt.Errorf("block %s: %w: see %s", block, ErrNoOrder, picture)
		if result == porcupine.Unknown {
			err = fmt.Errorf("block %s: no order of %d requests found within %s: see %s", block, len(part), perBlock, picture)
		}
		return errors.Join(err, porcupine.VisualizePath(Model(), info, picture))
	}
	return nil
}

// Blocks returns the number of blocks in the history.
func (h *History) Blocks() int { return len(byBlock(h.Operations)) }

// Prove checks that the search would detect a wrong request. To the longest history of a
// block, or to its beginning, it adds each request that breaks a rule while the block was
// published. It fails if an order is still found.
func (h *History) Prove() error {
	var part []porcupine.Operation
	for _, p := range byBlock(h.Operations) {
		p = beginning(p, provenWith)
		if len(p) > len(part) && published(p) >= 0 && answered(p) {
			part = p
		}
	}
	if part == nil {
		return errors.New("no block was ever published: nothing to prove the check by")
	}
	during := part[published(part)]
	for _, wrong := range Wrong(during.Input.(Request).Block) {
		op := during
		op.Input, op.Output = wrong, Done
		tampered := append([]porcupine.Operation{op}, part...)
		switch porcupine.CheckOperationsTimeout(Model(), tampered, perBlock) {
		case porcupine.Illegal:
		case porcupine.Unknown:
			return fmt.Errorf("within %s it was not found whether %d requests hide a wrong one: %s of %s during its publication",
				perBlock, len(part), wrong.Kind, wrong.Block)
		default:
			return fmt.Errorf("a wrong request was not found: %s of %s during its publication", wrong.Kind, wrong.Block)
		}
	}
	return nil
}

// beginning returns the longest prefix of a history with no more than most requests, in which
// all requests end before any later one begins.
func beginning(history []porcupine.Operation, most int) []porcupine.Operation {
	if len(history) <= most {
		return history
	}
	sorted := slices.SortedStableFunc(slices.Values(history), func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	end, answered := 0, int64(math.MinInt64)
	for i, op := range sorted[:most+1] {
		if op.Call > answered {
			end = i
		}
		answered = max(answered, op.Return)
	}
	return sorted[:end]
}

// Wrong returns requests that break a rule while a block is published.
func Wrong(block netip.Prefix) []Request {
	const stranger = "a node that never claimed it"
	return []Request{
		{Kind: Create, Block: block, Node: stranger, By: stranger},
		{Kind: Publish, Block: block, Node: stranger, By: stranger},
		{Kind: Remove, Block: block, By: stranger},
	}
}

// answered reports whether all requests were answered.
func answered(part []porcupine.Operation) bool {
	return !slices.ContainsFunc(part, func(op porcupine.Operation) bool { return op.Output == Unknown })
}

// published returns the index of the last successful Publish, or -1.
func published(part []porcupine.Operation) int {
	for i := len(part) - 1; i >= 0; i-- {
		if part[i].Input.(Request).Kind == Publish && part[i].Output == Done {
			return i
		}
	}
	return -1
}
