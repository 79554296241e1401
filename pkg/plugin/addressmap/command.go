package addressmap

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterview"
	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/list"
)

// New returns the command map.
func New(e *cli.Env) *cobra.Command {
	port := 0
	cmd := &cobra.Command{
		Use:   "map",
		Short: "Show the address plan in a browser, live: a cell per block",
		Long: `Serves a page that shows each pool's CIDRs as a map with a cell per block, coloured
by utilisation, node or phase. It follows the cluster by watches, until interrupted.
Press ? there for its keys.

It is served on loopback only, at an address with a secret in it: whoever has that
address sees the same as you. docs/reference/map.md says how to look from another machine.`,
		Example: cli.Examples("map", "map --port 8080"),
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return serve(cmd.Context(), e, port) },
	}
	cmd.Flags().IntVar(&port, "port", port, "port on loopback; 0: any that is free")
	return cmd
}

func serve(ctx context.Context, e *cli.Env, port int) error {
	w, err := watchCluster(ctx, e)
	if err != nil {
		return err
	}
	c, err := w.Cluster(ctx)
	if err != nil {
		return err
	}
	name := e.ContextName()
	board := NewBoard(mapOf(c, name))
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", fmt.Sprint(port)))
	if err != nil {
		return fmt.Errorf("cannot serve the map: %w. --port sets another", err)
	}
	token := rand.Text()
	page := url.URL{Scheme: "http", Host: listener.Addr().String(), Path: "/" + token + "/"}
	fmt.Fprintln(e.Out, page.String())
	fmt.Fprintln(e.ErrOut, "The map is there until you press Ctrl-C.")
	ctx, stop := context.WithCancel(ctx)
	var following sync.WaitGroup
	following.Go(func() { w.follow(ctx, board, name) })
	s := &http.Server{Handler: Handler(board, token), ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = s.Close() }) // streams would not end by themselves
	err = s.Serve(listener)
	stop()
	following.Wait()
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving the map: %w", err)
	}
	return nil
}

func mapOf(c *clusterview.Cluster, name string) *Map {
	drawn := &Map{Time: c.Now, Cluster: name, Pools: []Pool{}, Blocks: list.BlockRows(c, list.BlockFilter{})}
	blocks := map[string][]netip.Prefix{}
	for i := range drawn.Blocks {
		b := &drawn.Blocks[i]
		blocks[b.Pool] = append(blocks[b.Pool], b.CIDR)
	}
	known := map[string]bool{}
	for _, r := range list.PoolRows(c) {
		known[r.Pool+" "+r.Family] = true
		drawn.Pools = append(drawn.Pools, poolOf(c, r, blocks[r.Pool]))
	}
	drawn.Pools = append(drawn.Pools, gonePools(drawn.Blocks, known)...)
	return drawn
}

func poolOf(c *clusterview.Cluster, r list.PoolRow, blocks []netip.Prefix) Pool {
	p := Pool{PoolRow: r, Sections: []Section{}}
	pool := c.State.Pools.Get(r.Pool)
	for _, f := range ipalloc.Families() {
		ranges, ok := pool.Ranges(f)
		if !ok || f.String() != r.Family {
			continue
		}
		for _, rng := range ranges.CIDRs {
			s := Section{CIDR: rng.CIDR, Of: rng.CIDR, Cordoned: !rng.Allocates(), Drains: rng.Drains(), ClosedBy: rng.YieldsTo}
			p.Sections = append(p.Sections, sectionsOf(s, ranges.Bits, blocks)...)
		}
		for _, reserved := range pool.Reserved.Prefixes() {
			if ipalloc.FamilyOf(reserved.Addr()) == f {
				p.Reserved = append(p.Reserved, reserved)
			}
		}
	}
	return p
}

// gonePools returns placeholders for pools, or families of them, that blocks name and that do
// not exist.
func gonePools(blocks []list.BlockRow, known map[string]bool) []Pool {
	var pools []Pool
	for i := range blocks {
		b := &blocks[i]
		if known[b.Pool+" "+b.Family] {
			continue
		}
		index := slices.IndexFunc(pools, func(p Pool) bool { return p.Pool == b.Pool && p.Family == b.Family })
		if index < 0 {
			index = len(pools)
			row := list.PoolRow{Pool: b.Pool, Family: b.Family, BlockBits: b.CIDR.Bits(), State: "Gone", Message: "blocks name this pool, and there is none"}
			pools = append(pools, Pool{PoolRow: row, Sections: []Section{}})
		}
		pools[index].Blocks.Add(b.Phase)
		pools[index].Addresses += b.Addresses
		pools[index].Used += b.Used
	}
	return pools
}
