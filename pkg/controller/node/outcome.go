package node

import (
	"slices"

	"github.com/cilium-pool/cilium-pool-operator/pkg/expand"
)

// outcome is what the writes of a decision did not bring.
type outcome struct {
	expand.Shortfall
	// err is why addresses were not written.
	err error
	// marks: addresses were to be marked for release.
	marks bool
}

// fails records why addresses that the plan publishes or claims do not reach the node.
func (out *outcome) fails(err error, published, claimed int) {
	out.err = err
	out.Unwritten += published + claimed
	out.Unpublished += published
}

// exhausts records that no pool has a free block for addresses, and why a write of the node has failed for long, if one has.
func (out *outcome) exhausts(addresses int, failed error) {
	out.Exhausted = addresses
	if out.err == nil {
		out.err = failed
	}
}

// fellShort reports whether addresses did not reach the node.
func (out *outcome) fellShort() bool { return out.Exhausted+out.Unwritten > 0 }

// lacksReplacement reports whether a drain cannot begin, as the claims that would replace its block fell
// short.
func lacksReplacement(decisions []decision, outcomes []outcome) bool {
	for i := range decisions {
		waits := slices.ContainsFunc(decisions[i].plan.Obstacles, func(w expand.Obstacle) bool { return w.Reason == expand.WaitReplacement })
		if waits && outcomes[i].fellShort() {
			return true
		}
	}
	return false
}
