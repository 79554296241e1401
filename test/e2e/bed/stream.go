//go:build linux

package bed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"
)

const (
	echoPort = 7777
	echoSize = 8
)

// Stream is a TCP connection between two pods: one sends a few bytes at an interval, which the
// other echoes.
type Stream struct {
	listener net.Listener
	conn     net.Conn
	stop     context.CancelFunc
	done     sync.WaitGroup

	echoes  int
	slowest time.Duration
	err     error
}

// Stream connects to an address of another pod and sends at every interval until Stop.
func (p *Pod) Stream(to *Pod, at netip.Addr, interval time.Duration) (*Stream, error) {
	s := &Stream{}
	address := netip.AddrPortFrom(at, echoPort).String()
	err := inNetns(to.netns, func() (err error) {
		s.listener, err = net.Listen("tcp", address)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listen in %s: %w", to.Name, err)
	}
	go s.echo()
	err = inNetns(p.netns, func() (err error) {
		// Use a single address, so that no other goroutine, on another thread, dials.
		s.conn, err = net.DialTimeout("tcp", address, 10*time.Second)
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("connect %s to %s: %w", p.Name, to.Name, err), s.listener.Close())
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.stop = cancel
	s.done.Go(func() { s.err = s.send(ctx, interval) })
	return s, nil
}

// Stop ends the stream. It returns the number of echoes, the duration of the slowest, and the
// error that broke the connection, if any.
func (s *Stream) Stop() (echoes int, slowest time.Duration, err error) {
	s.stop()
	s.done.Wait()
	return s.echoes, s.slowest, errors.Join(s.err, s.conn.Close(), s.listener.Close())
}

func (s *Stream) echo() {
	conn, err := s.listener.Accept()
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = io.Copy(conn, conn)
}

func (s *Stream) send(ctx context.Context, interval time.Duration) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	buffer := make([]byte, echoSize)
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		began := time.Now()
		if err := s.conn.SetDeadline(began.Add(patience)); err != nil {
			return err
		}
		if _, err := s.conn.Write(buffer); err != nil {
			return err
		}
		if _, err := io.ReadFull(s.conn, buffer); err != nil {
			return err
		}
		s.echoes++
		s.slowest = max(s.slowest, time.Since(began))
	}
}
