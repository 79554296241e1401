// Command cilium-ipam runs Cilium's own allocator (pkg/ipam, v1.20.2) for one node. A test drives
// it through JSON lines on standard input and output: in crd mode against a real API server, in
// multi-pool and kubernetes mode against the test's own objects.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/cilium/cilium/pkg/ipam"
	"github.com/cilium/cilium/pkg/k8s/client/clientset/versioned"
	ciliumtime "github.com/cilium/cilium/pkg/time"
	"k8s.io/client-go/tools/clientcmd"
)

// request is one input line. Do is one of next, infra, allocate, restore, release, exclude,
// restored, dump, seen, gate.
type request struct {
	Do    string `json:"do"`
	Owner string `json:"owner,omitempty"`
	IP    string `json:"ip,omitempty"`
	// Family is "ipv4" or "ipv6".
	Family string `json:"family,omitempty"`
	// Gate is "open", "block" or "fail".
	Gate string `json:"gate,omitempty"`
}

// response is one output line.
type response struct {
	Err string `json:"err,omitempty"`
	// V4 and V6 are the addresses that next or infra allocated.
	V4 string `json:"v4,omitempty"`
	V6 string `json:"v6,omitempty"`
	// Allocated is the list of dump.
	Allocated []string `json:"allocated,omitempty"`
	// Ready, Seen and Attempts answer seen: whether the allocators exist, the resourceVersion
	// they work with, the writes that reached the gate.
	Ready    bool   `json:"ready,omitempty"`
	Seen     string `json:"seen,omitempty"`
	Attempts int    `json:"attempts,omitempty"`
}

type server struct {
	ipam   *ipam.IPAM
	ready  chan struct{}
	events *events
	gate   *gate
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "cilium-ipam:", err)
		os.Exit(1)
	}
}

func run() error {
	mode := flag.String("mode", "crd", "crd, multi-pool or kubernetes")
	kubeconfig := flag.String("kubeconfig", "", "path to the kubeconfig")
	nodeName := flag.String("node", "", "name of the CiliumNode")
	ipv6 := flag.Bool("ipv6", true, "allocate IPv6 too")
	rate := flag.Duration("rate", 50*time.Millisecond, "least time between two status writes")
	poll := flag.Duration("poll", 0, "most that Cilium's own waits may take, as the 5 s for the first pool; 0: as they are")
	flag.Parse()
	switch *mode {
	case "multi-pool":
		return runPools()
	case "kubernetes":
		return answer(os.Stdin, os.Stdout, (&fixedServer{}).serve)
	}
	ciliumtime.MaxInternalTimerDelay = *poll
	if *nodeName == "" {
		return errors.New("--node is required")
	}

	cfg, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	cfg.QPS = -1
	cilium, err := versioned.NewForConfig(cfg)
	if err != nil {
		return err
	}
	s := &server{ready: make(chan struct{}), events: &events{}, gate: newGate()}
	s.ipam = newIPAM(*nodeName, *ipv6, *rate, &clientset{cilium: cilium, events: s.events, gate: s.gate}, s.events)
	go func() {
		s.ipam.ConfigureAllocator()
		close(s.ready)
	}()
	return s.serve()
}

func runPools() error {
	var s *poolServer
	serveInBubble(func(line []byte) (_ any, err error) {
		if s == nil { // its objects belong to the bubble
			if s, err = newPoolServer(); err != nil {
				return nil, err
			}
		}
		return s.serve(line)
	})
	return nil
}

func (s *server) serve() error {
	out := json.NewEncoder(os.Stdout)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var req request
		if err := json.Unmarshal(lines.Bytes(), &req); err != nil {
			return err
		}
		var resp response
		if err := s.do(req, &resp); err != nil {
			resp.Err = err.Error()
		}
		if err := out.Encode(resp); err != nil {
			return err
		}
	}
	return lines.Err()
}

func (s *server) do(req request, resp *response) error {
	switch req.Do {
	case "seen":
		select {
		case <-s.ready:
			resp.Ready = true
		default:
		}
		resp.Seen, resp.Attempts = s.events.seen(), s.gate.attempts()
		return nil
	case "gate":
		s.gate.set(req.Gate)
		return nil
	}
	<-s.ready
	return s.allocator(req, resp)
}

func (s *server) allocator(req request, resp *response) error {
	switch req.Do {
	case "next":
		return s.next(req.Owner, resp)
	case "infra":
		result, err := s.ipam.AllocateNextFamilyWithoutSyncUpstream(ipam.Family(req.Family), req.Owner, defaultPool)
		return resp.put(result, err)
	case "restored":
		s.ipam.RestoreFinished()
		return nil
	case "dump":
		resp.Allocated = allocated(s.ipam)
		return nil
	}
	ip, err := netip.ParseAddr(req.IP)
	if err != nil {
		return err
	}
	switch req.Do {
	case "allocate":
		return s.ipam.AllocateIP(ip, req.Owner, defaultPool)
	case "restore":
		_, err := s.ipam.AllocateIPWithoutSyncUpstream(ip, req.Owner, defaultPool)
		return err
	case "release":
		return s.ipam.ReleaseIP(ip, defaultPool)
	case "exclude":
		s.ipam.ExcludeIP(ip, "node-ip", defaultPool)
		return nil
	}
	return fmt.Errorf("unknown request %q", req.Do)
}

func (s *server) next(owner string, resp *response) error {
	v4, v6, err := s.ipam.AllocateNext("", owner, "")
	if err != nil {
		return err
	}
	return errors.Join(resp.put(v4, nil), resp.put(v6, nil))
}

func (r *response) put(result *ipam.AllocationResult, err error) error {
	switch {
	case err != nil || result == nil:
		return err
	case result.IP.Is4():
		r.V4 = result.IP.String()
	default:
		r.V6 = result.IP.String()
	}
	return nil
}

// allocated returns the addresses that an agent's IPAM has allocated, in both families, as
// sorted texts.
func allocated(i *ipam.IPAM) []string {
	v4, v6, _ := i.Dump()
	addrs := slices.AppendSeq(slices.Collect(maps.Keys(v4)), maps.Keys(v6))
	slices.Sort(addrs)
	return addrs
}
