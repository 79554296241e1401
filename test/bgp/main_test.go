package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"
)

const loopback = "127.0.0.1"

// speaker returns a BGP speaker that peers with the router as an agent does, and may announce.
func speaker(t *testing.T, port int) *server.BgpServer {
	t.Helper()
	s := server.NewBgpServer()
	go s.Serve()
	if err := s.StartBgp(t.Context(), &api.StartBgpRequest{Global: &api.Global{Asn: 65001, RouterId: "192.0.2.10", ListenPort: -1}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	err := s.AddPeer(t.Context(), &api.AddPeerRequest{Peer: &api.Peer{
		Conf:      &api.PeerConf{NeighborAddress: loopback, PeerAsn: 65000},
		Transport: &api.Transport{RemotePort: uint32(port)},
		Timers:    &api.Timers{Config: &api.TimersConfig{ConnectRetry: 1, IdleHoldTimeAfterReset: 1}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func path(t *testing.T, prefix string) *apiutil.Path {
	t.Helper()
	nlri, err := bgp.NewIPAddrPrefix(netip.MustParsePrefix(prefix))
	if err != nil {
		t.Fatal(err)
	}
	via, err := bgp.NewPathAttributeNextHop(netip.MustParseAddr("192.0.2.10"))
	if err != nil {
		t.Fatal(err)
	}
	return &apiutil.Path{
		Family: bgp.RF_IPv4_UC, Nlri: nlri, Attrs: []bgp.PathAttributeInterface{bgp.NewPathAttributeOrigin(bgp.BGP_ORIGIN_ATTR_TYPE_IGP), via},
	}
}

func TestRouterTellsWhatIsAnnounced(t *testing.T) {
	l, err := net.Listen("tcp", loopback+":0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	read, write := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := run(ctx, options{as: 65000, peerAS: 65001, port: port, id: "192.0.2.1", peers: loopback}, write)
		done <- err
		_ = write.CloseWithError(io.EOF)
	}()
	events := bufio.NewScanner(read)
	next := func(what, prefix string) Event {
		for events.Scan() {
			var e Event
			if err := json.Unmarshal(events.Bytes(), &e); err != nil {
				t.Fatal(err)
			}
			if e.What == "down" {
				continue // while it is coming up
			}
			if e.What != what || e.Prefix != prefix {
				t.Fatalf("the router tells %+v, not %s %s", e, what, prefix)
			}
			return e
		}
		t.Fatalf("the router ends before it tells %s %s", what, prefix)
		return Event{}
	}

	s := speaker(t, port)
	next("up", "")
	added := path(t, "100.66.224.0/27")
	ids, err := s.AddPath(apiutil.AddPathRequest{Paths: []*apiutil.Path{added}})
	if err != nil {
		t.Fatal(err)
	}
	if e := next("announce", "100.66.224.0/27"); e.Via == "" || e.Peer != loopback || e.At.IsZero() {
		t.Errorf("announced as %+v", e)
	}
	if err := s.DeletePath(apiutil.DeletePathRequest{Paths: []*apiutil.Path{added}}); err != nil {
		t.Fatal(err, ids)
	}
	next("withdraw", "100.66.224.0/27")
	cancel()
	go func() { _, _ = io.Copy(io.Discard, read) }()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
