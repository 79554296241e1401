// Package link is a network that fails on request: a TCP proxy in front of a server. Its
// connections can be slowed, stalled, reset and forgotten.
//
// It owns its connections. It does not look at their content, and never changes a byte or the order
// of bytes.
package link

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Quality is how bytes travel. The zero value passes them on at once.
type Quality struct {
	// Delay is the time that each byte travels in one direction.
	Delay time.Duration
	// StallRequests and StallAnswers keep bytes of that direction in the link until the quality
	// changes, as after a partition TCP still delivers bytes sent before it. Connections are
	// accepted meanwhile.
	StallRequests, StallAnswers bool
	// KeepOpen keeps a connection open for one end while the other has closed it, so that
	// a server still serves the last requests of a process that is gone.
	KeepOpen bool
}

// Partitioned is the Quality of a link that passes no bytes.
var Partitioned = Quality{StallRequests: true, StallAnswers: true}

// Link is a proxy. Its methods may be called concurrently.
type Link struct {
	listener net.Listener
	target   string
	serving  sync.WaitGroup

	mu      sync.Mutex
	quality Quality
	closed  bool
	changed chan struct{} // closed at each change, and then replaced
	conns   map[*conn]bool
}

// New returns a link that listens on a free port of the loopback and leads to target, a
// host:port.
func New(target string) (*Link, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("make a link to %s: %w", target, err)
	}
	l := &Link{listener: listener, target: target, changed: make(chan struct{}), conns: map[*conn]bool{}}
	l.serving.Go(l.serve)
	return l, nil
}

// Addr is the host:port of the link.
func (l *Link) Addr() string { return l.listener.Addr().String() }

// Set changes the quality of all connections, present and future.
func (l *Link) Set(q Quality) { l.change(func() { l.quality = q }) }

// Forget makes the present connections half-open: they pass no bytes any more, and neither end is
// notified, as where a NAT or a load balancer has lost its state.
func (l *Link) Forget() {
	l.change(func() {
		for c := range l.conns {
			c.forgotten = true
		}
	})
}

// Reset ends the present connections, even forgotten ones, with a reset for both ends. Bytes that
// the link still held are lost.
func (l *Link) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		c.reset()
	}
}

// Close resets all connections and stops listening.
func (l *Link) Close() error {
	l.change(func() { l.closed = true })
	err := l.listener.Close()
	l.Reset()
	l.serving.Wait()
	return err
}

func (l *Link) change(how func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	how()
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *Link) serve() {
	for {
		client, err := l.listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err == nil:
			l.serving.Go(func() { l.connect(client) })
		}
	}
}

// connect serves one connection until it ends.
func (l *Link) connect(client net.Conn) {
	c := &conn{link: l, client: client, ended: make(chan struct{})}
	server, err := net.Dial("tcp", l.target)
	if err != nil {
		c.reset()
		return
	}
	c.server = server
	l.mu.Lock()
	l.conns[c] = true
	if l.closed {
		c.reset()
	}
	l.mu.Unlock()
	var pumps sync.WaitGroup
	pumps.Go(func() { c.pump(client, server, func(q Quality) bool { return q.StallRequests }) })
	pumps.Go(func() { c.pump(server, client, func(q Quality) bool { return q.StallAnswers }) })
	pumps.Wait()
	l.mu.Lock()
	delete(l.conns, c)
	l.mu.Unlock()
}

// conn is one connection. forgotten is guarded by link.mu.
type conn struct {
	link           *Link
	client, server net.Conn
	forgotten      bool
	ended          chan struct{}
	end            sync.Once
}

// reset ends the connection at once.
func (c *conn) reset() {
	for _, side := range []net.Conn{c.client, c.server} {
		if tcp, is := side.(*net.TCPConn); is {
			_ = tcp.SetLinger(0) // it may have ended already
		}
	}
	c.close()
}

func (c *conn) close() {
	c.end.Do(func() {
		close(c.ended)
		for _, side := range []net.Conn{c.client, c.server} {
			if side != nil {
				_ = side.Close() // it may have ended already
			}
		}
	})
}

// piece holds the bytes that arrived at the link at once.
type piece struct {
	data []byte
	at   time.Time
}

// inTransit is the number of pieces that a direction of a connection holds; beyond that the sender
// waits.
const inTransit = 1024

// pump passes on one direction until the connection ends. Bytes that a sender wrote before it
// closed the connection still arrive, and then its end.
func (c *conn) pump(from, to net.Conn, stalled func(Quality) bool) {
	pieces := make(chan piece, inTransit)
	var reading sync.WaitGroup
	defer reading.Wait()
	reading.Go(func() {
		defer close(pieces)
		for {
			buffer := make([]byte, 16<<10)
			n, err := from.Read(buffer)
			if err != nil {
				return
			}
			select {
			case pieces <- piece{data: buffer[:n], at: time.Now()}:
			case <-c.ended:
				return
			}
		}
	})
	defer c.close()
	for p := range pieces {
		if !c.travel(p, stalled) {
			return
		}
		if _, err := to.Write(p.data); err != nil {
			return
		}
	}
	c.travel(piece{at: time.Now()}, func(q Quality) bool { return q.KeepOpen || stalled(q) }) // the end travels as well
}

// travel waits until a piece arrives; false: the connection ended before.
func (c *conn) travel(p piece, stalled func(Quality) bool) bool {
	for {
		c.link.mu.Lock()
		q, changed, forgotten := c.link.quality, c.link.changed, c.forgotten
		c.link.mu.Unlock()
		var arrives <-chan time.Time
		if !forgotten && !stalled(q) {
			wait := time.Until(p.at.Add(q.Delay))
			if wait <= 0 {
				return true
			}
			arrives = time.After(wait)
		}
		select {
		case <-arrives:
		case <-changed:
		case <-c.ended:
			return false
		}
	}
}
