package world

import "strconv"

// noteAck records a CiliumNode that a process has written, when it receives the response.
func (o *Operator) noteAck(c *call) {
	if c.kind != KindCiliumNode || !c.writes() || c.fate != carriedOut {
		return
	}
	if cn := o.w.api.Get(c.kind, c.key); cn != nil {
		if o.acked == nil {
			o.acked = map[string]string{}
		}
		o.acked[c.key] = cn.GetResourceVersion()
	}
}

// forgetAcked drops versions that the process's memory has reached.
func (o *Operator) forgetAcked() {
	for name, version := range o.acked {
		if o.knowsVersion(name, version) {
			delete(o.acked, name)
		}
	}
}

// knowsVersion reports whether a process knows a CiliumNode in this version or a later one.
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

// checkOwnWrite checks that a process does not decide on a CiliumNode older than its own last
// write, once it has received the response.
func (o *Operator) checkOwnWrite(c *call) {
	if last, ok := o.acked[c.key]; ok && c.kind == KindCiliumNode && c.version != "" && older(c.version, last) {
		o.w.violate(4, "%s: %s is bound to version %s, which its own last write, answered with version %s, has replaced", o.name, c, c.version, last)
	}
}
