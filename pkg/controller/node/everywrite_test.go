package node

import (
	"fmt"
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/test/fakeapi"
	"github.com/cilium-pool/cilium-pool-operator/test/fixtures"
)

// settled checks that no write is left, by this process or a new one.
func (b *bed) settled() {
	b.T.Helper()
	for _, when := range []string{"settled", "after a restart"} {
		if calls, err := b.reconcile(); err != nil || len(calls) > 0 {
			b.T.Errorf("%s: calls %v, %v; want none", when, calls, err)
		}
		b.restart()
	}
}

// survivesEveryWrite makes each of a number of writes of a joining node fail, or lose its response.
// The rules must hold at that point, and atEnd at the end.
func survivesEveryWrite(t *testing.T, mode ciliumnode.Mode, writes int, atEnd func(*bed)) {
	t.Helper()
	for _, what := range []fakeapi.Fate{fakeapi.Refused, fakeapi.Unheard} {
		for _, restart := range []bool{false, true} {
			for fails := range writes {
				t.Run(fmt.Sprintf("write %d, fate %d, restart %t", fails, what, restart), func(t *testing.T) {
					b := newBedIn(t, mode, fixtures.Node(), fixtures.PodIPPool("p", 1, "10.0.0.0/28"))
					n := 0
					b.Fate = func(string) fakeapi.Fate {
						if n++; n == fails+1 {
							return what
						}
						return fakeapi.Done
					}
					if _, err := b.reconcile(); err == nil {
						t.Fatal("the failure went unnoticed")
					}
					b.Check("after the failure")
					if restart {
						b.restart()
					}
					b.settle()
					b.Check("at the end")
					atEnd(b)
				})
			}
		}
	}
}
