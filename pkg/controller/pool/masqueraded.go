package pool

import (
	"strings"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
)

// ReasonOutsideNative says that a range of the pool lies outside Cilium's native-routing CIDR.
const ReasonOutsideNative = "OutsideNativeRouting"

// masqueradedIs reports the ranges of a pool that agents masquerade, if there are any.
func masqueradedIs(pool *crd.Pool, cilium *ciliumconfig.Config) *condition {
	if pool == nil {
		return nil
	}
	var parts []string
	for _, m := range cilium.Masqueraded(pool) {
		parts = append(parts, m.String())
	}
	if len(parts) == 0 {
		return nil
	}
	return isTrue(ReasonOutsideNative, strings.Join(parts, "; ")+". "+ciliumconfig.MasqueradedFix)
}
