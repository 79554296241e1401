package truth

import (
	"context"
	"errors"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/cilium-pool/cilium-pool-operator/test/agent"
	"github.com/cilium-pool/cilium-pool-operator/test/truth/wire"
)

// light is a Session of test/agent with a gate before its status writes.
type light struct {
	*agent.Session
	gate *wire.Gate
	hint hint
	stop func()
}

// startLight starts a Session for the node, and stops it when the test ends.
func startLight(t *testing.T, c client.WithWatch, hub *agent.Hub, node string) *light {
	l := &light{gate: wire.NewGate()}
	gated := interceptor.NewClient(c, interceptor.Funcs{
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, obj client.Object, opts ...client.SubResourceUpdateOption) error {
			if err := l.gate.Pass(); err != nil {
				return err
			}
			return c.SubResource(sub).Update(ctx, obj, opts...)
		},
	})
	l.Session = agent.NewSession(gated, hub, node, updateRate, agent.StoreOptions{
		Families: []agent.Family{agent.IPv4, agent.IPv6},
		Pick:     l.hint.pick,
	})
	ctx, cancel := context.WithCancel(t.Context())
	unwatch := l.Watch()
	var writer sync.WaitGroup
	writer.Go(func() { l.Write(ctx) })
	l.stop = sync.OnceFunc(func() {
		unwatch()
		cancel()
		l.gate.Set("fail")
		writer.Wait()
	})
	t.Cleanup(l.stop)
	return l
}

// hint makes the light one follow the choice of the real one.
type hint struct {
	// took are the addresses that the real one has now and had not before; lost are the addresses
	// that it has no more: one with two spellings was allocated a second time and released, because
	// the other family had none left.
	took, lost []netip.Addr
	// had are the addresses it had before.
	had map[netip.Addr]bool
	// badKey is set if it stumbled over a key that is not an address.
	badKey bool
}

// pick returns the choice of the real one. If that is impossible, it returns any: the comparison
// afterwards shows the difference.
func (h *hint) pick(candidates []string) string {
	for _, took := range []func(netip.Addr) bool{
		// The node's own address is always followed by another one.
		func(addr netip.Addr) bool { return addr == nodeIP && slices.Contains(h.took, addr) },
		func(addr netip.Addr) bool { return slices.Contains(h.took, addr) },
		func(addr netip.Addr) bool { return slices.Contains(h.lost, addr) },
		func(addr netip.Addr) bool { return !h.had[addr] },
	} {
		for _, key := range candidates {
			addr, err := netip.ParseAddr(key)
			if err != nil && h.badKey || err == nil && took(addr) {
				return key
			}
		}
	}
	return candidates[0]
}

// errUnknown stands for any error of Cilium that kindOf does not know.
var errUnknown = errors.New("unknown error")

// kindOf translates Cilium's error texts (pkg/ipam/crd.go, allocator.go).
func kindOf(text string) error {
	if text == "" {
		return nil
	}
	for _, kind := range []struct {
		says string
		err  error
	}{
		{"CiliumNode for own node is not available", agent.ErrNoCiliumNode},
		{"No IPs available", agent.ErrNoPool},
		{"IP not available, marked or ready for release", agent.ErrReleasing},
		{"IP already in use", agent.ErrInUse},
		{"no IPs currently available", agent.ErrExhausted},
		{"invalid custom ip", agent.ErrBadKey},
		{"is excluded, owned by node-ip", agent.ErrExcluded},
	} {
		if strings.Contains(text, kind.says) {
			return kind.err
		}
	}
	if notInPool.MatchString(text) {
		return agent.ErrNotInPool
	}
	return errUnknown
}

var notInPool = regexp.MustCompile(`^IP \S+ is not available$`)
