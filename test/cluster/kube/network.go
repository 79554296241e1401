//go:build linux

package kube

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// The network of the nodes, of the range kept for documentation. The API server's
// address is the one that examples/ give.
const (
	apiServerAddress = "192.0.2.10"
	apiServerPort    = "6443"
	prefixLength     = "/24"
	bridge           = "nodes"
	uplink           = "eth0"
)

// NodeName and NodeAddress are those of the node with a number from 1 on.
func NodeName(number int) string    { return "n" + strconv.Itoa(number) }
func nodeAddress(number int) string { return "192.0.2." + strconv.Itoa(20+number) }

// inNetwork runs ip in the network namespace of a process.
func inNetwork(pid int, args ...string) error {
	argv := append([]string{"--target", strconv.Itoa(pid), "--net", "--", "ip"}, args...)
	if out, err := exec.Command("nsenter", argv...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

func inNetworkAll(pid int, commands ...string) error {
	for _, command := range commands {
		if err := inNetwork(pid, strings.Fields(command)...); err != nil {
			return err
		}
	}
	return nil
}

// makeBridge gives the control plane its network.
func makeBridge(pid int) error {
	return inNetworkAll(pid,
		"link set lo up",
		"link add "+bridge+" type bridge",
		"address add "+apiServerAddress+prefixLength+" dev "+bridge,
		"link set "+bridge+" up",
	)
}

// plugIn connects a node with the bridge. The link goes with the node.
func plugIn(controlPlane, node, number int) error {
	port := "port" + strconv.Itoa(number)
	if err := inNetworkAll(controlPlane,
		fmt.Sprintf("link add %s type veth peer name %s netns %d", port, uplink, node),
		fmt.Sprintf("link set %s master %s up", port, bridge),
	); err != nil {
		return err
	}
	return inNetworkAll(node,
		"link set lo up",
		"address add "+nodeAddress(number)+prefixLength+" dev "+uplink,
		"link set "+uplink+" up",
		"route add default via "+apiServerAddress,
	)
}
