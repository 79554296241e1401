package audit

import (
	"strings"
	"testing"
)

// Every reason is in the catalogue once and completely, and one of the tables above finds it.
func TestCatalogue(t *testing.T) {
	found := map[Reason]bool{}
	for _, tests := range allChecks() {
		for _, test := range tests {
			for _, want := range test.want {
				reason, _, _ := strings.Cut(want, " ")
				found[Reason(reason)] = true
			}
		}
	}
	for _, tests := range []map[string]wholeTest{checksMultiPool(), checksKubernetes()} {
		for _, test := range tests {
			for _, want := range test.want {
				reason, _, _ := strings.Cut(want, " ")
				found[Reason(reason)] = true
			}
		}
	}
	seen := map[Reason]bool{}
	for _, e := range Catalogue() {
		if seen[e.Reason] || e.Meaning == "" || e.Fix == "" {
			t.Errorf("%s is twice in the catalogue, or says too little", e.Reason)
		}
		if !found[e.Reason] {
			t.Errorf("no table has %s", e.Reason)
		}
		seen[e.Reason] = true
	}
	for reason := range found {
		if !seen[reason] {
			t.Errorf("%s is not in the catalogue", reason)
		}
	}
}
