// Package ciliumconfig reads how Cilium's agents are configured: the ConfigMap cilium-config, the
// CiliumNodeConfigs that override it on some nodes, and the CIDRs that ip-masq-agent does not
// masquerade. It never writes. Paths of Cilium's files are from v1.20.1.
package ciliumconfig

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// Names of ConfigMaps in Cilium's namespace, and the key of the IPAM mode (pkg/option/config.go).
const (
	Name          = "cilium-config"
	MasqAgentName = "ip-masq-agent"
	ipam          = "ipam"
)

// DefaultPoolSetting names the Cilium pool of pods that request none (pkg/option/config.go, v1.20.1).
const DefaultPoolSetting = "ipam-default-ip-pool"

// PreAllocationSetting is the reserve of agents, by Cilium pool. An agent waits for an address of each of
// these pools when it starts (pkg/ipam/multipool_manager.go, waitForAllPools, v1.20.2).
const PreAllocationSetting = "ipam-multi-pool-pre-allocation"

// Config is how agents are configured at their next start. A nil Config knows no setting.
type Config struct {
	// Data is that of the ConfigMap cilium-config. Nil: it does not exist, or may not be read.
	Data map[string]string
	// Known: cilium-config was read, or does not exist.
	Known bool
	// Overrides are the CiliumNodeConfigs, in the order that agents apply them.
	Overrides []Override
	// NonMasquerade are the CIDRs of ip-masq-agent. Nil: agents do not run it.
	NonMasquerade []netip.Prefix
	// Denied are the sources that may not be read. Their last known content applies.
	Denied []string
}

// Override is a CiliumNodeConfig (pkg/k8s/apis/cilium.io/v2).
type Override struct {
	Defaults     map[string]string     `json:"defaults"`
	NodeSelector *metav1.LabelSelector `json:"nodeSelector"`
}

// Setting returns the value that the agent of a node with these labels starts with next; "":
// unknown.
func (c *Config) Setting(node map[string]string, key string) string {
	if c == nil {
		return ""
	}
	set := c.Data[key]
	for _, o := range c.Overrides {
		value, sets := o.Defaults[key]
		if !sets {
			continue
		}
		if selector, err := metav1.LabelSelectorAsSelector(o.NodeSelector); err == nil && selector.Matches(labels.Set(node)) {
			set = value
		}
	}
	return strings.TrimSpace(set) // as the agent reads it
}

// Mode returns the IPAM mode that the agent of a node with these labels starts in next; "":
// unknown.
func (c *Config) Mode(node map[string]string) string { return c.Setting(node, ipam) }

// Enables reports whether the agent of a node with these labels starts next with a family.
func (c *Config) Enables(node map[string]string, f ipalloc.Family) bool {
	return c.Setting(node, "enable-"+f.String()) == "true"
}

// Disables reports whether the configuration says that the agent starts next without a family.
func (c *Config) Disables(node map[string]string, f ipalloc.Family) bool {
	return c.Setting(node, "enable-"+f.String()) == "false"
}

// PreAllocation returns the reserves, by Cilium pool, that the agent of a node with these labels starts
// with next; nil: unknown.
func (c *Config) PreAllocation(node map[string]string) map[string]int {
	if c == nil || !c.Known {
		return nil
	}
	setting := c.Setting(node, PreAllocationSetting)
	if setting == "" {
		return map[string]int{cmp.Or(c.Setting(node, DefaultPoolSetting), crd.DefaultCiliumPool): 8}
	}
	out := map[string]int{}
	for part := range strings.SplitSeq(setting, ",") {
		pool, text, _ := strings.Cut(part, "=")
		if n, err := strconv.Atoi(text); err == nil && n > 0 {
			out[pool] = n
		}
	}
	return out
}

// Differs reports whether any agent may start next in another IPAM mode.
func (c *Config) Differs(mode string) bool {
	if c == nil {
		return false
	}
	differs := func(settings map[string]string) bool {
		set := strings.TrimSpace(settings[ipam])
		return set != "" && set != mode
	}
	return differs(c.settings(nil)) || slices.ContainsFunc(c.Overrides, func(o Override) bool { return differs(o.Defaults) })
}

// settings returns those of agents to which one Override applies, nil: none, and those that
// select every node.
func (c *Config) settings(one *Override) map[string]string {
	out := map[string]string{}
	maps.Copy(out, c.Data)
	for i := range c.Overrides {
		o := &c.Overrides[i]
		if every, err := metav1.LabelSelectorAsSelector(o.NodeSelector); o == one || err == nil && every.Empty() {
			maps.Copy(out, o.Defaults)
		}
	}
	return out
}

// Masqueraded are destinations of one family. Agents masquerade the connections of pods to them.
type Masqueraded struct {
	CIDRs []netip.Prefix
	// Message is the fault of each of them.
	Message string
}

// MasqueradedFix is the remedy for Masqueraded.
const MasqueradedFix = "Widen Cilium's native-routing CIDR, or list the ranges in ip-masq-agent's nonMasqueradeCIDRs (docs/modes.md)"

// String names the first few ranges.
func (m Masqueraded) String() string {
	const most = 5
	var names []string
	for _, cidr := range m.CIDRs[:min(len(m.CIDRs), most)] {
		names = append(names, cidr.String())
	}
	if rest := len(m.CIDRs) - most; rest > 0 {
		names = append(names, fmt.Sprintf("%d more", rest))
	}
	return strings.Join(names, ", ") + ": " + m.Message
}

// Masqueraded returns the ranges of a pool, by family, that agents masquerade the connections of
// pods to (bpf/lib/nat.h, __snat_v4_needs_masquerade). In tunnels they masquerade none. The agent
// of the pod that connects decides, so the nodes of the pool do not matter: of each Override it
// tells only the agents that apply no other of some nodes.
func (c *Config) Masqueraded(pool *crd.Pool) []Masqueraded {
	if c == nil {
		return nil
	}
	var out []Masqueraded
	add := func(one *Override) {
		for _, m := range c.masqueradedBy(c.settings(one), pool) {
			if !slices.ContainsFunc(out, func(known Masqueraded) bool { return known.String() == m.String() }) {
				out = append(out, m)
			}
		}
	}
	add(nil)
	for i := range c.Overrides {
		add(&c.Overrides[i])
	}
	return out
}

// masqueradedBy is Masqueraded by agents with these settings.
func (c *Config) masqueradedBy(data map[string]string, pool *crd.Pool) []Masqueraded {
	if data["routing-mode"] != "native" || data["enable-ip-masq-agent"] == "true" && c.NonMasquerade == nil {
		return nil
	}
	var out []Masqueraded
	for _, f := range ipalloc.Families() {
		ranges, ok := pool.Ranges(f)
		if !ok || data["enable-"+f.String()+"-masquerade"] != "true" {
			continue
		}
		key := f.String() + "-native-routing-cidr"
		excepted := c.NonMasquerade
		m := Masqueraded{Message: "outside Cilium's " + key}
		if native, err := netip.ParsePrefix(data[key]); err == nil {
			excepted = append([]netip.Prefix{native.Masked()}, excepted...)
			m.Message += ", " + native.String()
		}
		if c.NonMasquerade != nil {
			m.Message += ", and the nonMasqueradeCIDRs of ip-masq-agent"
		}
		m.Message += ": agents masquerade connections to pods of this range, which then see a node's address, and network policies do not know the pod"
		for _, r := range ranges.CIDRs {
			if !ipalloc.Covered(r.CIDR, excepted) {
				m.CIDRs = append(m.CIDRs, r.CIDR)
			}
		}
		if len(m.CIDRs) > 0 {
			out = append(out, m)
		}
	}
	return out
}

// LosingRoutes is the meaning of LosesRoutes, and LosingRoutesFix its remedy.
const (
	LosingRoutes    = "agents run with a kvstore, which in crd mode has no podCIDRs of nodes: nodes have no routes to pods of other nodes"
	LosingRoutesFix = "Run without a kvstore (etcd.enabled=false, identityAllocationMode=crd), or in multi-pool or kubernetes mode (docs/modes.md)"
)

// LosesRoutes reports whether agents in crd and delegated-plugin mode do not learn the blocks of other nodes, though
// they route by them: with a kvstore they learn nodes there alone (pkg/k8s/watchers/watcher.go,
// enableK8sWatchers), without their podCIDRs (pkg/node/store/store.go,
// copyForRemoteNodes). Where the network routes to pods, agents do not need them.
func (c *Config) LosesRoutes() bool {
	if c == nil {
		return false
	}
	data := c.settings(nil)
	return data["kvstore"] != "" && (data["routing-mode"] != "native" || data["auto-direct-node-routes"] == "true")
}

// Latest is the Config that was last read. The zero value, and nil, have none. It is safe for
// concurrent use.
type Latest struct{ config atomic.Pointer[Config] }

// Get returns the last Config; nil: none was read.
func (l *Latest) Get() *Config {
	if l == nil {
		return nil
	}
	return l.config.Load()
}

// Set replaces the Config.
func (l *Latest) Set(c *Config) { l.config.Store(c) }
