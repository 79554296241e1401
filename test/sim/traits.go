package main

import (
	"math/rand/v2"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/test/sim/world"
)

// traits are additional features of a world. A replay that names none has none.
type traits uint32

const (
	windows    traits = 1 << iota // pools have maintenance windows, and people change them
	pace                          // blocks that begin to drain per hour, and reclaims per minute, are limited
	pressure                      // full pools shorten idle times, and nodes are cordoned
	adoption                      // nodes begin in another IPAM, and move out of it, or back
	shadow                        // operators only look on, until they are upgraded
	pools                         // pods ask for several of Cilium's pools, which people make and delete
	labels                        // labels of Nodes choose among pools, come late, and change
	cluster                       // the cluster itself has addresses of the pools' ranges
	scheduling                    // a scheduler binds pods by the addresses that Nodes offer
	moves                         // with labels: nodes move off pools that no longer select them
	parking                       // blocks that drain are parked, in multi-pool mode
	families                      // a pool and agents lose IPv6, and get it again; in multi-pool mode they get it
	dual                          // with adoption, pools or scheduling: both families, not IPv4 alone
	restores                      // alone, or with pools: etcd is put back to an older copy
	allTraits         = 1<<iota - 1

	// drawnApart are traits that only few seeds have, or only seeds of one mode.
	drawnApart traits = pools | scheduling | parking | families | dual | restores

	// modelledTraits are the traits of worlds that are held to the model of the address
	// protocol. In other worlds addresses come and go in ways that the model lacks: nodes bring
	// them along, or they leave with a family that agents no longer run.
	modelledTraits = windows | pace | pressure | scheduling | labels | moves | cluster | shadow
)

func traitNames() []string {
	return []string{"windows", "pace", "pressure", "adoption", "shadow", "pools", "labels", "cluster", "scheduling", "moves", "parking", "families", "dual", "restores"}
}

func (t traits) has(one traits) bool { return t&one == one }

func (t traits) String() string { return world.FormatSet(t, traitNames()) }

func parseTraits(s string) (traits, error) { return world.ParseSet[traits](s, traitNames()) }

// apartOf returns the traits of a seed that are drawn separately, because only few seeds have
// them, or only one mode.
func apartOf(seed uint64) traits {
	r := rand.New(rand.NewPCG(seed, 10))
	var t traits
	for _, one := range world.Each(drawnApart) {
		often := one&(pools|parking|dual) != 0
		if n := r.IntN(4); n == 0 || often && n == 1 {
			t |= one
		}
	}
	return t
}

// traitsOf returns the traits of a seed except those drawn separately. Every other seed has
// none.
func traitsOf(seed uint64) traits {
	r := rand.New(rand.NewPCG(seed, 5))
	if r.IntN(2) == 0 {
		return 0
	}
	var t traits
	for _, one := range world.Each(allTraits &^ drawnApart) {
		if r.IntN(2) == 0 {
			t |= one
		}
	}
	return t
}

// adapt adds the traits of a seed to its world.
func (t traits) adapt(seed uint64, c *world.Config) {
	if t&(windows|pace|pressure) != 0 {
		t.maintain(seed, c)
	}
	if t.has(adoption) {
		beginElsewhere(seed, c, t)
	}
	c.Settings.Shadow = t.has(shadow)
	if t.has(pools) {
		askForPools(seed, c, t.has(dual))
	}
	if t.has(labels) || t.has(moves) {
		chooseByLabels(seed, c)
	}
	if t.has(moves) {
		moveOff(seed, c)
	}
	if t.has(cluster) {
		haveOfPools(c)
	}
	if t.has(scheduling) {
		schedule(seed, c, t.has(dual))
	}
	if t.has(families) {
		switchFamilies(c)
	}
	if t.has(restores) {
		restoreEtcd(c)
	}
	c.Settings.ParkBlocks, c.Upgraded.ParkBlocks = t.has(parking), t.has(parking)
	if t.has(parking) && rand.New(rand.NewPCG(seed, 22)).IntN(2) == 0 {
		compact(c)
	}
}

// in returns the traits of the set that a world in a mode can have; "": in any mode.
func (t traits) in(mode ciliumnode.Mode) traits {
	if mode != ciliumnode.CRD && mode != "" {
		t &^= adoption
	}
	if mode == ciliumnode.MultiPool || mode == ciliumnode.Kubernetes {
		t &^= moves
	}
	if mode == ciliumnode.Kubernetes {
		t &^= scheduling | families | restores
	}
	if mode != "" && !mode.ManyPools() {
		t &^= pools
	}
	if mode != ciliumnode.MultiPool && mode != "" {
		t &^= parking
	}
	if mode == ciliumnode.Kubernetes { // its worlds have both families as it is
		t &^= dual
	}
	return t
}

// maintain limits when, and how fast, blocks may leave their nodes.
func (t traits) maintain(seed uint64, c *world.Config) {
	r := rand.New(rand.NewPCG(seed, 6))
	m := &world.Maintenance{Cordons: t.has(pressure)}
	c.Maintenance = m
	var edits []v1alpha1.Maintenance
	for range 3 {
		p := v1alpha1.Maintenance{}
		if t.has(windows) {
			p.Windows = someWindows(r)
		}
		if t.has(pace) {
			p.BlocksPerHour = []*intstr.IntOrString{nil, new(intstr.FromInt32(6)), new(intstr.FromInt32(30)), new(intstr.FromInt32(120))}[r.IntN(4)]
		}
		edits = append(edits, p)
	}
	if t.has(windows) || t.has(pace) {
		c.Faults |= world.PoolEdits
		m.Longest, m.Edits = 27*time.Minute, slices.Concat(edits, []v1alpha1.Maintenance{{Policy: v1alpha1.MaintenanceUnrestricted}})
		switch r.IntN(3) {
		case 0:
			m.Flags = edits[0]
		case 1:
			c.Pools[0].Spec.Maintenance, m.Flags = edits[1], edits[0]
		default:
			c.Pools[0].Spec.Maintenance, c.Other.Spec.Maintenance = edits[1], edits[2]
		}
	}
	for _, s := range []*int{&c.Settings.ReclaimsPerMinute, &c.Settings.ReclaimsPerMinutePerPool} {
		if t.has(pace) && r.IntN(2) == 0 {
			*s = []int{1, 6, 20}[r.IntN(3)]
		}
	}
	if t.has(pressure) {
		c.Settings.Defaults.Policy.PressurePercent = []int{1, 50, 75}[r.IntN(3)]
	}
	minFreeAddresses := c.Upgraded.Defaults.Policy.MinFree
	c.Upgraded = c.Settings
	c.Upgraded.Defaults.Policy.MinFree = minFreeAddresses
}

// weigh prefers the actions of a trait: ranges are drained and drains canceled, and users change
// when that may happen.
func (t traits) weigh(w map[world.Verb]float64) {
	if t.has(windows) || t.has(pace) {
		w[world.PoolEdit] = 3
	}
	if t.has(shadow) {
		w[world.UpgradeOp] = .5
	}
	if t.has(pools) {
		w[world.PoolEdit] = max(w[world.PoolEdit], 1)
	}
	if t.has(labels) || t.has(moves) {
		w[world.AgentStart] = 1.5 // labels come before
	}
	if t.has(families) {
		w[world.PoolEdit] = max(w[world.PoolEdit], 1)
	}
	if t.has(restores) {
		w[world.EtcdCopy], w[world.EtcdBack] = .5, 1
	}
	if t.has(scheduling) { // most pods come by the scheduler
		w[world.PodNew], w[world.PoolEdit] = .3, .2
	}
}

// someWindows returns no windows, or some that open often, or never.
func someWindows(r *rand.Rand) []v1alpha1.MaintenanceWindow {
	window := func(schedule string, d time.Duration) v1alpha1.MaintenanceWindow {
		return v1alpha1.MaintenanceWindow{Schedule: schedule, Duration: v1alpha1.NewDuration(d)}
	}
	return [][]v1alpha1.MaintenanceWindow{
		nil,
		{window("*/5 * * * *", 2*time.Minute)},
		{window("*/10 * * * *", time.Minute), window("3 * * * *", 30*time.Minute)},
		{window("*/15 * * * *", 5*time.Minute)},
		{window("0 0 29 2 *", time.Hour)},   // not in the days of a world
		{window("61 * * * *", time.Minute)}, // cannot be read
	}[r.IntN(6)]
}
