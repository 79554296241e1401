//go:build linux

package bed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

const (
	// pingGrace is the time for the last replies.
	pingGrace = 2 * time.Second
	// pingBuffer holds the packets of all flows of a pod for one second: each socket gets all
	// of them, and on a busy machine packets read too late would count as lost.
	pingBuffer = 2 << 20
)

// Pings is a flow of echo requests from a pod to another address.
type Pings struct {
	target netip.Addr
	kind   kind
	conn   *net.IPConn
	stop   context.CancelFunc
	done   sync.WaitGroup

	// Requests are numbered from 1. The identifier has the bits that do not fit
	// into the sequence number.
	mu       sync.Mutex
	answered map[uint32]bool
	sent     uint32
	slowest  time.Duration
	at       map[uint32]time.Time
}

// kind is ICMP of one family.
type kind struct {
	network       string
	protocol      int // by its number in IP
	request, echo icmp.Type
}

func kindOf(target netip.Addr) kind {
	if target.Is4() {
		return kind{"ip4:icmp", 1, ipv4.ICMPTypeEcho, ipv4.ICMPTypeEchoReply}
	}
	return kind{"ip6:ipv6-icmp", 58, ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply}
}

// Count counts the requests and their outcomes.
type Count struct {
	Sent, Lost int
	// Slowest is the longest time between a request and its reply.
	Slowest time.Duration
	// FirstLost is when the first lost request was sent.
	FirstLost time.Time
}

// Ping sends a request every interval until Stop.
func (p *Pod) Ping(target netip.Addr, interval time.Duration) (*Pings, error) {
	return ping(p.netns, p.Name, target, interval)
}

// Ping pings from the machine itself, as a kubelet probes its pods.
func (n *Node) Ping(target netip.Addr, interval time.Duration) (*Pings, error) {
	netns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", n.holder.PID()))
	if err != nil {
		return nil, fmt.Errorf("ping from %s: %w", n.Name, err)
	}
	defer netns.Close()
	return ping(netns, n.Name, target, interval)
}

func ping(netns *os.File, from string, target netip.Addr, interval time.Duration) (*Pings, error) {
	f := &Pings{target: target, kind: kindOf(target), answered: map[uint32]bool{}, at: map[uint32]time.Time{}}
	err := inNetns(netns, func() error {
		var err error
		if f.conn, err = net.ListenIP(f.kind.network, &net.IPAddr{}); err != nil {
			return err
		}
		return f.conn.SetReadBuffer(pingBuffer)
	})
	if err != nil {
		return nil, fmt.Errorf("ping from %s: %w", from, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	f.stop = cancel
	f.done.Go(func() { f.send(ctx, interval) })
	go f.receive()
	return f, nil
}

// Stop waits for the last replies and counts.
func (f *Pings) Stop() (Count, error) {
	f.stop()
	f.done.Wait()
	deadline := time.Now().Add(pingGrace)
	for f.count().Lost > 0 && time.Now().Before(deadline) {
		time.Sleep(pollTick)
	}
	return f.count(), f.conn.Close()
}

func (f *Pings) count() Count {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := Count{Sent: int(f.sent), Slowest: f.slowest}
	for seq := uint32(1); seq <= f.sent; seq++ {
		if !f.answered[seq] {
			if c.Lost == 0 {
				c.FirstLost = f.at[seq]
			}
			c.Lost++
		}
	}
	return c
}

func (f *Pings) send(ctx context.Context, interval time.Duration) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		f.mu.Lock()
		f.sent++
		seq := f.sent
		f.at[seq] = time.Now()
		f.mu.Unlock()
		echo := &icmp.Echo{ID: identifier(seq), Seq: int(uint16(seq)), Data: make([]byte, 16)}
		message := icmp.Message{Type: f.kind.request, Body: echo}
		data, err := message.Marshal(nil)
		if err != nil {
			return
		}
		// An error means a lost request, which is counted as such.
		_, _ = f.conn.WriteTo(data, &net.IPAddr{IP: f.target.AsSlice()})
	}
}

func (f *Pings) receive() {
	buffer := make([]byte, 1500)
	for {
		n, from, err := f.conn.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || from.String() != f.target.String() {
			continue
		}
		message, err := icmp.ParseMessage(f.kind.protocol, buffer[:n])
		if err != nil || message.Type != f.kind.echo {
			continue
		}
		if echo, ok := message.Body.(*icmp.Echo); ok {
			f.answer(uint32(uint16(echo.ID-identifier(0)))<<16 | uint32(uint16(echo.Seq)))
		}
	}
}

// identifier returns the ICMP identifier of a request: the process ID, plus one for each
// 65,536 requests, as the sequence number wraps around.
func identifier(seq uint32) int { return int(uint16(os.Getpid() + int(seq>>16))) }

func (f *Pings) answer(seq uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answered[seq] = true
	if took := time.Since(f.at[seq]); !f.at[seq].IsZero() && took > f.slowest {
		f.slowest = took
	}
}

// Target returns the address that is pinged.
func (f *Pings) Target() netip.Addr { return f.target }
