// Package mapcmd is kubectl cilium-pool map. Package addressmap, which knows no cluster, draws the
// map.
package mapcmd

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/addressmap"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cluster"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/output"
)

// mapping holds the flags of map.
type mapping struct {
	pools  []string
	format string
	port   int
	by     string
	layout string
}

func (m mapping) options() addressmap.Options {
	return addressmap.Options{By: addressmap.By(m.by), Layout: addressmap.Layout(m.layout)}
}

// New returns the command map.
func New(e *cli.Env) *cobra.Command {
	m := mapping{by: string(addressmap.ByUtilisation), layout: string(addressmap.Rows)}
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
			if err := m.options().Validate(); err != nil {
				return err
			}
			if m.format == "" {
				return serveMap(cmd.Context(), e, m)
			}
			return writeMap(cmd.Context(), e, m)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&m.format, "output", "o", "", "svg or json; empty: serve a page")
	f.StringSliceVar(&m.pools, "pool", nil, "only these pools")
	f.StringVar(&m.by, "by", m.by, "meaning of colours: utilisation, node or phase")
	f.StringVar(&m.layout, "layout", m.layout, "where cells are: rows, or hilbert for a Hilbert curve")
	f.IntVar(&m.port, "port", 0, "port on loopback; 0: any that is free")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"svg", "json"}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("by", cobra.FixedCompletions(addressmap.Bys(), cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("layout", cobra.FixedCompletions(addressmap.Layouts(), cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("pool", e.CompletePools)
	return cmd
}

// writeMap reads the cluster once, and writes its map.
func writeMap(ctx context.Context, e *cli.Env, m mapping) error {
	if m.format != "svg" && m.format != "json" {
		return output.Usagef("--output is %s: must be svg or json", m.format)
	}
	c, err := e.Read(ctx)
	if err != nil {
		return err
	}
	if err := checkPools(c, m.pools); err != nil {
		return err
	}
	drawn := mapOf(c, contextName(e), m.pools)
	if m.format == "json" {
		return output.WriteJSON(e.Out, drawn)
	}
	var picture bytes.Buffer
	if err := addressmap.SVG(&picture, drawn, m.options()); err != nil {
		return err
	}
	_, err = e.Out.Write(picture.Bytes())
	return err
}

func checkPools(c *cluster.Cluster, names []string) error {
	for _, name := range names {
		if c.PodIPPools[name] == nil {
			return fmt.Errorf("there is no PodIPPool %s", name)
		}
	}
	return nil
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

// serveMap serves the map until ctx ends.
func serveMap(ctx context.Context, e *cli.Env, m mapping) error {
	w, err := watchCluster(ctx, e)
	if err != nil {
		return err
	}
	first, err := w.cluster(ctx)
	if err != nil {
		return err
	}
	if err := checkPools(first, m.pools); err != nil {
		return err
	}
	name := contextName(e)
	board := addressmap.NewBoard(mapOf(first, name, m.pools))
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", fmt.Sprint(m.port)))
	if err != nil {
		return fmt.Errorf("cannot serve the map: %w. --port sets another", err)
	}
	token := rand.Text()
	page := url.URL{Scheme: "http", Host: listener.Addr().String(), Path: "/" + token + "/"}
	if m.by != string(addressmap.ByUtilisation) || m.layout != string(addressmap.Rows) {
		page.Fragment = url.Values{"by": {m.by}, "layout": {m.layout}}.Encode()
	}
	fmt.Fprintln(e.Out, page.String())
	fmt.Fprintln(e.ErrOut, "The map is there until you press Ctrl-C.")
	ctx, stop := context.WithCancel(ctx)
	var following sync.WaitGroup
	following.Go(func() {
		w.follow(ctx, board, func(c *cluster.Cluster) *addressmap.Map { return mapOf(c, name, m.pools) })
	})
	err = serve(ctx, listener, addressmap.Handler(board, token))
	stop()
	following.Wait()
	return err
}

// serve serves until ctx ends.
func serve(ctx context.Context, l net.Listener, h http.Handler) error {
	s := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() }) // streams would not end by themselves
	defer stop()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving the map: %w", err)
	}
	return nil
}

// wanted reports whether a pool is among names; no names select all.
func wanted(names []string, pool string) bool { return len(names) == 0 || slices.Contains(names, pool) }
