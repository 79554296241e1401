//go:build linux

package bed

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/test/harness/process"
)

// The nodes' network, from the address ranges reserved for documentation.
const (
	bridge         = "br0"
	bridgeAddress  = "192.0.2.1"
	bridgeAddress6 = "2001:db8::1"
	nodeAddress    = "192.0.2.%d"
	nodeAddress6   = "2001:db8::%d"
	firstNode      = 10
	prefixLength   = "/24"
	prefixLength6  = "/64"
)

// Outside returns the address, in the family of the given one, of a machine that has no route
// to pods.
func Outside(like netip.Addr) netip.Addr {
	if like.Is4() {
		return netip.MustParseAddr(bridgeAddress)
	}
	return netip.MustParseAddr(bridgeAddress6)
}

// Node is a machine: namespaces that outlive its agent.
type Node struct {
	Name string
	// Addresses are the addresses of the Node object, in the families of its agent.
	Addresses []netip.Addr
	// Flags are further flags of this node's agent, from its next start on.
	Flags []string
	// PodCIDRs are the CIDRs that kube-controller-manager assigns to its Node, if any.
	PodCIDRs []string

	bed    *Bed
	number int
	holder *process.Process // keeps the namespaces
	dir    string

	mu    sync.Mutex
	agent *agentRun
	runs  int
}

func makeBridge(ctx context.Context) error {
	for _, argv := range [][]string{
		{"ip", "link", "set", "lo", "up"},
		{"ip", "link", "add", bridge, "type", "bridge"},
		{"ip", "address", "add", bridgeAddress + prefixLength, "dev", bridge},
		{"ip", "address", "add", bridgeAddress6 + prefixLength6, "dev", bridge, "nodad"},
		{"ip", "link", "set", bridge, "up"},
	} {
		if err := run(ctx, argv...); err != nil {
			return err
		}
	}
	return nil
}

// AddNode creates the namespaces of a machine, but not yet its Node object.
func (b *Bed) AddNode(ctx context.Context, name string) (*Node, error) {
	b.mu.Lock()
	n := &Node{Name: name, bed: b, number: len(b.nodes), dir: filepath.Join(stateDir, name)}
	b.nodes[name] = n
	b.mu.Unlock()
	if b.enabled("enable-ipv4") {
		n.Addresses = append(n.Addresses, n.address(nodeAddress))
	}
	if b.enabled("enable-ipv6") {
		n.Addresses = append(n.Addresses, n.address(nodeAddress6))
	}
	if err := os.MkdirAll(filepath.Join(n.dir, "cilium"), 0o755); err != nil {
		return nil, fmt.Errorf("make node %s: %w", name, err)
	}
	for _, dir := range []string{"/run/cilium", "/run/bed-cgroup"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("make node %s: %w", name, err)
		}
	}
	var err error
	n.holder, err = b.spawnWith(syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET}, name+"-holder", "sleep", "infinity")
	if err != nil {
		return nil, err
	}
	if err := n.plug(ctx, "veth"+strconv.Itoa(n.number)); err != nil {
		return nil, fmt.Errorf("make node %s: %w", name, err)
	}
	if b.enabled("enable-wireguard") {
		return n, n.addWireGuard(ctx)
	}
	return n, nil
}

func (n *Node) address(format string) netip.Addr {
	return netip.MustParseAddr(fmt.Sprintf(format, firstNode+n.number))
}

// plug mounts an agent's files and connects the node to the bridge, in both families: the
// API server has only an IPv4 address.
func (n *Node) plug(ctx context.Context, veth string) error {
	pid := strconv.Itoa(n.holder.PID())
	for _, argv := range [][]string{
		n.enter("mount", "-t", "sysfs", "sysfs", "/sys"),
		n.enter("mount", "-t", "bpf", "bpf", "/sys/fs/bpf"),
		n.enter("mount", "-t", "cgroup2", "cgroup2", "/run/bed-cgroup"),
		n.enter("mount", "--bind", filepath.Join(n.dir, "cilium"), "/run/cilium"),
		{"ip", "link", "add", veth, "type", "veth", "peer", "name", "eth0", "netns", pid},
		{"ip", "link", "set", veth, "master", bridge, "up"},
		n.enter("ip", "link", "set", "lo", "up"),
		n.enter("ip", "address", "add", n.address(nodeAddress).String()+prefixLength, "dev", "eth0"),
		n.enter("ip", "address", "add", n.address(nodeAddress6).String()+prefixLength6, "dev", "eth0", "nodad"),
		n.enter("ip", "link", "set", "eth0", "up"),
		n.enter("ip", "route", "add", "default", "via", bridgeAddress),
		n.enter("ip", "-6", "route", "add", "default", "via", bridgeAddress6),
	} {
		if err := run(ctx, argv...); err != nil {
			return err
		}
	}
	return nil
}

// enter returns a command that runs in the node's mount and network namespaces.
func (n *Node) enter(argv ...string) []string {
	return append([]string{"nsenter", "--target", strconv.Itoa(n.holder.PID()), "--mount", "--net", "--"}, argv...)
}

// Register creates the Node object, as a kubelet does.
func (n *Node) Register(ctx context.Context) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}, Spec: corev1.NodeSpec{PodCIDRs: n.PodCIDRs}}
	if len(n.PodCIDRs) > 0 {
		node.Spec.PodCIDR = n.PodCIDRs[0]
	}
	if err := n.bed.Client.Create(ctx, node); err != nil {
		return fmt.Errorf("create node %s: %w", n.Name, err)
	}
	created := node.DeepCopy()
	for _, a := range n.Addresses {
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a.String()})
	}
	node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: n.Name})
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}}
	// Use a patch, which does not conflict with an offer of the operator.
	if err := n.bed.Client.Status().Patch(ctx, node, client.StrategicMergeFrom(created)); err != nil {
		return fmt.Errorf("create node %s: %w", n.Name, err)
	}
	return nil
}

// AddIPv6 adds the machine's IPv6 address to the Node object, as a kubelet does when it is
// restarted for both families.
func (n *Node) AddIPv6(ctx context.Context) error {
	a := n.address(nodeAddress6)
	n.Addresses = append(n.Addresses, a)
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		node := &corev1.Node{}
		if err := n.bed.Client.Get(ctx, client.ObjectKey{Name: n.Name}, node); err != nil {
			return fmt.Errorf("edit node %s: %w", n.Name, err)
		}
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a.String()})
		return n.bed.Client.Status().Update(ctx, node)
	})
}
