package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/test/bench/bed"
	"github.com/cilium-pool/cilium-pool-operator/test/bench/floor"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
)

// Names of contenders in tables. The first one of a table is the base of its ratios.
const (
	ours              = "cilium-pool-operator"
	oursPodless       = ours + ", a cluster without pods"
	clusterPool       = "cilium-operator cluster-pool, limit lifted"
	clusterPoolAsIs   = "cilium-operator cluster-pool, as shipped"
	multiPool         = "cilium-operator multi-pool, limit lifted"
	multiPoolAsIs     = "cilium-operator multi-pool, as shipped"
	nodeIPAM          = "kube-controller-manager nodeipam, limit lifted"
	ciliumOperatorDir = "cilium-1.20.2"
)

// contender is a program that runs in a measure.
type contender struct {
	name string
	mode bed.Mode
	// rounds is the maximum, and excludes the contender from the growth curve, which would
	// otherwise take too long; 0: no maximum.
	rounds int
	// waits: it waits for something to do. A bare program does its work when it starts.
	waits bool
	// podless: its cluster has no pods.
	podless bool
	// settings are those that are not in argv, as text for the report; "": no row there.
	settings string
	// controlPlane is how the control plane that it talks to differs; env is the contender's own
	// environment, in addition to that of all contenders.
	controlPlane bed.ControlPlane
	env          []string
	argv         func(st *bed.Stage, w bed.World) ([]string, error)
	// says are texts that its log contains once it has read everything and may decide.
	says []string
	// path is the resource that it writes to; published reports whether an event of that
	// resource shows a node with n blocks.
	path      string
	published func(event []byte, n int) bool
}

func podCIDRs(event []byte, n int) bool { return bed.Listed(event, "podCIDRs") >= n }

const leaseFlag = "--leader-elect-lease-duration="

// operator is this operator, with its defaults except for the given flags and a longer
// Lease: on an overloaded machine a run should be slow rather than fail.
func operator(flags ...string) contender {
	return contender{
		name: ours, mode: bed.CRD, waits: true, path: bed.CiliumNodes, published: podCIDRs,
		settings: fmt.Sprintf("its defaults, so no client-side limit and `--node-workers=%d`", config.DefaultSettings().NodeWorkers),
		says:     []string{"everything has been read; decisions begin", "Starting workers"},
		argv: func(st *bed.Stage, _ bed.World) ([]string, error) {
			return append([]string{"cilium-pool-operator", "--kubeconfig=" + st.Kubeconfig(),
				"--metrics-bind-address=0", "--health-probe-bind-address=0", leaseFlag + leaseDuration}, flags...), nil
		},
	}
}

// inMultiPool is operator in multi-pool mode.
func inMultiPool(flags ...string) contender {
	c := operator(append([]string{"--mode=multi-pool"}, flags...)...)
	c.name, c.mode, c.published = oursMultiPool, bed.OwnMultiPool, allocated
	return c
}

// bare is a bare program of package floor, run by this same binary.
func bare(program string) contender {
	return contender{
		name: "floor: " + floorNames[program], mode: bed.CRD, path: bed.CiliumNodes, published: podCIDRs,
		settings: fmt.Sprintf("no client-side limit, %d requests at once, no Lease", floor.Workers),
		says:     []string{floorSays[program]},
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

var (
	floorNames = map[string]string{
		"serve": "bare creates and patches of pools.allocated", "claim": "bare creates and pool patches", "join": "bare creates and pool patches", "cidr": "bare patches of podCIDRs alone",
		"reclaim": "bare writes of the handshake", "react": "bare watch, create and patch",
		"merge": "merge patch", "json": "JSON patch", "apply": "server-side apply", "partial": "merge patch, metadata in return",
		"untracked": "merge patch, without managed fields",
		"least":     "merge patch, without managed fields, metadata in return",
		"stream":    "bare streaming lists, thrown away", "list": "bare whole lists, decoded", "watch": "bare watches, thrown away",
	}
	// floorSays is what a bare program logs when it is ready, or done if it has nothing to
	// wait for.
	floorSays = map[string]string{"react": "ready", "serve": "ready", "watch": "ready", "list": "read", "stream": "read"}
)

// ciliumOperator is Cilium's own operator, run as its chart runs it except for ports and,
// like this operator, a longer Lease.
func ciliumOperator(name string, mode bed.Mode, lifted bool) contender {
	c := contender{name: name, mode: mode, rounds: 1, path: bed.CiliumNodes, published: podCIDRs, says: []string{"Initialization complete"},
		settings: "its defaults, so 100 requests per second, bursts of 200, and a check of its CRDs at start"}
	c.argv = func(st *bed.Stage, _ bed.World) ([]string, error) {
		port, err := controlplane.FreePort("127.0.0.1")
		if err != nil {
			return nil, err
		}
		argv := []string{filepath.Join(ciliumOperatorDir, "cilium-operator"),
			"--k8s-kubeconfig-path=" + st.Kubeconfig(), "--ipam=" + string(mode), "--enable-ipv4=true", "--enable-ipv6=false",
			"--identity-allocation-mode=crd", "--enable-gops=false", "--enable-metrics=false",
			"--leader-election-lease-duration=" + leaseDuration, "--leader-election-renew-deadline=" + renewDeadline,
			fmt.Sprintf("--operator-api-serve-addr=127.0.0.1:%d", port)}
		if mode == bed.MultiPool {
			argv = append(argv, fmt.Sprintf("--auto-create-cilium-pod-ip-pools=default=ipv4-cidrs:%s;ipv4-mask-size:%d", bed.PoolCIDR, bed.BlockBits))
		} else {
			argv = append(argv, "--cluster-pool-ipv4-cidr="+bed.PoolCIDR, fmt.Sprintf("--cluster-pool-ipv4-mask-size=%d", bed.BlockBits))
		}
		if lifted {
			// Skip the check of its CRDs one by one, which takes half a second each.
			argv = append(argv, "--operator-k8s-client-qps=100000", "--operator-k8s-client-burst=100000", "--skip-crd-creation=true")
		}
		return argv, nil
	}
	if mode == bed.MultiPool {
		c.published = allocated
	}
	if lifted {
		c.rounds, c.settings = 2, "otherwise its defaults"
	}
	return c
}

// allocated is the counterpart of podCIDRs for multi-pool mode.
func allocated(event []byte, n int) bool {
	_, pools, _ := bytes.Cut(event, []byte(`"allocated":[`))
	return bed.Listed(pools, "cidrs") >= n
}

// nodeipam is Kubernetes' own node IPAM, which writes a podCIDR into Nodes.
func nodeipam() contender {
	return contender{
		name: nodeIPAM, mode: bed.ClusterPool, path: bed.Nodes,
		settings:  "otherwise its defaults",
		published: func(event []byte, _ int) bool { return bytes.Contains(event, []byte(`"podCIDR":"`)) },
		argv: func(st *bed.Stage, _ bed.World) ([]string, error) {
			port, err := controlplane.FreePort("127.0.0.1")
			return []string{"kube-controller-manager", "--kubeconfig=" + st.Kubeconfig(),
				"--controllers=node-ipam-controller", "--allocate-node-cidrs=true", "--cluster-cidr=" + bed.PoolCIDR,
				"--service-cluster-ip-range=10.96.0.0/16",
				fmt.Sprintf("--node-cidr-mask-size=%d", bed.BlockBits), "--kube-api-qps=100000", "--kube-api-burst=100000",
				"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port), "--cert-dir=" + filepath.Join(st.Dir(), "kcm"),
				leaseFlag + leaseDuration, "--leader-elect-renew-deadline=" + renewDeadline, "--authentication-skip-lookup=true"}, err
		},
	}
}

// start starts a contender on a stage.
func (c contender) start(st *bed.Stage, w bed.World) (*bed.Process, error) {
	argv, err := c.argv(st, w)
	if err != nil {
		return nil, err
	}
	return st.Start("contender", c.env, argv...)
}
