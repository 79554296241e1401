package pool

import (
	"strings"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
)

// Reasons of the condition Masqueraded, beside ReasonInvalid.
const (
	// ReasonOutsideNative: a range of the pool lies outside Cilium's native-routing CIDR.
	ReasonOutsideNative  = "OutsideNativeRouting"
	ReasonNotMasqueraded = "NotMasqueraded"
	ReasonNotRead        = "CiliumConfigNotRead"
)

// masqueradedIs reports the ranges of a pool that agents masquerade.
func masqueradedIs(pool *crd.Pool, cilium *ciliumconfig.Config) *condition {
	switch {
	case unreadable(pool):
		return noSpec()
	case cilium == nil || !cilium.Known:
		return isUnknown(ReasonNotRead, "Cilium's configuration has not been read")
	}
	var parts []string
	for _, m := range cilium.Masqueraded(pool) {
		parts = append(parts, m.String())
	}
	if len(parts) == 0 {
		return isFalse(ReasonNotMasqueraded, "agents masquerade no connection to pods of this pool")
	}
	return isTrue(ReasonOutsideNative, strings.Join(parts, "; ")+". "+ciliumconfig.MasqueradedFix)
}
