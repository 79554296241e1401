package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

func TestRunExitCodes(t *testing.T) {
	tests := map[string]struct {
		args           []string
		code           int
		stdout, stderr string // texts that they must contain; "": empty
	}{
		"help":                {args: []string{"--help"}, code: 0, stdout: "Exit codes: 0 asked to stop"},
		"short help":          {args: []string{"-h"}, code: 0, stdout: "--expand-threshold-percent"},
		"version":             {args: []string{"--version"}, code: 0, stdout: "cilium-pool-operator dev ("},
		"unknown flag":        {args: []string{"--nonsense"}, code: 2, stderr: "unknown flag: --nonsense\nSee cilium-pool-operator --help."},
		"unreadable value":    {args: []string{"--node-workers=many"}, code: 2, stderr: `invalid argument "many" for "--node-workers"`},
		"value out of range":  {args: []string{"--node-workers=0"}, code: 2, stderr: "--node-workers is 0: must be between 1 and 1024"},
		"unexpected argument": {args: []string{"start"}, code: 2, stderr: `unexpected argument "start"`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if code := run(t.Context(), test.args, &stdout, &stderr); code != test.code {
				t.Errorf("exit code %d, want %d", code, test.code)
			}
			for got, want := range map[*bytes.Buffer]string{&stdout: test.stdout, &stderr: test.stderr} {
				if !strings.Contains(got.String(), want) || (want == "" && got.Len() > 0) {
					t.Errorf("wrote %q, want %q in it", got, want)
				}
			}
		})
	}
}

// kubeconfig writes a kubeconfig for a server at address.
func kubeconfig(t *testing.T, address string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	body := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://%s"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u}]
current-context: c
`, address)
	if err := os.WriteFile(path, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// closedPort returns an address that refuses connections.
func closedPort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// inTime fails the test if f takes far too long.
func inTime[T any](t *testing.T, f func() T) T {
	t.Helper()
	done := make(chan T, 1)
	go func() { done <- f() }()
	select {
	case v := <-done:
		return v
	case <-time.After(45 * time.Second):
		t.Fatal("not done after 45 seconds")
		panic("unreachable")
	}
}

func TestRunWithoutAnAPIServer(t *testing.T) {
	args := []string{"--kubeconfig", kubeconfig(t, closedPort(t)), "--log-level=error"}
	code := inTime(t, func() int { return run(t.Context(), args, &bytes.Buffer{}, &bytes.Buffer{}) })
	if code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
}

// A server that accepts the connection and never answers must not block the operator
// forever.
func TestServeEndsWhenAskedTo(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o := parsed(t, "--kubeconfig", kubeconfig(t, listener.Addr().String()))
	if err := inTime(t, func() error { return serve(ctx, o) }); err == nil {
		t.Error("no error, though there was no answer")
	}
}

func TestServeMessages(t *testing.T) {
	address := closedPort(t)
	tests := map[string]struct {
		kubeconfig string
		want       []string
	}{
		"unreachable":       {kubeconfig(t, address), []string{"cannot reach the API server at http://" + address, "Check --kubeconfig"}},
		"no such file":      {filepath.Join(t.TempDir(), "none"), []string{"no API server to talk to", "none", "give --kubeconfig"}},
		"nothing in a file": {empty(t), []string{"no API server to talk to", "give --kubeconfig"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", "")
			t.Setenv("HOME", t.TempDir())
			err := inTime(t, func() error { return serve(t.Context(), parsed(t, "--kubeconfig", test.kubeconfig)) })
			if err == nil {
				t.Fatal("no error")
			}
			for _, part := range test.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q is not in: %v", part, err)
				}
			}
		})
	}
}

// TestRequestsAreCounted checks that the registry behind /metrics counts requests by code
// and method.
func TestRequestsAreCounted(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	o := parsed(t, "--kubeconfig", kubeconfig(t, strings.TrimPrefix(server.URL, "http://")))
	if err := inTime(t, func() error { return serve(t.Context(), o) }); err == nil {
		t.Fatal("no error, though nothing was found")
	}
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "rest_client_requests_total" {
			return
		}
	}
	t.Error("no request was counted")
}

func empty(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
