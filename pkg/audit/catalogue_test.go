package audit

import (
	"strings"
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
)

// No advice is in vain: Cilium may run in any namespace, a Node in kubernetes mode keeps its block
// without a CiliumNode too, and only agents in crd mode leave a block when they restart.
func TestAdvice(t *testing.T) {
	for _, e := range Catalogue() {
		for _, mode := range e.Modes() {
			fix := e.FixIn(mode)
			if strings.Contains(fix, "-n kube-system") ||
				mode == ciliumnode.Kubernetes && strings.Contains(fix, " ciliumnode ") ||
				mode != ciliumnode.CRD && strings.Contains(fix, "drain its block, then restart the agent") {
				t.Errorf("%s in %s mode: %s", e.Reason, mode, fix)
			}
		}
		if e.Reason == NodeShortOfAddresses && !strings.Contains(e.Fix, "end the pause") {
			t.Errorf("%s: %s", e.Reason, e.Fix)
		}
	}
}

// Every reason is in the catalogue once and completely, and one of the tables above finds it.
func TestCatalogue(t *testing.T) {
	found := map[Reason]bool{}
	finds := func(want string) {
		for finding := range strings.SplitSeq(want, ", ") {
			reason, _, _ := strings.Cut(finding, " ")
			found[Reason(reason)] = true
		}
	}
	for _, tests := range allChecks() {
		for _, test := range tests {
			finds(test.want)
		}
	}
	for _, tests := range []map[string]wholeTest{checksMultiPool(), checksDelegated(), checksKubernetes()} {
		for _, test := range tests {
			finds(test.want)
		}
	}
	delete(found, "") // of healthy worlds
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
