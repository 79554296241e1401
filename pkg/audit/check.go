package audit

import (
	"fmt"
	"net/netip"
)

// Check returns the findings of a snapshot, sorted by severity. In a changing
// cluster some are transient: see Persisting.
func Check(s *Snapshot, set Settings) []Finding {
	c := &check{Settings: set, list: s.Mode.List(), seen: map[string]bool{}}
	kind, _ := s.Mode.Resource()
	c.kind = kind.Kind
	c.now, c.podWith = s.Time, map[netip.Addr]Object{}
	c.readCluster(s)
	c.readBlocks(s)
	c.readNodes(s)
	c.readPods(s)

	c.pools(s)
	c.blocksOfAll()
	for _, n := range c.nodes {
		c.nodeObjects(n)
		c.podsOf(n)
		c.clusterAddressesOf(n)
		if n.view == nil || n.view.BlockAssignment != nil && n.view.BlockAssignment.SingleBlock && n.notOurs() {
			continue
		}
		if n.view.BlockAssignment == nil {
			c.entriesOf(n)
		} else {
			c.wholeOf(n)
		}
		c.cidrsOf(n)
		c.usedOf(n)
		c.handshakesOf(n)
		c.blocksOf(n)
	}
	c.acrossNodes()
	inOrder(c.findings)
	return c.findings
}

// check is one run of Check.
type check struct {
	Settings
	index

	// kind is that of the objects that assign blocks to agents, list the field in them.
	kind, list string

	findings []Finding
	seen     map[string]bool
}

// add adds a finding, once.
func (c *check) add(f Finding) {
	if key := f.key(); !c.seen[key] {
		c.seen[key] = true
		c.findings = append(c.findings, f)
	}
}

// found adds a finding about an object as a whole.
func (c *check) found(r Reason, o Object, says string, args ...any) {
	c.add(Finding{Reason: r, Object: o, Says: fmt.Sprintf(says, args...)})
}

// single returns an address as a prefix.
func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

func nodeObject(name string) Object { return Object{Kind: "Node", Name: name} }

func blockObject(name string) Object { return Object{Kind: "PodIPBlock", Name: name} }

func poolObject(name string) Object { return Object{Kind: "PodIPPool", Name: name} }

// allocationObject returns the object that assigns a node's blocks: its CiliumNode, or the
// Node.
func (c *check) allocationObject(name string) Object { return Object{Kind: c.kind, Name: name} }
