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

func TestExitCodes(t *testing.T) {
	nowhere := "--kubeconfig=" + kubeconfig(t, closedPort(t))
	tests := map[string]struct {
		args           []string
		code           int
		stdout, stderr string // texts that they must contain; "": empty
	}{
		"help":                       {args: []string{"--help"}, code: 0, stdout: "Exit codes: 0 asked to stop"},
		"short help":                 {args: []string{"-h"}, code: 0, stdout: "--expand-threshold-percent"},
		"version":                    {args: []string{"--version"}, code: 0, stdout: "cilium-pool-operator dev ("},
		"unknown flag":               {args: []string{"--nonsense"}, code: 2, stderr: "unknown flag: --nonsense\nSee cilium-pool-operator --help."},
		"unreadable value":           {args: []string{"--node-workers=many"}, code: 2, stderr: `invalid argument "many" for "--node-workers"`},
		"value out of range":         {args: []string{"--node-workers=0"}, code: 2, stderr: "--node-workers is 0: must be between 1 and 1024"},
		"no API server":              {args: []string{nowhere, "--log-level=panic"}, code: 1},
		"unexpected argument":        {args: []string{"start"}, code: 2, stderr: `unexpected argument "start"`},
		"check: help":                {args: []string{"check", "--help"}, code: 0, stdout: "Exit codes: 0 nothing is wrong, 1 something is, 2 wrong command line"},
		"check: unknown flag":        {args: []string{"check", "--nonsense"}, code: 2, stderr: "unknown flag: --nonsense\nSee cilium-pool-operator check --help."},
		"check: unexpected argument": {args: []string{"check", "now"}, code: 2, stderr: `unexpected argument "now"`},
		"check: output":              {args: []string{"check", "-o", "yaml"}, code: 2, stderr: "--output is yaml: must be text or json"},
		"check: fail on":             {args: []string{"check", "--fail-on=info"}, code: 2, stderr: "--fail-on is info: must be warning or error"},
		"check: again":               {args: []string{"check", "--every=0s"}, code: 2, stderr: "--every is 0s: must be between 1s and 1h0m0s"},
		"check: watch for":           {args: []string{"check", "--watch-for=-1s"}, code: 2, stderr: "--watch-for is -1s"},
		"check: stuck after":         {args: []string{"check", "--stuck-after=25h"}, code: 2, stderr: "--stuck-after is 25h0m0s"},
		"check: agent selector":      {args: []string{"check", "--agent-selector=a=b=c"}, code: 2, stderr: "--agent-selector is a=b=c: must be a label selector"},
		"check: unreachable":         {args: []string{"check", nowhere}, code: 2, stderr: "the cluster was not audited: cannot read from the API server at http://127.0.0.1"},
		"check: no such context":     {args: []string{"check", nowhere, "--context=prod"}, code: 2, stderr: `no API server to talk to: context "prod" does not exist`},
		"check: no such file":        {args: []string{"check", "--kubeconfig=none"}, code: 2, stderr: "give --kubeconfig or --context"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if code := inTime(t, func() int { return run(t.Context(), test.args, &stdout, &stderr) }); code != test.code {
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
