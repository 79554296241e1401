package claims

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/anishathalye/porcupine"
)

var block = netip.MustParsePrefix("100.64.0.0/28")

// at returns a request with the times of its arrival and of its response.
func at(call, answer int64, r Request, outcome Outcome) porcupine.Operation {
	r.Block = block
	return porcupine.Operation{Input: r, Output: outcome, Call: call, Return: answer}
}

func create(node string) Request   { return Request{Kind: Create, Node: node, UID: "uid-" + node} }
func publish(node string) Request  { return Request{Kind: Publish, Node: node} }
func withdraw(node string) Request { return Request{Kind: Withdraw, Node: node} }
func remove(node string) Request   { return Request{Kind: Remove, UID: "uid-" + node} }

func TestModel(t *testing.T) {
	// life is the whole life of a block on n1.
	life := []porcupine.Operation{
		at(10, 11, create("n1"), Done), at(20, 21, publish("n1"), Done),
		at(30, 31, withdraw("n1"), Done), at(40, 41, remove("n1"), Done),
	}
	with := func(more ...porcupine.Operation) []porcupine.Operation { return append(more, life...) }
	for name, c := range map[string]struct {
		history []porcupine.Operation
		legal   bool
	}{
		"a life":                         {life, true},
		"a life, and another's after it": {with(at(42, 43, create("n2"), Done), at(44, 45, publish("n2"), Done)), true},
		"the other's create overlaps the removal":         {with(at(38, 45, create("n2"), Done)), true},
		"the other's create is refused":                   {with(at(15, 16, create("n2"), Refused)), true},
		"a create is refused while there is nothing":      {with(at(5, 6, create("n2"), Refused)), false},
		"a removal finds nothing afterwards":              {with(at(50, 51, remove("n1"), Refused)), true},
		"a removal finds nothing while there is a block":  {with(at(25, 26, remove("n1"), Refused)), false},
		"two nodes create it":                             {with(at(15, 16, create("n2"), Done)), false},
		"two nodes create it at once":                     {with(at(10, 11, create("n2"), Done)), false},
		"published before it is claimed":                  {with(at(5, 6, publish("n1"), Done)), false},
		"published by a stranger":                         {with(at(25, 26, publish("n2"), Done)), false},
		"published by a stranger while n1 withdraws":      {with(at(30, 31, publish("n2"), Done)), false},
		"published after it was given up":                 {with(at(50, 51, publish("n1"), Done)), false},
		"published late, while it is removed":             {with(at(35, 45, publish("n1"), Done)), false},
		"published again before it is given up":           {with(at(32, 33, publish("n1"), Done)), false},
		"published and withdrawn again":                   {with(at(32, 33, publish("n1"), Done), at(34, 35, withdraw("n1"), Done)), true},
		"removed while published":                         {with(at(25, 26, remove("n1"), Done)), false},
		"removed by another UID":                          {[]porcupine.Operation{life[0], at(15, 16, remove("n2"), Done)}, false},
		"two take its last finalizer at once":             {with(at(40, 42, remove("n1"), Done)), true},
		"the second is answered once it is another's":     {with(at(40, 50, remove("n1"), Done), at(42, 43, create("n2"), Done)), true},
		"another UID is removed when it is gone":          {with(at(42, 43, remove("n2"), Done)), false},
		"a publication of unknown outcome, after its end": {with(at(25, 60, publish("n1"), Unknown)), true},
		"a withdrawal of unknown outcome explains a removal": {
			[]porcupine.Operation{life[0], life[1], at(30, 35, withdraw("n1"), Unknown), life[3]}, true,
		},
		"a withdrawal of unknown outcome that comes too late": {
			[]porcupine.Operation{life[0], life[1], at(42, 45, withdraw("n1"), Unknown), life[3]}, false,
		},
		"another node's withdrawal explains nothing": {
			[]porcupine.Operation{life[0], life[1], at(30, 35, withdraw("n2"), Done), life[3]}, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := porcupine.CheckOperations(Model(), c.history); got != c.legal {
				t.Errorf("legal: %v, want %v", got, c.legal)
			}
		})
	}
}

func TestBlocksAreJudgedApart(t *testing.T) {
	other := netip.MustParsePrefix("100.64.0.16/28")
	mine, theirs := at(1, 2, create("n1"), Done), at(1, 2, create("n2"), Done)
	r := theirs.Input.(Request)
	r.Block = other
	theirs.Input = r
	if !porcupine.CheckOperations(Model(), []porcupine.Operation{mine, theirs}) {
		t.Error("two nodes may claim two blocks at once")
	}
}

// beginning cuts a history only where no request is in flight.
func TestBeginning(t *testing.T) {
	history := []porcupine.Operation{
		at(5, 6, publish("n1"), Done), at(1, 2, create("n1"), Done), at(3, 9, withdraw("n2"), Done),
		at(10, 11, withdraw("n1"), Done), at(12, 13, remove("n1"), Done),
	}
	for most, want := range map[int]int{0: 0, 1: 1, 2: 1, 3: 3, 4: 4, 5: 5, 9: 5} {
		got := beginning(history, most)
		if len(got) != want {
			t.Errorf("of %d at most: %d of the history, not %d: %v", most, len(got), want, got)
		}
		for _, op := range history {
			if last := len(got) - 1; last >= 0 && last < len(history)-1 && slices.IndexFunc(got, func(o porcupine.Operation) bool { return o.Call == op.Call }) < 0 && op.Call <= got[last].Return {
				t.Errorf("of %d at most: %v is left out, which began before the end", most, op)
			}
		}
	}
}

// Prove finds a wrong request at once in a history of thousands, of which many overlap.
func TestProveOfALongHistory(t *testing.T) {
	var h History
	for i := range int64(1000) {
		n := 100 * i
		h.Operations = append(h.Operations, at(n, n+1, create("n1"), Done), at(n+2, n+3, publish("n1"), Done),
			at(n+4, n+40, withdraw("n2"), Done), at(n+5, n+41, withdraw("n3"), Done), at(n+6, n+42, withdraw("n4"), Done), at(n+7, n+43, publish("n1"), Done),
			at(n+50, n+51, withdraw("n1"), Done), at(n+52, n+53, remove("n1"), Done))
	}
	if err := h.Prove(); err != nil {
		t.Error(err)
	}
}
