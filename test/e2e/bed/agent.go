//go:build linux

package bed

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/test/harness"
	"github.com/cilium-pool/cilium-pool-operator/test/harness/process"
)

const (
	agentName = "cilium-agent"
	cniName   = "cilium-cni"
	// probePeriod is the interval at which the bed, in the role of kubelet, probes an agent,
	// and the time that it takes to notice a dead agent (the relist period of a kubelet's
	// PLEG).
	probePeriod = time.Second
	// agentGrace is the terminationGracePeriodSeconds of its DaemonSet.
	agentGrace = time.Second
)

// agentRun is one run of an agent.
type agentRun struct {
	process *process.Process
	number  int
	started time.Time
	code    int32 // its exit code
}

// agentFlags returns the flags of the DaemonSet, and those for paths that differ between
// its pod and a node of the bed.
func (n *Node) agentFlags() []string {
	return append([]string{
		"--config-dir=" + n.configDir(),
		"--k8s-kubeconfig-path=" + n.bed.kubeconfig,
		"--lib-dir=" + n.bed.opts.CiliumDir,
		"--procfs=/proc",
	}, n.Flags...)
}

// StartAgent starts the node's agent, and its Pod object as a kubelet writes
// it: Running, then Ready once the agent is healthy.
func (n *Node) StartAgent(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.agent != nil {
		return fmt.Errorf("the agent of %s runs already", n.Name)
	}
	if err := n.resolveConfig(ctx); err != nil {
		return err
	}
	argv := append([]string{"env", "K8S_NODE_NAME=" + n.Name, "PATH=" + n.bed.opts.CiliumDir + ":" + searchPath(), filepath.Join(n.bed.opts.CiliumDir, agentName)}, n.agentFlags()...)
	p, err := n.bed.spawn(n.Name+"-agent", n.enter(argv...)...)
	if err != nil {
		return err
	}
	n.runs++
	run := &agentRun{process: p, number: n.runs, started: time.Now()}
	n.agent = run
	if err := n.writeAgentPod(ctx, run, false); err != nil {
		return err
	}
	go n.probe(ctx, run)
	return nil
}

// probe acts as the kubelet's readiness probe: the Pod object turns Ready once.
func (n *Node) probe(ctx context.Context, run *agentRun) {
	tick := time.NewTicker(probePeriod)
	defer tick.Stop()
	for n.healthy(ctx) != nil {
		select {
		case <-tick.C:
		case <-run.process.Ended():
			return
		case <-ctx.Done():
			return
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.agent != run {
		return
	}
	if err := n.writeAgentPod(ctx, run, true); err != nil && ctx.Err() == nil {
		n.bed.Logf("%s: %v", n.Name, err)
	}
}

// KillAgent kills the agent with SIGKILL, and returns once the Pod object shows it: a
// kubelet notices a second later.
func (n *Node) KillAgent(ctx context.Context) error {
	return n.endAgent(ctx, 137, (*process.Process).Kill)
}

// StopAgent stops the agent as a kubelet does, with the grace period of one second in
// Cilium's chart, and updates the Pod object.
func (n *Node) StopAgent(ctx context.Context) error {
	return n.endAgent(ctx, 0, func(p *process.Process) error { return p.Stop(agentGrace) })
}

func (n *Node) endAgent(ctx context.Context, code int32, end func(*process.Process) error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	run := n.agent
	if run == nil {
		return fmt.Errorf("the agent of %s does not run", n.Name)
	}
	n.agent, run.code = nil, code
	if err := end(run.process); err != nil {
		return err
	}
	if err := harness.Sleep(ctx, probePeriod); err != nil {
		return err
	}
	return n.writeAgentPod(ctx, run, false)
}

// RestartAgent kills the agent with SIGKILL, starts it again and waits until it
// is healthy.
func (n *Node) RestartAgent(ctx context.Context) error {
	if err := n.KillAgent(ctx); err != nil {
		return err
	}
	if err := n.StartAgent(ctx); err != nil {
		return err
	}
	return n.WaitAgent(ctx)
}

// firstBackoff is the time until a kubelet restarts a container that has ended for the
// second time. Each further time it waits twice as long.
const firstBackoff = 10 * time.Second

// RestartAgentUntilHealthy stops the agent and, as a kubelet would, starts it again each time
// it exits, until it is healthy. It returns the number of starts.
func (n *Node) RestartAgentUntilHealthy(ctx context.Context) (starts int, err error) {
	if err := n.StopAgent(ctx); err != nil {
		return 0, err
	}
	for backoff := time.Duration(0); ; backoff = max(firstBackoff, 2*backoff) {
		if err := harness.Sleep(ctx, backoff); err != nil {
			return starts, err
		}
		if err := n.StartAgent(ctx); err != nil {
			return starts, err
		}
		starts++
		if err := n.WaitAgent(ctx); err == nil || n.agentRuns() {
			return starts, err
		}
		if err := n.endAgent(ctx, 1, func(*process.Process) error { return nil }); err != nil {
			return starts, err
		}
	}
}

func (n *Node) agentRuns() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.agent != nil && n.agent.process.Running()
}

// WaitAgent waits until the agent is healthy.
func (n *Node) WaitAgent(ctx context.Context) error {
	n.mu.Lock()
	run := n.agent
	n.mu.Unlock()
	if run == nil {
		return fmt.Errorf("the agent of %s does not run", n.Name)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-run.process.Ended(): // It does not restart by itself.
			cancel()
		case <-ctx.Done():
		}
	}()
	err := n.bed.Eventually(ctx, "the agent of "+n.Name+" is healthy", n.healthy)
	if err != nil && !run.process.Running() {
		return fmt.Errorf("the agent of %s has ended, its log tells why: %w", n.Name, err)
	}
	return err
}

// healthy makes the request of Cilium's own readiness probe.
func (n *Node) healthy(ctx context.Context) error { return n.api(ctx, "/v1/healthz", nil) }

// endpoint is what an agent reports about one of its pods.
type endpoint struct {
	Status struct {
		State      string `json:"state"`
		Identifier struct {
			Attachment string `json:"cni-attachment-id"` // sandbox:interface
		} `json:"external-identifiers"`
		Networking struct {
			Addressing []struct {
				IPv4 netip.Addr `json:"ipv4"`
				IPv6 netip.Addr `json:"ipv6"`
			} `json:"addressing"`
		} `json:"networking"`
	} `json:"status"`
}

// addresses returns the addresses of an endpoint, IPv4 first.
func (e *endpoint) addresses() []netip.Addr {
	var all []netip.Addr
	for _, a := range e.Status.Networking.Addressing {
		for _, addr := range []netip.Addr{a.IPv4, a.IPv6} {
			if addr.IsValid() {
				all = append(all, addr)
			}
		}
	}
	return all
}

// Has returns an error if the agent lacks one of the pods, ready and at its address, and
// the number of missing pods.
func (n *Node) Has(ctx context.Context, pods []*Pod) (missing int, err error) {
	var list []endpoint
	if err := n.api(ctx, "/v1/endpoint", &list); err != nil {
		return len(pods), err
	}
	at := map[string]endpoint{}
	for _, e := range list {
		sandbox, _, _ := strings.Cut(e.Status.Identifier.Attachment, ":")
		at[sandbox] = e
	}
	for _, p := range pods {
		e, ok := at[p.sandbox]
		switch {
		case !ok:
			err = fmt.Errorf("%s, at %s, is unknown to the agent", p.Name, p.Addresses)
		case e.Status.State != "ready" || !slices.Equal(e.addresses(), p.Addresses):
			err = fmt.Errorf("%s, at %s, is %s, at %v", p.Name, p.Addresses, e.Status.State, e.addresses())
		default:
			continue
		}
		missing++
	}
	return missing, err
}

// api calls the agent over its socket.
func (n *Node) api(ctx context.Context, path string, into any) error {
	socket := filepath.Join(n.dir, "cilium", "cilium.sock")
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent"+path, nil)
	if err != nil {
		return fmt.Errorf("ask the agent of %s: %w", n.Name, err)
	}
	req.Header.Set("brief", "true")
	resp, err := (&http.Client{Transport: transport, Timeout: 30 * time.Second}).Do(req)
	if err != nil {
		return fmt.Errorf("ask the agent of %s: %w", n.Name, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("ask the agent of %s: %s is %s", n.Name, path, resp.Status)
	}
	if into == nil {
		return healthState(resp)
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

func healthState(resp *http.Response) error {
	var health struct {
		Cilium struct {
			State string `json:"state"`
			Msg   string `json:"msg"`
		} `json:"cilium"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&health); err != nil {
		return fmt.Errorf("read the agent's health: %w", err)
	}
	if health.Cilium.State != "Ok" {
		return fmt.Errorf("the agent is %s: %s", health.Cilium.State, health.Cilium.Msg)
	}
	return nil
}
