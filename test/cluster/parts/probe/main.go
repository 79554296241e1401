// Command probe runs in the pods of the real cluster's scenarios.
//
//	probe serve    answer HTTP on 8080 and echo UDP on 8081
//	probe get URL  print what a server answers; a third argument is the address
//	               to ask from
//
// As a server it answers / with the pod's name. /ping?peer=ADDRESS begins to send a datagram
// to the peer every 50 ms, until the pod ends; /pings reports, for each peer, the numbers of
// sent and lost ones and the longest gap.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

const (
	httpPort = "8080"
	echoPort = "8081"
	// getTimeout limits a request of "probe get".
	getTimeout = 5 * time.Second
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 1 && args[0] == "serve":
		return serve()
	case len(args) == 2 && args[0] == "get":
		return get(args[1], nil)
	case len(args) == 3 && args[0] == "get":
		return get(args[1], net.ParseIP(args[2]))
	}
	return fmt.Errorf("usage: probe serve, or probe get URL [ADDRESS]")
}

func get(url string, from net.IP) error {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: from}}
	client := http.Client{Timeout: getTimeout, Transport: &http.Transport{DialContext: dialer.DialContext}}
	answer, err := client.Get(url)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, err = io.Copy(os.Stdout, answer.Body)
	return err
}

func serve() error {
	echo, err := net.ListenPacket("udp", ":"+echoPort)
	if err != nil {
		return err
	}
	go reflect(echo)
	var p pingers
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		name, _ := os.Hostname() // Kubernetes sets it to the pod's name.
		fmt.Fprintln(w, name)
	})
	mux.HandleFunc("/ping", func(w http.ResponseWriter, r *http.Request) {
		if err := p.start(r.FormValue("peer")); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	})
	mux.HandleFunc("/pings", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(p.results(time.Now()))
	})
	// PID 1 of a container exits on SIGTERM only if it handles the signal.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	go func() { <-signals; os.Exit(0) }()
	return http.ListenAndServe(":"+httpPort, mux)
}

// reflect sends back every datagram.
func reflect(conn net.PacketConn) {
	buffer := make([]byte, 64)
	for {
		n, from, err := conn.ReadFrom(buffer)
		if err != nil {
			continue
		}
		_, _ = conn.WriteTo(buffer[:n], from) // It counts as lost, like any datagram.
	}
}

// pingers are the peers that this pod pings.
type pingers struct {
	mu    sync.Mutex
	peers map[string]*pinger
}

func (p *pingers) start(peer string) error {
	if net.ParseIP(peer) == nil {
		return fmt.Errorf("peer is %q: give an IP address", peer)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.peers[peer] != nil {
		return nil
	}
	conn, err := net.Dial("udp", net.JoinHostPort(peer, echoPort))
	if err != nil {
		return err
	}
	if p.peers == nil {
		p.peers = map[string]*pinger{}
	}
	p.peers[peer] = newPinger()
	go p.peers[peer].send(conn)
	go p.peers[peer].receive(conn)
	return nil
}

func (p *pingers) results(now time.Time) map[string]result {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[string]result{}
	for peer, pinger := range p.peers {
		out[peer] = pinger.result(now)
	}
	return out
}
