package common

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Shared are the metrics of more than one controller; docs/reference/metrics.md lists all.
type Shared struct {
	Writes, Claims, Releases *prometheus.CounterVec
}

// Results of a claim.
const (
	ClaimOK        = "ok"
	ClaimTaken     = "taken" // another writer claimed it first
	ClaimExhausted = "exhausted"
	ClaimError     = "error"
)

// NewShared registers the shared metrics with r.
func NewShared(r prometheus.Registerer) (*Shared, error) {
	m := &Shared{
		Writes:   Counter("api_writes_total", "Writes sent to the API server, by kind of object, purpose and result: ok, conflict, error.", "kind", "write", "result"),
		Claims:   Counter("claims_total", "Claims of blocks, by result: ok, taken, exhausted, error.", "pool", "family", "result"),
		Releases: Counter("releases_total", "Blocks deleted after they cooled down, by the reason of the cooldown: Returned, NodeGone.", "pool", "family", "reason"),
	}
	return m, Register(r, m.Writes, m.Claims, m.Releases)
}

// Register registers collectors with r.
func Register(r prometheus.Registerer, collectors ...prometheus.Collector) error {
	for _, c := range collectors {
		if err := r.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// namespace begins the names of all metrics of the operator.
const namespace = "cilium_pool"

// Counter is a counter of the operator.
func Counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
}

// Gauge is a gauge of the operator.
func Gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels)
}

// Claimed counts a claim and its result.
func (m *Shared) Claimed(pool string, f ipalloc.Family, result string) {
	m.Claims.WithLabelValues(pool, f.String(), result).Inc()
}

// Released counts a released block.
func (m *Shared) Released(b crd.Block) {
	m.Releases.WithLabelValues(b.Pool, ipalloc.FamilyOf(b.CIDR.Addr()).String(), string(b.Reason)).Inc()
}

// ForgetPool drops the series of a pool that is gone.
func (m *Shared) ForgetPool(pool string) {
	of := prometheus.Labels{"pool": pool}
	m.Claims.DeletePartialMatch(of)
	m.Releases.DeletePartialMatch(of)
}
