// Command cilium-ipam runs Cilium's own allocator (pkg/ipam, v1.20.2) for one node, as package wire says: in crd
// mode against a real API server, in multi-pool and kubernetes mode against the test's own objects.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/cilium/cilium/pkg/ipam"

	"github.com/cilium-pool/cilium-pool-operator/test/truth/wire"
)

// agent is a node's agent in one of the modes.
type agent interface {
	// do takes a step that depends on the mode, and reports whether it is one.
	do(req wire.Request) (known bool, err error)
	// allocators returns the allocators, or nil if there are none. For a step that needs them it may wait.
	allocators(wait bool) *ipam.IPAM
	// tell adds the state to a response.
	tell(resp *wire.Response)
}

func main() {
	mode := flag.String("mode", wire.CRD, "crd, multi-pool or kubernetes")
	var s settings
	flag.StringVar(&s.kubeconfig, "kubeconfig", "", "path to the kubeconfig")
	flag.StringVar(&s.node, "node", "", "name of the CiliumNode")
	flag.DurationVar(&s.rate, "rate", 50*time.Millisecond, "least time between two status writes")
	flag.DurationVar(&s.poll, "poll", time.Second, "how often a starting agent looks for a pool")
	flag.Parse()
	switch *mode {
	case wire.MultiPool:
		inBubble(func() error {
			a, err := newPoolAgent() // its objects belong to the bubble
			if err != nil {
				return err
			}
			return serve(a)
		})
	case wire.Kubernetes:
		exit(serve(&fixedAgent{}))
	default:
		a, err := newCRDAgent(s)
		if err != nil {
			exit(err)
		}
		exit(serve(a))
	}
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "cilium-ipam:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serve answers requests until there are no more.
func serve(a agent) error {
	encoder := json.NewEncoder(os.Stdout)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var req wire.Request
		var resp wire.Response
		if err := json.Unmarshal(lines.Bytes(), &req); err != nil {
			return err
		}
		if err := answer(a, req, &resp); err != nil {
			resp.Err = err.Error()
		}
		a.tell(&resp)
		if allocators := a.allocators(false); allocators != nil {
			resp.Ready, resp.Allocated = true, allocated(allocators)
		}
		if err := encoder.Encode(resp); err != nil {
			return err
		}
	}
	return lines.Err()
}

func answer(a agent, req wire.Request, resp *wire.Response) error {
	if known, err := a.do(req); known || req.Do == "say" {
		return err
	}
	i := a.allocators(true)
	if i == nil {
		return fmt.Errorf("%s: there are no allocators", req.Do)
	}
	pool := ipam.Pool(cmp.Or(req.Pool, defaultPool))
	switch req.Do {
	case "next":
		return next(i, pool, req, resp)
	case "allocate":
		return i.AllocateIP(req.IP, req.Owner, pool)
	case "restore":
		_, err := i.AllocateIPWithoutSyncUpstream(req.IP, req.Owner, pool)
		return err
	case "release":
		return i.ReleaseIP(req.IP, pool)
	case "exclude":
		i.ExcludeIP(req.IP, "node-ip", pool)
	case "restored":
		i.RestoreFinished()
	default:
		return fmt.Errorf("unknown request %q", req.Do)
	}
	return nil
}

func next(i *ipam.IPAM, pool ipam.Pool, req wire.Request, resp *wire.Response) error {
	var results []*ipam.AllocationResult
	if req.Family == "" {
		v4, v6, err := i.AllocateNext("", req.Owner, "")
		if err != nil {
			return err
		}
		results = append(results, v4, v6)
	} else {
		allocate := i.AllocateNextFamily
		if req.Quietly {
			allocate = i.AllocateNextFamilyWithoutSyncUpstream
		}
		result, err := allocate(ipam.Family(req.Family), req.Owner, pool)
		if err != nil {
			return err
		}
		results = append(results, result)
	}
	for _, result := range results {
		if result != nil {
			resp.Got = append(resp.Got, result.IP)
		}
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
