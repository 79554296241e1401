package state

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cilium-pool/cilium-pool-operator/pkg/frrconfig"
)

// FRRConfigurations stores the FRRConfigurations in the namespace of frr-k8s, and the hostnames by
// which they select Nodes. It is safe for concurrent use.
type FRRConfigurations struct {
	optional[*frrconfig.View]
	templates map[string]*frrconfig.View
	ofNode    map[string]map[string]*frrconfig.View // the operator's
	// hostname is the label of each Node, and nodes are the Nodes of each label.
	hostname map[string]string
	nodes    map[string]map[string]bool
}

// NewFRRConfigurations returns an empty store that has read nothing.
func NewFRRConfigurations() *FRRConfigurations {
	return &FRRConfigurations{
		optional:  optional[*frrconfig.View]{byName: map[string]*frrconfig.View{}, uid: func(v *frrconfig.View) types.UID { return v.UID }},
		templates: map[string]*frrconfig.View{}, ofNode: map[string]map[string]*frrconfig.View{},
		hostname: map[string]string{}, nodes: map[string]map[string]bool{},
	}
}

// Set stores an FRRConfiguration, unless a later version is stored. It reports whether the templates
// have changed.
func (c *FRRConfigurations) Set(v *frrconfig.View) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.set(v)
}

// Patched stores the result of a patch before a watch delivers it, unless the object is gone by then.
func (c *FRRConfigurations) Patched(v *frrconfig.View) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.byName[v.Name]; old != nil && old.UID == v.UID {
		c.set(v)
	}
}

func (c *FRRConfigurations) set(v *frrconfig.View) bool {
	old := c.byName[v.Name]
	if old != nil && !reached(v.ResourceVersion, old.ResourceVersion) {
		return false
	}
	templates := c.remove(old)
	c.byName[v.Name] = v
	if v.Ours {
		if c.ofNode[v.Node] == nil {
			c.ofNode[v.Node] = map[string]*frrconfig.View{}
		}
		c.ofNode[v.Node][v.Name] = v
	} else if v.IsTemplate() {
		c.templates[v.Name] = v
		templates = true
	}
	return templates
}

// Delete removes an FRRConfiguration, unless its name was reused since. It reports whether the
// templates have changed.
func (c *FRRConfigurations) Delete(v *frrconfig.View) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.byName[v.Name]
	if old == nil || old.UID != v.UID {
		return false
	}
	return c.remove(old)
}

func (c *FRRConfigurations) remove(v *frrconfig.View) (template bool) {
	if v == nil {
		return false
	}
	_, template = c.templates[v.Name]
	delete(c.byName, v.Name)
	delete(c.templates, v.Name)
	if delete(c.ofNode[v.Node], v.Name); len(c.ofNode[v.Node]) == 0 {
		delete(c.ofNode, v.Node)
	}
	return template
}

// Templates returns the templates, by name.
func (c *FRRConfigurations) Templates() []*frrconfig.View {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.SortedFunc(maps.Values(c.templates), func(a, b *frrconfig.View) int { return strings.Compare(a.Name, b.Name) })
}

// OfNode returns the operator's FRRConfigurations of a node.
func (c *FRRConfigurations) OfNode(node string) []*frrconfig.View {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.Collect(maps.Values(c.ofNode[node]))
}

// Announces reports whether one of them announces a prefix of a node.
func (c *FRRConfigurations) Announces(node string, cidr netip.Prefix) bool {
	return slices.ContainsFunc(c.OfNode(node), func(v *frrconfig.View) bool { return slices.Contains(v.Prefixes, cidr) })
}

// Nodes returns the names of all nodes with an FRRConfiguration of the operator.
func (c *FRRConfigurations) Nodes() []string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.Collect(maps.Keys(c.ofNode))
}

// SetNode stores the hostname of a Node; nil: it is gone. It returns the other Nodes that had or have
// the same.
func (c *FRRConfigurations) SetNode(name string, node *corev1.Node) []string {
	host := ""
	if node != nil {
		host = node.Labels[corev1.LabelHostname]
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	oldName := c.hostname[name]
	if oldName == host {
		return nil
	}
	nodes := c.nodes[oldName]
	if delete(nodes, name); len(nodes) == 0 {
		delete(c.nodes, oldName)
	}
	moved := slices.Collect(maps.Keys(nodes))
	if delete(c.hostname, name); host == "" {
		return moved
	}
	moved = slices.AppendSeq(moved, maps.Keys(c.nodes[host]))
	if c.nodes[host] == nil {
		c.nodes[host] = map[string]bool{}
	}
	c.hostname[name] = host
	c.nodes[host][name] = true
	return moved
}

// SameHostname returns the Nodes with the hostname of a Node, by name.
func (c *FRRConfigurations) SameHostname(name string) []string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.Sorted(maps.Keys(c.nodes[c.hostname[name]]))
}

// HostnameHolder returns the other Node that is announced by the hostname of a Node; "": none is. The
// first to be announced keeps the hostname, so that no later Node withdraws its routes.
func (c *FRRConfigurations) HostnameHolder(name string) string {
	for _, node := range c.SameHostname(name) {
		if !c.announcedByHostname(node) {
			continue
		}
		if node == name {
			return ""
		}
		return node
	}
	return ""
}

// announcedByHostname reports whether an FRRConfiguration selects a Node by its present hostname.
func (c *FRRConfigurations) announcedByHostname(node string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, v := range c.ofNode[node] {
		if v.Hostname == c.hostname[node] {
			return true
		}
	}
	return false
}
