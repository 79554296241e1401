package importer

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/cilium-pool/cilium-pool-operator/api/v1alpha1"
	"github.com/cilium-pool/cilium-pool-operator/pkg/crd"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
)

// nodeCIDRs are the ranges and the length of the podCIDRs that Kubernetes assigns to Nodes.
type nodeCIDRs struct {
	source Object
	cidrs  string
	// field is where cidrs are.
	field string
	// flags are the flags of kube-controller-manager.
	flags map[string]string
}

// Kubernetes converts the sources of Nodes' podCIDRs: kubeadm's ClusterConfiguration, the flags of
// kube-controller-manager, and the ClusterCIDRs of KEP-2593.
func Kubernetes(objects []Object, wholeBlocks bool) *Result {
	r := &Result{wholeBlocks: wholeBlocks}
	for _, o := range objects {
		if isClusterCIDR(o) {
			convertClusterCIDR(r, o)
		}
	}
	remarkTies(r)
	found := findNodeCIDRs(r, objects)
	if len(found) == 0 {
		return r
	}
	c := found[0]
	for _, second := range found[1:] {
		if !slices.Equal(splitList(second.cidrs), splitList(c.cidrs)) {
			r.lost(second.source, second.field+": "+second.cidrs, fmt.Sprintf("%s says %s, and was taken", c.source, c.cidrs), "Import the one that holds")
		}
	}
	c.convert(r)
	return r
}

// findNodeCIDRs returns the sources: the running ones first, then the configured ones.
func findNodeCIDRs(r *Result, objects []Object) []nodeCIDRs {
	var running, configured []nodeCIDRs
	for _, o := range objects {
		switch {
		case o.Kind == "Pod":
			if c := fromManager(o); c.cidrs != "" {
				running = append(running, c)
			}
		case o.Kind == "ConfigMap" && o.Name == "kubeadm-config":
			var content map[string]any
			if err := yaml.Unmarshal([]byte(text(fields(o.content, "data")["ClusterConfiguration"])), &content); err != nil {
				r.unreadable(o, "data.ClusterConfiguration", err)
				continue
			}
			configured = append(configured, fromClusterConfiguration(o, "data.ClusterConfiguration.", content))
		case o.Kind == "ClusterConfiguration" && o.group() == "kubeadm.k8s.io":
			configured = append(configured, fromClusterConfiguration(o, "", o.content))
		}
	}
	configured = slices.DeleteFunc(configured, func(c nodeCIDRs) bool { return c.cidrs == "" })
	return append(running, configured...)
}

// fromManager reads the command of kube-controller-manager, as in the manifest
// of a static pod.
func fromManager(o Object) nodeCIDRs {
	c := nodeCIDRs{source: o, flags: map[string]string{}}
	containers, _ := fields(o.content, "spec")["containers"].([]any)
	for _, container := range containers {
		content, _ := container.(map[string]any)
		command := append(stringsOf(content["command"], ""), stringsOf(content["args"], "")...)
		if !slices.ContainsFunc(command, func(s string) bool { return strings.HasSuffix(s, "kube-controller-manager") }) {
			continue
		}
		for _, arg := range command {
			if name, value, ok := strings.Cut(strings.TrimLeft(arg, "-"), "="); ok && strings.HasPrefix(arg, "-") {
				c.flags[name] = value
			}
		}
	}
	c.cidrs = c.flags["cluster-cidr"]
	c.field = "--cluster-cidr"
	return c
}

// fromClusterConfiguration reads kubeadm's configuration, v1beta4 (extraArgs is a
// list) and older (a map).
func fromClusterConfiguration(o Object, prefix string, content map[string]any) nodeCIDRs {
	c := nodeCIDRs{source: o, flags: map[string]string{}}
	manager := fields(content, "controllerManager")
	switch args := manager["extraArgs"].(type) {
	case map[string]any:
		for name, value := range args {
			c.flags[name] = text(value)
		}
	case []any:
		for _, arg := range args {
			a, _ := arg.(map[string]any)
			c.flags[text(a["name"])] = text(a["value"])
		}
	}
	c.cidrs = text(fields(content, "networking")["podSubnet"])
	c.field = prefix + "networking.podSubnet"
	if s := c.flags["cluster-cidr"]; s != "" {
		c.cidrs = s
		c.field = prefix + "controllerManager.extraArgs.cluster-cidr"
	}
	return c
}

// mask returns the prefix length of a Node's podCIDR: kube-controller-manager's flags, or its
// default (cmd/kube-controller-manager/app/core.go of v1.36).
func (c nodeCIDRs) mask(f ipalloc.Family) (field string, bits int, err error) {
	names := map[ipalloc.Family]string{ipalloc.IPv4: "node-cidr-mask-size-ipv4", ipalloc.IPv6: "node-cidr-mask-size-ipv6"}
	for _, name := range []string{names[f], "node-cidr-mask-size"} {
		if s := c.flags[name]; s != "" && s != "0" {
			bits, err = strconv.Atoi(s)
			return "--" + name, bits, err
		}
	}
	return "--" + names[f], map[ipalloc.Family]int{ipalloc.IPv4: 24, ipalloc.IPv6: 64}[f], nil
}

func (c nodeCIDRs) convert(r *Result) {
	d := newDraft(r, c.source, "cluster-cidr")
	cidrs := d.cidrs(c.field, splitList(c.cidrs))
	if slices.ContainsFunc(r.Pools, func(p Pool) bool { return sameCIDRs(p, cidrs) }) {
		d.note(c.field+": "+c.cidrs, "a ClusterCIDR says the same: Kubernetes makes one of its flags", "")
		return
	}
	for _, f := range ipalloc.Families() {
		ofFamily := slices.DeleteFunc(slices.Clone(cidrs), func(p netip.Prefix) bool { return ipalloc.FamilyOf(p.Addr()) != f })
		if len(ofFamily) == 0 {
			continue
		}
		field, bits, err := c.mask(f)
		if err != nil {
			d.lost(field, "is not a number: "+err.Error(), "Fix it and import it again")
			continue
		}
		d.add(f, ofFamily, d.blockBits(field, f, bits), v1alpha1.EdgeIPs{})
	}
	if c.flags["allocate-node-cidrs"] == "false" {
		d.note("--allocate-node-cidrs: false", "Kubernetes gives Nodes no podCIDRs of this range; something else may", "See who uses it")
	}
	d.done()
}

// sameCIDRs reports whether p has exactly these.
func sameCIDRs(p Pool, cidrs []netip.Prefix) bool {
	sorted := func(list []netip.Prefix) []netip.Prefix {
		return slices.SortedFunc(slices.Values(list), netip.Prefix.Compare)
	}
	return slices.Equal(sorted(crd.CIDRsIn(&p.Object.Spec)), sorted(cidrs))
}
