package bed

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// A watch begins once the API server is ready for it, and ends with the context if it never
// is. Any other refusal is an error at once.
func TestFollowWaitsForReadiness(t *testing.T) {
	tests := map[string]struct {
		status, refusals int
		want             string // the name in the event
		tries            int32
	}{
		"ready":              {http.StatusTooManyRequests, 0, "a", 1},
		"ready after a time": {http.StatusTooManyRequests, 2, "a", 3},
		"forbidden":          {http.StatusForbidden, 1, "", 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var tries atomic.Int32
			config := apiServer(t, func(w http.ResponseWriter) {
				if int(tries.Add(1)) <= test.refusals {
					refuse(w, test.status)
					return
				}
				fmt.Fprintln(w, `{"type":"ADDED","object":{"metadata":{"name":"a"}}}`)
			})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			f, err := Follow(ctx, config, Nodes, "")
			got := ""
			if err == nil {
				err = f.Run(ctx, func(event []byte) { got = Name(event); cancel() })
			}
			if got != test.want || (err == nil) != (test.want != "") || test.want == "" && tries.Load() != test.tries || tries.Load() < test.tries {
				t.Errorf("%q after %d tries: %v", got, tries.Load(), err)
			}
		})
	}
}

func TestFollowIsNeverReady(t *testing.T) {
	tired := errors.New("out of patience")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	config := apiServer(t, func(w http.ResponseWriter) {
		refuse(w, http.StatusTooManyRequests)
		cancel(tired)
	})
	if _, err := Follow(ctx, config, Nodes, ""); err == nil {
		t.Error("it follows what is never ready")
	}
}

// Neither other watches nor requests with the same config use the connection of a watch, which
// is closed when the watch ends.
func TestFollowersHaveTheirOwnConnections(t *testing.T) {
	var mu sync.Mutex
	paths := map[string]string{} // by the address of the connection on which they were requested
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		if other, used := paths[r.RemoteAddr]; r.ProtoMajor != 2 || used && other != r.URL.Path {
			t.Errorf("%s over the %s connection of %q", r.URL.Path, r.Proto, other)
		}
		paths[r.RemoteAddr] = r.URL.Path
		mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		if !r.URL.Query().Has("watch") {
			fmt.Fprintln(w, emptyList)
			return
		}
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		<-r.Context().Done()
	}))
	closed := make(chan string, 10)
	server.Config.ConnState = func(c net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed <- c.RemoteAddr().String()
		}
	}
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL}
	config.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	api, err := RawClient(config)
	harness.Must(t, err)
	var watches sync.WaitGroup
	for _, path := range []string{Nodes, CiliumNodes} {
		f, err := Follow(ctx, config, path, "")
		harness.Must(t, err)
		watches.Go(func() {
			if err := f.Run(ctx, func([]byte) {}); err != nil {
				t.Error(err)
			}
		})
	}
	_, err = api.Get().AbsPath(Blocks).DoRaw(ctx)
	harness.Must(t, err)

	cancel()
	watches.Wait()
	for range 2 {
		select {
		case addr := <-closed:
			mu.Lock()
			if paths[addr] == Blocks {
				t.Error("the connection of the requests is closed")
			}
			mu.Unlock()
		case <-time.After(harness.Patience / 3): // client-go closes idle connections after 90 s
			t.Fatal("the connection of a watch that has ended is still open")
		}
	}
}

const emptyList = `{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`

// apiServer answers lists with an empty list and watches as watched does.
func apiServer(t *testing.T, watched func(w http.ResponseWriter)) *rest.Config {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Has("watch") {
			watched(w)
			return
		}
		fmt.Fprintln(w, emptyList)
	}))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL}
}

func refuse(w http.ResponseWriter, status int) {
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q}`, status, map[int]string{
		http.StatusTooManyRequests: "TooManyRequests", http.StatusForbidden: "Forbidden"}[status])
}
