package world

import (
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// brief describes the changes of a version in one line.
func brief(v Version) string {
	s := fmt.Sprintf("%s %s @%d", v.Kind, v.Key, v.Version)
	if v.New == nil {
		return s + " deleted"
	}
	old := v.Old
	if old == nil {
		old = v.Kind.empty()
	}
	changes, err := client.MergeFrom(old).Data(v.New)
	if err != nil {
		panic(err)
	}
	return s + " " + string(changes)
}
