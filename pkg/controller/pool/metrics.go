package pool

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/common"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/state"
)

// Metrics are the metrics of pools.
type Metrics struct {
	blocks    *prometheus.GaugeVec
	addresses *prometheus.GaugeVec
	nodes     *prometheus.GaugeVec
	selected  *prometheus.GaugeVec
	ready     *prometheus.GaugeVec
	room      *prometheus.GaugeVec
	phasing   *prometheus.GaugeVec
}

// NewMetrics registers the metrics with r.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		blocks:    common.Gauge("pool_blocks", "Blocks of a pool, by state: assignable, in_service, draining, cooling_down, free.", "pool", "family", "state"),
		addresses: common.Gauge("pool_addresses", "Addresses of a pool that pods can have, by the state of their block: assignable, in_service, draining, cooling_down, free; and used, of the held ones.", "pool", "family", "state"),
		nodes:     common.Gauge("pool_nodes", "Nodes that hold a block of a pool.", "pool"),
		selected:  common.Gauge("pool_selected_nodes", "Nodes that the selector of a pool picks.", "pool"),
		ready:     common.Gauge("pool_ready", "1 while the condition Ready of a pool is True, or the pool is being deleted; else 0.", "pool"),
		room:      common.Gauge("pool_room_nodes", "How many more nodes fit into a pool.", "pool", "family"),
		phasing:   common.Gauge("pool_phasing_out", "1 while a pool assigns no new blocks: it is being deleted, all its CIDRs are cordoned or drain, or another pool assigns their addresses. No series: it does.", "pool", "family"),
	}
	for _, g := range m.all() {
		if err := r.Register(g); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *Metrics) all() []*prometheus.GaugeVec {
	return []*prometheus.GaugeVec{m.blocks, m.addresses, m.nodes, m.selected, m.ready, m.room, m.phasing}
}

// phasesOut records whether a family of a pool assigns no new blocks.
func (m *Metrics) phasesOut(pool string, f ipalloc.Family, does bool) {
	if !does {
		m.phasing.DeleteLabelValues(pool, f.String())
		return
	}
	m.phasing.WithLabelValues(pool, f.String()).Set(1)
}

// Forget drops the series of a pool that is gone.
func (m *Metrics) Forget(pool string) {
	for _, g := range m.all() {
		g.DeletePartialMatch(prometheus.Labels{"pool": pool})
	}
}

// Show sets the series of a pool, except its room; spec is nil for one that was never valid.
func (m *Metrics) Show(pool string, spec *crd.Pool, ready bool, u *state.PoolUsage) {
	m.ready.WithLabelValues(pool).Set(common.OneIf(ready))
	m.selected.WithLabelValues(pool).Set(float64(u.Selected))
	m.nodes.WithLabelValues(pool).Set(float64(u.Nodes))
	for _, f := range u.Families {
		m.phasesOut(pool, f.Family, f.PhasesOut || isClosed(spec, f.Family))
		for state, n := range states(f.Status.Blocks) {
			m.blocks.WithLabelValues(pool, f.Family.String(), state).Set(float64(n))
		}
		for state, n := range states(f.Status.Addresses.StateCounts) {
			m.addresses.WithLabelValues(pool, f.Family.String(), state).Set(float64(n))
		}
		if used := f.Status.Addresses.Used; used != nil {
			m.addresses.WithLabelValues(pool, f.Family.String(), "used").Set(float64(*used))
		}
	}
}

func states(c v1alpha1.StateCounts) map[string]int64 {
	return map[string]int64{"assignable": c.Assignable, "in_service": c.InService, "draining": c.Draining,
		"cooling_down": c.CoolingDown, "free": c.Free}
}

// ShowRoom sets the room of each family of a pool, and returns the smallest; nil: it has no family.
func (m *Metrics) ShowRoom(pool *crd.Pool, families []state.FamilyUsage) (least *int64) {
	for i := range families {
		f := &families[i]
		room := state.NodesThatFit(pool, f.Family, f.Status.Blocks.Free)
		m.room.WithLabelValues(pool.Name, f.Family.String()).Set(float64(room))
		if least == nil || room < *least {
			least = &room
		}
	}
	return least
}
