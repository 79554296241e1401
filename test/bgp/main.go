// Command bgp-router is a router that nodes peer with. It accepts the routes that they announce,
// prints each change, and can install them in the kernel of its network namespace. It announces no
// route itself.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"
)

// restartTime is the longest time that routes are kept while their speaker is away, in seconds;
// less if the speaker requests less (RFC 4724).
const restartTime = 120

type options struct {
	as, peerAS uint
	port       int
	id         string
	peers      string
	kernel     bool
}

func main() {
	var o options
	flag.UintVar(&o.as, "as", 65000, "own AS number")
	flag.UintVar(&o.peerAS, "peer-as", 65001, "AS number of all peers")
	flag.IntVar(&o.port, "port", 179, "TCP port to listen on")
	flag.StringVar(&o.id, "id", "", "router id: an IPv4 address of its own")
	flag.StringVar(&o.peers, "peers", "", "addresses of the peers, which connect, separated by commas")
	flag.BoolVar(&o.kernel, "kernel", false, "put the routes into the kernel")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bgp-router:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, out io.Writer) error {
	s := server.NewBgpServer(server.LoggerOption(slog.New(slog.NewTextHandler(os.Stderr, nil)), &slog.LevelVar{}))
	go s.Serve()
	err := s.StartBgp(ctx, &api.StartBgpRequest{Global: &api.Global{Asn: uint32(o.as), RouterId: o.id, ListenPort: int32(o.port)}})
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	t := &teller{out: json.NewEncoder(out), kernel: o.kernel}
	err = s.WatchEvent(ctx, server.WatchEventMessageCallbacks{OnBestPath: t.paths, OnPeerUpdate: t.peer}, server.WatchBestPath(true), server.WatchPeer())
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	for address := range strings.SplitSeq(o.peers, ",") {
		if err := s.AddPeer(ctx, &api.AddPeerRequest{Peer: peer(address, uint32(o.peerAS))}); err != nil {
			return fmt.Errorf("add peer %s: %w", address, err)
		}
	}
	<-ctx.Done()
	return s.StopBgp(context.WithoutCancel(ctx), &api.StopBgpRequest{})
}

// peer waits for a peer to connect, and keeps its routes while it restarts.
func peer(address string, as uint32) *api.Peer {
	p := &api.Peer{
		Conf:            &api.PeerConf{NeighborAddress: address, PeerAsn: as},
		Transport:       &api.Transport{PassiveMode: true},
		GracefulRestart: &api.GracefulRestart{Enabled: true, RestartTime: restartTime},
	}
	for _, afi := range []api.Family_Afi{api.Family_AFI_IP, api.Family_AFI_IP6} {
		p.AfiSafis = append(p.AfiSafis, &api.AfiSafi{
			Config:            &api.AfiSafiConfig{Family: &api.Family{Afi: afi, Safi: api.Family_SAFI_UNICAST}, Enabled: true},
			MpGracefulRestart: &api.MpGracefulRestart{Config: &api.MpGracefulRestartConfig{Enabled: true}},
		})
	}
	return p
}

// Event is a line of the output.
type Event struct {
	// At is when the router received it.
	At time.Time `json:"at"`
	// What is up or down for a session, announce or withdraw for a prefix.
	What string `json:"what"`
	// Peer is the peer of the session; Prefix and Via, its next hop, belong to a route.
	Peer   string `json:"peer,omitempty"`
	Prefix string `json:"prefix,omitempty"`
	Via    string `json:"via,omitempty"`
}

// teller writes events, one at a time.
type teller struct {
	kernel bool

	mu  sync.Mutex
	out *json.Encoder
}

func (t *teller) tell(e Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.out.Encode(e); err != nil {
		fmt.Fprintln(os.Stderr, "bgp-router:", err)
	}
}

func (t *teller) peer(e *apiutil.WatchEventMessage_PeerEvent, at time.Time) {
	if e.Type != apiutil.PEER_EVENT_STATE {
		return
	}
	what := "down"
	if e.Peer.State.SessionState == bgp.BGP_FSM_ESTABLISHED {
		what = "up"
	}
	t.tell(Event{At: at, What: what, Peer: e.Peer.State.NeighborAddress.String()})
}

// paths reports the current best paths of some prefixes.
func (t *teller) paths(paths []*apiutil.Path, _ time.Time) {
	for _, p := range paths {
		e := Event{At: time.Now(), What: "announce", Peer: p.PeerAddress.String(), Prefix: p.Nlri.String(), Via: nextHop(p).String()}
		if p.Withdrawal {
			e.What, e.Via = "withdraw", ""
		}
		if t.kernel {
			if err := route(e); err != nil {
				fmt.Fprintln(os.Stderr, "bgp-router:", err)
			}
		}
		t.tell(e)
	}
}

func nextHop(p *apiutil.Path) netip.Addr {
	for _, a := range p.Attrs {
		switch a := a.(type) {
		case *bgp.PathAttributeNextHop:
			return a.Value
		case *bgp.PathAttributeMpReachNLRI:
			return a.Nexthop
		}
	}
	return netip.Addr{}
}

// route applies an event to the kernel's routes.
func route(e Event) error {
	args := []string{"route", "replace", e.Prefix, "via", e.Via}
	if e.What == "withdraw" {
		args = []string{"route", "del", e.Prefix}
	}
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}
