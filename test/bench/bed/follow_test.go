package bed

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"
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
