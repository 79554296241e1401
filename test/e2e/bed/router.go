//go:build linux

package bed

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/harness/process"
)

const routerProgram = "bgp-router"

// The AS numbers of the router and of the nodes.
const (
	RouterAS = 65000
	NodeAS   = 65001
)

// RouteEvent is an event of a session or a route: a line of the router's output (test/bgp,
// Event).
type RouteEvent struct {
	At     time.Time    `json:"at"`
	What   string       `json:"what"` // up or down; announce or withdraw
	Peer   netip.Addr   `json:"peer"`
	Prefix netip.Prefix `json:"prefix"`
	Via    netip.Addr   `json:"via"`
}

// Router is a BGP router on a machine that is not a node. It installs the announced routes in
// its kernel.
type Router struct {
	// Machine is the machine that it runs on: pings from there follow the announced routes.
	Machine *Node
	process *process.Process
	log     string
}

// StartRouter starts a router that waits for peers.
func (b *Bed) StartRouter(ctx context.Context, peers ...*Node) (*Router, error) {
	program := filepath.Join(b.opts.BinDir, routerProgram)
	if _, err := os.Stat(program); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the router is not built (make %s): %w", program, err)
	}
	machine, err := b.AddNode(ctx, "router")
	if err != nil {
		return nil, err
	}
	var addresses []string
	for _, p := range peers {
		addresses = append(addresses, p.Addresses[0].String())
	}
	p, err := b.spawn(routerProgram, machine.enter(program,
		fmt.Sprintf("-as=%d", RouterAS), fmt.Sprintf("-peer-as=%d", NodeAS), "-id="+machine.Addresses[0].String(),
		"-peers="+strings.Join(addresses, ","), "-kernel")...)
	if err != nil {
		return nil, err
	}
	return &Router{Machine: machine, process: p, log: filepath.Join(b.opts.Logs, routerProgram+".log")}, nil
}

// Events returns all events so far, in order.
func (r *Router) Events() ([]RouteEvent, error) {
	if !r.process.Running() {
		return nil, fmt.Errorf("the router has ended, %s tells why", r.log)
	}
	f, err := os.Open(r.log)
	if err != nil {
		return nil, fmt.Errorf("read what the router tells: %w", err)
	}
	defer f.Close()
	var out []RouteEvent
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if e, ok := routeEvent(lines.Bytes()); ok {
			out = append(out, e)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read what the router tells: %w", err)
	}
	return out, nil
}

// routeEvent parses a line of the log. Most lines are not events.
func routeEvent(line []byte) (e RouteEvent, ok bool) {
	return e, strings.HasPrefix(string(line), "{") && json.Unmarshal(line, &e) == nil && e.What != ""
}

// Routes returns the prefixes that the router has after these events, with their next hops.
func Routes(events []RouteEvent) map[netip.Prefix]netip.Addr {
	out := map[netip.Prefix]netip.Addr{}
	for _, e := range events {
		switch e.What {
		case "announce":
			out[e.Prefix] = e.Via
		case "withdraw":
			delete(out, e.Prefix)
		}
	}
	return out
}
