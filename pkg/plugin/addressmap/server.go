package addressmap

import (
	"crypto/subtle"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/list"
)

//go:embed web
var web embed.FS

// policy lets the page load only from this server, and forbids framing it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// beat is the interval between the signs of life of an idle stream, so that the page notices when
// it breaks.
const beat = 10 * time.Second

// Board shows the latest map to all viewers. It is safe for concurrent use.
type Board struct {
	mu      sync.Mutex
	current *Map
	problem string
	turned  chan struct{} // closed at the next change
}

// NewBoard returns a board that shows a first map.
func NewBoard(first *Map) *Board {
	return &Board{current: first, turned: make(chan struct{})}
}

// Put shows the next map, which must not be modified afterwards.
func (b *Board) Put(next *Map) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.current = next
	b.turn()
}

// Problem sets why the map may be outdated; empty: it is not.
func (b *Board) Problem(reason string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.problem != reason {
		b.problem = reason
		b.turn()
	}
}

func (b *Board) turn() {
	close(b.turned)
	b.turned = make(chan struct{})
}

// look returns the current map and problem, and a channel that is closed when they change.
func (b *Board) look() (*Map, string, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.current, b.problem, b.turned
}

// Handler serves the page of a board under /token/. It answers only requests to a loopback
// address, so that no other page can reach it under a name of its own (DNS rebinding), and only
// with the token, so that no other user of the machine can.
func Handler(b *Board, token string) http.Handler {
	files, err := fs.Sub(web, "web")
	if err != nil {
		panic(err) // the folder is embedded
	}
	mux := http.NewServeMux()
	mux.Handle("GET /", http.FileServerFS(files))
	mux.HandleFunc("GET /events", b.events)
	mux.HandleFunc("GET /block", b.block)
	mux.HandleFunc("GET /search", b.search)
	inside := http.StripPrefix("/"+token, mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		head := w.Header()
		head.Set("Content-Security-Policy", policy)
		head.Set("X-Content-Type-Options", "nosniff")
		head.Set("Referrer-Policy", "no-referrer")
		head.Set("Cross-Origin-Resource-Policy", "same-origin")
		head.Set("Cross-Origin-Opener-Policy", "same-origin")
		head.Set("Cache-Control", "no-store")
		given, _, below := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		switch {
		case !isLoopback(r.Host) || !sameOrigin(r):
			http.Error(w, "this page answers on loopback only", http.StatusForbidden)
		case !below || subtle.ConstantTimeCompare([]byte(given), []byte(token)) != 1:
			http.Error(w, "the address of the map is what kubectl cilium-pool map printed, with its token", http.StatusNotFound)
		default:
			inside.ServeHTTP(w, r)
		}
	})
}

// isLoopback reports whether a Host header names a loopback address. Its port may differ from
// ours: that of a tunnel that ends here.
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && addr.IsLoopback()
}

// sameOrigin reports whether, by the browser's headers, a request does not come from another
// page.
func sameOrigin(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return false
	}
	origin := r.Header.Get("Origin")
	return origin == "" || origin == "http://"+r.Host
}

// events streams the map, then its changes. A slow browser gets fewer and larger changes: each one
// leads from the map it last received to the current one.
func (b *Board) events(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	tick := time.NewTicker(beat)
	defer tick.Stop()
	var sent *Map
	said := ""
	for {
		now, problem, turned := b.look()
		err := sendMap(w, sent, now)
		if err == nil && (problem != said || sent == nil) {
			err = send(w, "problem", problem)
		}
		if err != nil || out.Flush() != nil {
			return
		}
		sent = now
		said = problem
		select {
		case <-r.Context().Done():
			return
		case <-turned:
		case tickTime := <-tick.C:
			if send(w, "beat", tickTime) != nil {
				return
			}
		}
	}
}

// sendMap sends the difference to a browser that last received a map, or nil.
func sendMap(w http.ResponseWriter, sent, now *Map) error {
	if sent == nil {
		return send(w, "map", now.withoutUsers())
	}
	if now != sent {
		return send(w, "change", sent.changeTo(now))
	}
	return nil
}

func send(w http.ResponseWriter, event string, data any) error {
	body, err := json.Marshal(data)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", event, body)
	return err
}

// block serves the users of the addresses of ?cidr=.
func (b *Board) block(w http.ResponseWriter, r *http.Request) {
	cidr, err := netip.ParsePrefix(r.URL.Query().Get("cidr"))
	if err != nil {
		http.Error(w, "cidr is no prefix", http.StatusBadRequest)
		return
	}
	now, _, _ := b.look()
	users := []list.User{}
	if found := now.block(cidr); found != nil {
		users = append(users, found.Users...)
	}
	writeJSON(w, users)
}

// Found is a user of an address that a search found.
type Found struct {
	list.User
	Block netip.Prefix `json:"block"`
	Node  string       `json:"node"`
}

// mostFound is the largest number of users that a search returns.
const mostFound = 50

// search finds users, such as pods, by a part of their name (?user=).
func (b *Board) search(w http.ResponseWriter, r *http.Request) {
	want := strings.ToLower(r.URL.Query().Get("user"))
	now, _, _ := b.look()
	found := []Found{}
	for i := range now.Blocks {
		block := &now.Blocks[i]
		for _, u := range block.Users {
			if want != "" && len(found) < mostFound && strings.Contains(strings.ToLower(u.Name), want) {
				found = append(found, Found{User: u, Block: block.CIDR, Node: block.Node})
			}
		}
	}
	writeJSON(w, found)
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	// If it fails, the client is gone.
	_ = json.NewEncoder(w).Encode(v)
}
