package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/cilium-pool/cilium-pool-operator/test/bench/bed"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
)

// Names of contenders in tables.
const (
	ours          = "cilium-pool-operator"
	oursMultiPool = ours + ", mode multi-pool"
	oursObserving = ours + ", mode observe"
	clusterPool   = "cilium-operator cluster-pool"
	multiPool     = "cilium-operator multi-pool"
	floorPrefix   = "floor: "
)

// Leases of contenders that elect a leader: on an overloaded machine a run should be slow
// rather than fail.
const (
	leaseDuration = "2m"
	renewDeadline = "90s" // of peers; this operator derives it
)

// contender is a program that runs in a measure.
type contender struct {
	name string
	mode bed.Mode
	// waits: it waits for something to do. A bare program does its work when it starts.
	waits bool
	argv  func(st *bed.Stage, w bed.World) ([]string, error)
	// says are texts that its log contains once it has read everything and may decide.
	says []string
}

func (c contender) isFloor() bool { return strings.HasPrefix(c.name, floorPrefix) }

// published reports whether an event shows a CiliumNode with n blocks.
func (c contender) published(event []byte, n int) bool {
	if c.mode == bed.MultiPool || c.mode == bed.OwnMultiPool {
		_, pools, _ := bytes.Cut(event, []byte(`"allocated":[`))
		return bed.Listed(pools, "cidrs") >= n
	}
	return bed.Listed(event, "podCIDRs") >= n
}

// operator is this operator with its defaults, except for these flags and a longer Lease.
func operator(flags ...string) contender {
	return contender{
		name: ours, mode: bed.CRD, waits: true, says: []string{"everything has been read; decisions begin", "Starting workers"},
		argv: func(st *bed.Stage, _ bed.World) ([]string, error) {
			return append([]string{"cilium-pool-operator", "--kubeconfig=" + st.Kubeconfig(),
				"--metrics-bind-address=0", "--health-probe-bind-address=0", "--leader-elect-lease-duration=" + leaseDuration}, flags...), nil
		},
	}
}

// inMultiPool is operator in multi-pool mode, where it writes a CIDR per block as
// cilium-operator does.
func inMultiPool(flags ...string) contender {
	c := operator(append([]string{"--mode=multi-pool"}, flags...)...)
	c.name, c.mode = oursMultiPool, bed.OwnMultiPool
	return c
}

// observer is operator where it only counts what cilium-operator assigned.
func observer() contender {
	c := operator("--mode=observe")
	c.name, c.mode, c.says = oursObserving, bed.ClusterPool, []string{`"msg":"observing"`}
	return c
}

// bare is a bare program of package floor, run by this same binary.
func bare(program string) contender {
	does := map[string][2]string{ // its name, and its log once it is ready
		"claim":  {"bare creates and pool patches", ""},
		"serve":  {"bare creates and patches of pools.allocated", "ready"},
		"stream": {"bare streaming lists, thrown away", "read"},
		"watch":  {"bare watches, thrown away", "ready"},
	}[program]
	return contender{
		name: floorPrefix + does[0], mode: bed.CRD, says: []string{does[1]},
		argv: func(st *bed.Stage, w bed.World) ([]string, error) {
			self, err := os.Executable()
			if err != nil {
				return nil, err
			}
			world, err := json.Marshal(w)
			return []string{self, "floor", program, st.Kubeconfig(), string(world)}, err
		},
	}
}

// bareInMultiPool is a bare program in multi-pool mode.
func bareInMultiPool(program string) contender {
	c := bare(program)
	c.mode = bed.OwnMultiPool
	return c
}

// ciliumOperator is Cilium's own operator, run as its chart runs it except for ports, a longer
// Lease and two flags: without its limit of 100 requests per second, and without a check of
// its CRDs at start, which takes half a second each.
func ciliumOperator(mode bed.Mode, flags ...string) contender {
	unlimited := []string{"--operator-k8s-client-qps=100000", "--operator-k8s-client-burst=100000", "--skip-crd-creation=true"}
	return ciliumOperatorWith(mode, append(unlimited, flags...)...)
}

func ciliumOperatorWith(mode bed.Mode, flags ...string) contender {
	c := contender{name: clusterPool, mode: mode, says: []string{"Initialization complete"}}
	pool := []string{"--cluster-pool-ipv4-cidr=" + bed.PoolCIDR, fmt.Sprintf("--cluster-pool-ipv4-mask-size=%d", bed.BlockBits)}
	if mode == bed.MultiPool {
		c.name = multiPool
		c.waits = true
		pool = []string{fmt.Sprintf("--auto-create-cilium-pod-ip-pools=default=ipv4-cidrs:%s;ipv4-mask-size:%d", bed.PoolCIDR, bed.BlockBits)}
	}
	c.argv = func(st *bed.Stage, _ bed.World) ([]string, error) {
		port, err := controlplane.FreePort("127.0.0.1")
		argv := []string{"cilium-1.20.2/cilium-operator",
			"--k8s-kubeconfig-path=" + st.Kubeconfig(), "--ipam=" + string(mode), "--enable-ipv4=true", "--enable-ipv6=false",
			"--identity-allocation-mode=crd", "--enable-gops=false", "--enable-metrics=false",
			"--leader-election-lease-duration=" + leaseDuration, "--leader-election-renew-deadline=" + renewDeadline,
			fmt.Sprintf("--operator-api-serve-addr=127.0.0.1:%d", port)}
		return append(append(argv, pool...), flags...), err
	}
	return c
}

// start starts a contender on a stage, with a name for the process.
func (c contender) start(st *bed.Stage, w bed.World, name string) (*bed.Process, error) {
	argv, err := c.argv(st, w)
	if err != nil {
		return nil, err
	}
	return st.Start(name, argv...)
}
