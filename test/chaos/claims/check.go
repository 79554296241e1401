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

// perBlock bounds the search for an order of one block's requests.
const perBlock = 5 * time.Minute

// provenWith bounds the history that Prove adds to: that there is no order takes a search of
// all of it.
const provenWith = 200

// ErrNoOrder says that a history cannot have come about under the rules.
var ErrNoOrder = errors.New("no order of the requests keeps the rules")

// Check looks for an order of every block's requests. Where there is none for
// one of them, or none was found in time, it fails, and draws that block's
// history into the file called picture.
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

// Blocks is how many blocks there are in the history.
func (h *History) Blocks() int { return len(byBlock(h.Operations)) }

// Prove checks that the search would have seen a wrong request: it adds, to the
// longest history of a block, or to how it begins, each of those that break a rule while
// the block was published, and fails where an order is found still.
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

// beginning is the longest part of a history that has most requests at most, and all that
// began by its end.
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

// Wrong are requests that break a rule while a block is being published.
func Wrong(block netip.Prefix) []Request {
	const stranger = "a node that never claimed it"
	return []Request{
		{Kind: Create, Block: block, Node: stranger, By: stranger},
		{Kind: Publish, Block: block, Node: stranger, By: stranger},
		{Kind: Remove, Block: block, By: stranger},
	}
}

// answered says that all requests were.
func answered(part []porcupine.Operation) bool {
	return !slices.ContainsFunc(part, func(op porcupine.Operation) bool { return op.Output == Unknown })
}

// published is the last request by which a block was published for good, or -1.
func published(part []porcupine.Operation) int {
	for i := len(part) - 1; i >= 0; i-- {
		if part[i].Input.(Request).Kind == Publish && part[i].Output == Done {
			return i
		}
	}
	return -1
}
