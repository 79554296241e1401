package link

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"
)

// server answers each line with an s and the line, and tells what it received.
type server struct {
	listener net.Listener
	received chan string
}

func newServer(t *testing.T) *server {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	s := &server{listener: listener, received: make(chan string, 100)}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go s.serve(conn)
		}
	}()
	return s
}

func (s *server) serve(conn net.Conn) {
	defer conn.Close()
	line := make([]byte, 5)
	for {
		if _, err := io.ReadFull(conn, line); err != nil {
			s.received <- "end"
			return
		}
		s.received <- string(line)
		if _, err := conn.Write(append([]byte("s"), line...)); err != nil {
			return
		}
	}
}

func (s *server) wantReceived(t *testing.T, want string) {
	t.Helper()
	if got := <-s.received; got != want {
		t.Fatalf("the server received %q, want %q", got, want)
	}
}

func newLink(t *testing.T, target string) *Link {
	t.Helper()
	l, err := New(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

type client struct {
	*testing.T
	net.Conn
}

func dial(t *testing.T, l *Link) client {
	t.Helper()
	conn, err := net.Dial("tcp", l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return client{t, conn}
}

func (c client) send(line string) {
	c.Helper()
	if _, err := c.Write([]byte(line)); err != nil {
		c.Fatal(err)
	}
}

func (c client) want(answer string) {
	c.Helper()
	got := make([]byte, len(answer))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != answer {
		c.Fatalf("got %q, %v, want %q", got, err, answer)
	}
}

// wantNothing looks for an answer for a moment.
func (c client) wantNothing() {
	c.Helper()
	if err := c.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		c.Fatal(err)
	}
	n, err := c.Read(make([]byte, 1))
	var timeout net.Error
	if n != 0 || !errors.As(err, &timeout) || !timeout.Timeout() {
		c.Fatalf("read %d bytes, %v", n, err)
	}
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		c.Fatal(err)
	}
}

func (c client) wantReset() {
	c.Helper()
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		c.Fatalf("read ends with %v", err)
	}
}

func TestNothingPassesUntilTheQualityChanges(t *testing.T) {
	for name, test := range map[string]struct {
		quality  Quality
		received bool // by the server, before the change
	}{
		"delay":          {quality: Quality{Delay: time.Hour}},
		"partitioned":    {quality: Partitioned},
		"stall requests": {quality: Quality{StallRequests: true}},
		"stall answers":  {quality: Quality{StallAnswers: true}, received: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			l := newLink(t, s.listener.Addr().String())
			l.Set(test.quality)
			c := dial(t, l)
			c.send("hello")
			if test.received {
				s.wantReceived(t, "hello")
			}
			c.wantNothing()
			if n := len(s.received); n > 0 {
				t.Errorf("the server received %d lines", n)
			}
			l.Set(Quality{})
			c.want("shello")
		})
	}
}

// TestLateRequest: bytes that a client wrote before it went away arrive after the partition.
func TestLateRequest(t *testing.T) {
	s := newServer(t)
	l := newLink(t, s.listener.Addr().String())
	c := dial(t, l)
	c.send("hello")
	c.want("shello")
	s.wantReceived(t, "hello")
	l.Set(Partitioned)
	c.send("later")
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if n := len(s.received); n > 0 {
		t.Errorf("the server received %d lines", n)
	}
	l.Set(Quality{KeepOpen: true})
	s.wantReceived(t, "later")
	select {
	case got := <-s.received:
		t.Errorf("the server received %q while its connection is kept open", got)
	case <-time.After(50 * time.Millisecond):
	}
	l.Set(Quality{})
	s.wantReceived(t, "end")
}

func TestForgottenConnectionStaysSilent(t *testing.T) {
	s := newServer(t)
	l := newLink(t, s.listener.Addr().String())
	before := dial(t, l)
	before.send("hello")
	before.want("shello")
	l.Forget()
	before.send("again")
	before.wantNothing()
	after := dial(t, l)
	after.send("hello")
	after.want("shello")
	l.Set(Quality{})
	before.wantNothing()
	l.Reset()
	before.wantReset()
	after.wantReset()
}
