package world

// excuse is for an address that a user removed from a node's pool. It lasts until the address is
// back and the node's agent has seen it.
type excuse struct {
	node string
	back int // the number of CiliumNode versions with which it was back; 0: it is not
}

func (e excuse) holds(m *machine) bool { return e.node == m.name && (e.back == 0 || m.read < e.back) }
