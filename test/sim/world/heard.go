package world

import "strconv"

// noteHeard notes a CiliumNode that a process has written, as it gets the answer.
func (o *Operator) noteHeard(c *call) {
	if c.kind != KindCiliumNode || !c.writes() || c.fate != carriedOut {
		return
	}
	if cn := o.w.api.Get(c.kind, c.key); cn != nil {
		if o.heard == nil {
			o.heard = map[string]string{}
		}
		o.heard[c.key] = cn.GetResourceVersion()
	}
}

// forgetHeard drops what the process's memory has.
func (o *Operator) forgetHeard() {
	for name, version := range o.heard {
		if o.knowsVersion(name, version) {
			delete(o.heard, name)
		}
	}
}

// knowsVersion says that a process knows a CiliumNode in a version, or a later one.
func (o *Operator) knowsVersion(name, version string) bool {
	ledger := o.parts.Node.Ledger
	if cn := ledger.CiliumNode(name); cn != nil {
		return !older(cn.ResourceVersion, version)
	}
	last := ledger.LastCiliumNode(name)
	return last != nil && !older(last.ResourceVersion, version)
}

func older(a, b string) bool {
	m, _ := strconv.ParseUint(a, 10, 64)
	n, _ := strconv.ParseUint(b, 10, 64)
	return m < n
}

// holdOwnWrite checks that a process does not decide on a CiliumNode from before its own
// last write, of which it has had the answer.
func (o *Operator) holdOwnWrite(c *call) {
	if last, ok := o.heard[c.key]; ok && c.kind == KindCiliumNode && c.version != "" && older(c.version, last) {
		o.w.violate(4, "%s: %s is bound to version %s, which its own last write, answered with version %s, has replaced", o.name, c, c.version, last)
	}
}
