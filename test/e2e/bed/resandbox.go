//go:build linux

package bed

import (
	"context"
	"crypto/rand"
	"encoding/hex"
)

// Again returns another sandbox of the same pod, with its own network namespace, as a kubelet
// creates one when the pod's sandbox has failed or the pod was recreated under its name.
func (p *Pod) Again() *Pod {
	var id [32]byte
	_, _ = rand.Read(id[:])
	return &Pod{Namespace: p.Namespace, Name: p.Name, Created: p.Created, node: p.node, sandbox: hex.EncodeToString(id[:])}
}

// Detach removes the sandbox's network with one CNI DEL. The Pod object stays. It can be
// called again, as runtimes do.
func (p *Pod) Detach(ctx context.Context) error {
	p.node.bed.setAttached(p, false)
	if p.netns == nil {
		return nil // Its ADD never began.
	}
	_, err := p.cni(ctx, "DEL")
	return err
}
