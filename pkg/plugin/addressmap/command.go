package addressmap

import (
	"bytes"
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

	"github.com/cilium-pool/cilium-pool-operator/pkg/ipalloc"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cluster"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/list"
)

type mapping struct {
	Options
	pools  []string
	format string
	port   int
	// cluster is the cluster's display name.
	cluster string
}

// New returns the command map.
func New(e *cli.Env) *cobra.Command {
	m := mapping{Options: Options{By: ByUtilisation, Layout: Rows}}
	cmd := &cobra.Command{
		Use:   "map",
		Short: "Show the address plan in a browser, live: a cell per block",
		Long: `Serves a page that shows each pool's CIDRs as a map with a cell per block, coloured
by utilisation, node or phase. It follows the cluster by watches, until interrupted.
Press ? there for its keys.

It is served on loopback only, at an address with a secret in it: whoever has that
address sees the same as you. docs/reference/map.md says how to look from another machine.

With -o svg it writes the same map as a picture, with -o json its data, and ends.`,
		Example: cli.Examples("map", "map --pool zone-a --by node", "map --port 8080", "map -o svg > addresses.svg",
			"map -o json | jq '.blocks[] | select(.node == \"edge-01\") | .users'"),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := m.Validate(); err != nil {
				return err
			}
			m.cluster = contextName(e)
			if m.format == "" {
				return m.serve(cmd.Context(), e)
			}
			return m.write(cmd.Context(), e)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&m.format, "output", "o", "", "svg or json; empty: serve a page")
	f.StringSliceVar(&m.pools, "pool", nil, "only these pools")
	f.StringVar(&m.By, "by", m.By, "meaning of colours: utilisation, node or phase")
	f.StringVar(&m.Layout, "layout", m.Layout, "where cells are: rows, or hilbert for a Hilbert curve")
	f.IntVar(&m.port, "port", 0, "port on loopback; 0: any that is free")
	cli.CompleteFlag(cmd, "output", "svg", "json")
	cli.CompleteFlag(cmd, "by", bys()...)
	cli.CompleteFlag(cmd, "layout", layouts()...)
	_ = cmd.RegisterFlagCompletionFunc("pool", e.CompletePools)
	return cmd
}

// contextName returns the cluster's display name: the context of the kubeconfig.
func contextName(e *cli.Env) string {
	if name := *e.Flags.Context; name != "" {
		return name
	}
	raw, err := e.Flags.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return "" // the map does without
	}
	return raw.CurrentContext
}

func (m *mapping) write(ctx context.Context, e *cli.Env) error {
	if m.format != "svg" && m.format != "json" {
		return cli.Usagef("--output is %s: must be svg or json", m.format)
	}
	c, err := e.Read(ctx)
	if err != nil {
		return err
	}
	drawn, err := m.first(c)
	if err != nil {
		return err
	}
	if m.format == "json" {
		return cli.WriteJSON(e.Out, drawn)
	}
	var picture bytes.Buffer
	if err := SVG(&picture, drawn, m.Options); err != nil {
		return err
	}
	_, err = e.Out.Write(picture.Bytes())
	return err
}

// first returns the first map. It fails for an unknown pool.
func (m *mapping) first(c *cluster.Cluster) (*Map, error) {
	for _, name := range m.pools {
		if c.PodIPPools[name] == nil {
			return nil, fmt.Errorf("there is no PodIPPool %s", name)
		}
	}
	return m.of(c), nil
}

func (m *mapping) serve(ctx context.Context, e *cli.Env) error {
	w, err := watchCluster(ctx, e)
	if err != nil {
		return err
	}
	c, err := w.cluster(ctx)
	if err != nil {
		return err
	}
	first, err := m.first(c)
	if err != nil {
		return err
	}
	board := NewBoard(first)
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", fmt.Sprint(m.port)))
	if err != nil {
		return fmt.Errorf("cannot serve the map: %w. --port sets another", err)
	}
	token := rand.Text()
	page := url.URL{Scheme: "http", Host: listener.Addr().String(), Path: "/" + token + "/"}
	if m.By != ByUtilisation || m.Layout != Rows {
		page.Fragment = url.Values{"by": {m.By}, "layout": {m.Layout}}.Encode()
	}
	fmt.Fprintln(e.Out, page.String())
	fmt.Fprintln(e.ErrOut, "The map is there until you press Ctrl-C.")
	ctx, stop := context.WithCancel(ctx)
	var following sync.WaitGroup
	following.Go(func() { w.follow(ctx, board, m.of) })
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

func (m *mapping) of(c *cluster.Cluster) *Map {
	drawn := &Map{Time: c.Now, Cluster: m.cluster, Pools: []Pool{}, Blocks: []Block{}}
	held, users := map[string][]netip.Prefix{}, map[string]map[netip.Addr]string{}
	rows := list.BlockRows(c, list.BlockFilter{})
	for i := range rows {
		r := &rows[i]
		if !m.draws(r.Pool) {
			continue
		}
		if users[r.Node] == nil {
			users[r.Node] = c.Users(r.Node)
		}
		drawn.Blocks = append(drawn.Blocks, Block{
			CIDR: r.CIDR, Pool: r.Pool, Node: r.Node, Phase: r.Phase, Reason: r.Reason, Since: r.Since, WaitsFor: r.WaitsFor,
			Conflict: r.Conflict, Addresses: r.Addresses, Created: r.Created, Users: usersIn(r.CIDR, users[r.Node]), Used: r.Used,
		})
		held[r.Pool] = append(held[r.Pool], r.CIDR)
	}
	pools := list.PoolRows(c)
	known := map[string]bool{}
	for i := range pools {
		r := &pools[i]
		known[r.Pool+" "+r.Family] = true
		if m.draws(r.Pool) {
			drawn.Pools = append(drawn.Pools, poolOf(c, r, held[r.Pool]))
		}
	}
	drawn.Pools = append(drawn.Pools, gonePools(rows, known, m.draws)...)
	return drawn
}

// draws reports whether a pool is drawn: without --pool, all are.
func (m *mapping) draws(pool string) bool {
	return len(m.pools) == 0 || slices.Contains(m.pools, pool)
}

func poolOf(c *cluster.Cluster, r *list.PoolRow, held []netip.Prefix) Pool {
	p := Pool{
		Name: r.Pool, Family: r.Family, BlockBits: r.BlockBits, State: r.State, Message: r.Message, Nodes: r.Selected,
		Total: uint64(r.Total), Free: uint64(r.Free), PhaseCount: r.Blocks, Addresses: r.Addresses, Used: r.Used,
		Sections: []Section{},
	}
	pool := c.Pools.Get(r.Pool)
	for _, f := range ipalloc.Families() {
		ranges, ok := pool.Ranges(f)
		if !ok || f.String() != r.Family {
			continue
		}
		for _, rng := range ranges.CIDRs {
			s := Section{CIDR: rng.CIDR, Of: rng.CIDR, Cordoned: !rng.Allocates(), Drains: rng.Drains(), ClosedBy: rng.ClosedBy}
			p.Sections = append(p.Sections, sectionsOf(s, ranges.Bits, held)...)
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
func gonePools(blocks []list.BlockRow, known map[string]bool, draws func(pool string) bool) []Pool {
	var gone []Pool
	for i := range blocks {
		b := &blocks[i]
		if known[b.Pool+" "+b.Family] || !draws(b.Pool) {
			continue
		}
		at := slices.IndexFunc(gone, func(p Pool) bool { return p.Name == b.Pool && p.Family == b.Family })
		if at < 0 {
			at = len(gone)
			gone = append(gone, Pool{
				Name: b.Pool, Family: b.Family, BlockBits: b.CIDR.Bits(), State: "Gone",
				Message: "blocks name this pool, and there is none", Sections: []Section{},
			})
		}
		gone[at].Add(b.Phase)
		gone[at].Addresses += b.Addresses
		gone[at].Used += b.Used
	}
	return gone
}

func usersIn(cidr netip.Prefix, all map[netip.Addr]string) []User {
	var users []User
	for addr, name := range all {
		if cidr.Contains(addr) {
			users = append(users, User{IP: addr, Name: name})
		}
	}
	slices.SortFunc(users, func(a, b User) int { return a.IP.Compare(b.IP) })
	return users
}
