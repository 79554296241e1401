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
		ready:     common.Gauge("pool_ready", "1 while the condition Ready of a pool is True, or the pool is being deleted; else 0.", "pool"),
		room:      common.Gauge("pool_room_nodes", "How many more nodes fit into a pool.", "pool", "family"),
		phasing:   common.Gauge("pool_phasing_out", "1 while a pool assigns no new blocks: it is being deleted, or all its CIDRs are cordoned or drain. No series: it does.", "pool", "family"),
	}
	for _, g := range m.all() {
		if err := r.Register(g); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *Metrics) all() []*prometheus.GaugeVec {
	return []*prometheus.GaugeVec{m.blocks, m.addresses, m.nodes, m.ready, m.room, m.phasing}
}

// phasesOut records whether a family of a pool assigns no new blocks.
func (m *Metrics) phasesOut(pool string, f ipalloc.Family, does bool) {
	if !does {
		m.phasing.DeleteLabelValues(pool, f.String())
		return
	}
	m.phasing.WithLabelValues(pool, f.String()).Set(1)
}

// forget drops the series of a pool that is gone.
func (m *Metrics) forget(pool string) {
	for _, g := range m.all() {
		g.DeletePartialMatch(prometheus.Labels{"pool": pool})
	}
}

// setRoom writes the smallest room of the pool's families into a status, and into metrics.
func (m *Metrics) setRoom(obj *v1alpha1.PodIPPool, pool *crd.Pool, u poolUsage) {
	obj.Status.RoomForNodes = nil
	for _, fu := range u.Families {
		room := state.Room(pool, fu.Family, fu.Status.Blocks.Free)
		m.room.WithLabelValues(obj.Name, fu.Family.String()).Set(float64(room))
		if s := &obj.Status; s.RoomForNodes == nil || room < *s.RoomForNodes {
			s.RoomForNodes = &room
		}
	}
}
