//go:build linux

package bed

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

const (
	wireGuardProgram = "wireguard"
	wireGuardDevice  = "cilium_wg0"
)

// addWireGuard gives the node a userspace WireGuard device if the kernel does not support
// WireGuard. The agent uses an existing device of its name, and configures it through a socket
// (Cilium v1.20.1, pkg/wireguard/agent/agent.go, init).
func (n *Node) addWireGuard(ctx context.Context) error {
	if run(ctx, n.enter("ip", "link", "add", wireGuardDevice, "type", "wireguard")...) == nil {
		return nil
	}
	n.bed.Logf("%s: the kernel has no WireGuard, so a program does it", n.Name)
	if err := run(ctx, n.enter("sh", "-c", "mkdir -p /run/wireguard && mount -t tmpfs tmpfs /run/wireguard")...); err != nil {
		return fmt.Errorf("make node %s: %w", n.Name, err)
	}
	_, err := n.bed.spawn(n.Name+"-wireguard", n.enter(filepath.Join(n.bed.opts.CiliumDir, wireGuardProgram), "--foreground", wireGuardDevice)...)
	if err != nil {
		return err
	}
	return n.bed.Eventually(ctx, n.Name+" has a WireGuard device", func(ctx context.Context) error {
		return run(ctx, n.enter("ls", "/run/wireguard/"+wireGuardDevice+".sock")...)
	})
}

// Encrypted returns the number of packets that the node has sent through its WireGuard device.
func (n *Node) Encrypted(ctx context.Context) (packets int, err error) {
	argv := n.enter("cat", "/sys/class/net/"+wireGuardDevice+"/statistics/tx_packets")
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).Output()
	if err != nil {
		return 0, fmt.Errorf("read the packets encrypted by %s: %w", n.Name, err)
	}
	return strconv.Atoi(strings.TrimSpace(string(out)))
}
