package adopt

import "github.com/cilium-pool/cilium-pool-operator/pkg/ciliumconfig"

// settings compares the ConfigMap cilium-config with the needs of agents in crd mode
// (docs/modes.md). All settings can be changed along with the mode, except a cloud IPAM's.
func (p *planner) settings() {
	if p.Config == nil || p.Config.Data == nil {
		p.warn(nil, Settings, "Compare with docs/modes.md by hand", "ConfigMap cilium-config could not be read")
		return
	}
	switch mode := Source(p.Config.Data["ipam"]); mode {
	case ClusterPool, Kubernetes, MultiPool:
		p.rangesTooEarly(string(mode))
	case CRD:
		p.rangesMissing()
	case None:
		p.warn(nil, Settings, "Find out which IPAM mode agents run in", "cilium-config names no ipam")
	default:
		p.block(nil, Settings, "Only cluster-pool, kubernetes, multi-pool and crd mode can be left", "Cilium runs with ipam=%s", mode)
	}
	if p.Config.Data["enable-endpoint-routes"] != "true" {
		p.warn(nil, Settings, "Set it together with ipam=crd; restart pods that an ingress NetworkPolicy is for once their node has moved",
			"enable-endpoint-routes is not true: in crd mode nodes would not reach their own pods. Once it is, pods that ran before are not held to ingress NetworkPolicies until they restart, where BPF host routing is off")
	}
	if p.Config.Data["enable-bpf-masquerade"] != "true" && (p.Config.Data["enable-ipv4-masquerade"] == "true" || p.Config.Data["enable-ipv6-masquerade"] == "true") {
		p.warn(nil, Settings, "Set it together with ipam=crd, or switch masquerading off",
			"enable-bpf-masquerade is not true: in crd mode agents that masquerade with iptables do not start")
	}
	if p.Config.LosesRoutes() {
		p.warn(nil, Settings, ciliumconfig.LosingRoutesFix, ciliumconfig.LosingRoutes)
	}
	p.masquerading()
}

func rangeKeys() [2]string { return [2]string{"ipv4-range", "ipv6-range"} }

func (p *planner) rangesTooEarly(mode string) {
	for _, key := range rangeKeys() {
		if v := p.Config.Data[key]; v != "" && v != "auto" {
			p.warn(nil, Settings, "Set it together with ipam=crd, not before", "%s is set: an agent that starts in %s mode assigns addresses of it", key, mode)
		}
	}
}

func (p *planner) rangesMissing() {
	for i, key := range rangeKeys() {
		on := p.Config.Data[[2]string{"enable-ipv4", "enable-ipv6"}[i]] == "true"
		if v := p.Config.Data[key]; on && (v == "" || v == "auto") {
			p.warn(nil, Settings, "Set it before agents restart (docs/modes.md has an unused range)",
				"%s is not set: in crd mode agents make one up, and what is in it cannot be reached from the node", key)
		}
	}
}

// masquerading warns of pools' ranges that would be masqueraded.
func (p *planner) masquerading() {
	for _, pool := range p.Pools {
		for _, m := range p.Config.Masqueraded(pool) {
			p.warn(nil, Settings, ciliumconfig.MasqueradedFix, "pool %s has %s", pool.Name, m)
		}
	}
}
