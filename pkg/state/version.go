package state

import (
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// reached reports whether resourceVersion seen is at or past want. Both must belong to the
// same resource. Incomparable versions count as reached: the fences in the API server hold
// regardless, at the cost of wasted work.
func reached(seen, want string) bool {
	if want == "" || seen == want {
		return true
	}
	if seen == "" {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(seen, want)
	return err != nil || order >= 0
}
