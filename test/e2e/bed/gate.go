//go:build linux

package bed

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const podsPath = "/api/v1/pods"

// Gate is a proxy between one agent and the API server. While it is shut, the agent gets no
// response about pods, which it needs before it restores its own.
type Gate struct {
	mu   sync.Mutex
	open chan struct{} // closed while the gate is open
}

// Gate puts an open gate in front of the node's agent, from its next start on.
func (n *Node) Gate() (*Gate, error) {
	config := n.bed.Config()
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("make gate of %s: %w", n.Name, err)
	}
	to, err := url.Parse(config.Host)
	if err != nil {
		return nil, fmt.Errorf("make gate of %s: %w", n.Name, err)
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(bridgeAddress, "0"))
	if err != nil {
		return nil, fmt.Errorf("make gate of %s: %w", n.Name, err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.Transport = transport
	proxy.FlushInterval = -1 // watches
	g := &Gate{open: make(chan struct{})}
	g.Open()
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == podsPath && g.wait(r.Context()) != nil {
			return
		}
		proxy.ServeHTTP(w, r)
	})}
	go func() { _ = server.Serve(listener) }() // It ends with the process.

	path := filepath.Join(n.dir, "gate.kubeconfig")
	kubeconfig := clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"gate": {Server: "http://" + listener.Addr().String()}},
		Contexts:       map[string]*clientcmdapi.Context{"gate": {Cluster: "gate"}},
		CurrentContext: "gate",
	}
	if err := clientcmd.WriteToFile(kubeconfig, path); err != nil {
		return nil, fmt.Errorf("make gate of %s: %w", n.Name, err)
	}
	n.Flags = append(n.Flags, "--k8s-kubeconfig-path="+path)
	return g, nil
}

// Shut blocks further requests about pods.
func (g *Gate) Shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = make(chan struct{})
}

// Open lets all requests through, waiting ones too.
func (g *Gate) Open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.open:
	default:
		close(g.open)
	}
}

func (g *Gate) wait(ctx context.Context) error {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	select {
	case <-open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ClaimReady sets the Pod object of the node's agent to Ready, as with a probe that
// checks less than Cilium's.
func (n *Node) ClaimReady(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.agent == nil {
		return fmt.Errorf("the agent of %s does not run", n.Name)
	}
	return n.writeAgentPod(ctx, n.agent, true)
}
