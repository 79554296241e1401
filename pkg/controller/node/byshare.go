package node

import "github.com/cilium-pool/cilium-pool-operator/pkg/state"

// byShare keeps a value for each share of nodes: by node, none of them without a share.
type byShare[V any] map[string]map[state.ShareKey]V

func (b byShare[V]) set(key state.ShareKey, value V) {
	if b[key.Node] == nil {
		b[key.Node] = map[state.ShareKey]V{}
	}
	b[key.Node][key] = value
}

func (b byShare[V]) drop(key state.ShareKey) {
	if delete(b[key.Node], key); len(b[key.Node]) == 0 {
		delete(b, key.Node)
	}
}

// forget drops some shares of a node.
func (b byShare[V]) forget(node string, matches func(state.ShareKey) bool) {
	for key := range b[node] {
		if matches(key) {
			b.drop(key)
		}
	}
}
