//go:build linux

package kube

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// The nodes' network, from the range reserved for documentation. The API server's address is
// the one in examples/.
const (
	apiServerAddress = "192.0.2.10"
	apiServerPort    = "6443"
	prefixLength     = "/24"
	// The same for IPv6, in dual stack.
	apiServerAddress6 = "2001:db8::10"
	prefixLength6     = "/64"
	bridge            = "nodes"
	uplink            = "eth0"
)

// NodeName returns the name of a node. Nodes are numbered from 1.
func NodeName(number int) string    { return "n" + strconv.Itoa(number) }
func nodeAddress(number int) string { return "192.0.2." + strconv.Itoa(20+number) }

func nodeAddress6(number int) string { return "2001:db8::" + strconv.Itoa(20+number) }

// Outside is an address that belongs neither to a node nor to the API server.
const Outside = "192.0.2.11"

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

// makeBridge sets up the control plane's network.
func (c *Cluster) makeBridge(pid int) error {
	commands := []string{
		"link set lo up",
		"link add " + bridge + " type bridge",
		"address add " + apiServerAddress + prefixLength + " dev " + bridge,
		"address add " + Outside + prefixLength + " dev " + bridge,
		"link set " + bridge + " up",
	}
	if c.DualStack {
		commands = append(commands, "address add "+apiServerAddress6+prefixLength6+" dev "+bridge+" nodad")
	}
	return inNetworkAll(pid, commands...)
}

// plugIn connects a node to the bridge. The link is removed with the node.
func (c *Cluster) plugIn(node, number int) error {
	controlPlane := c.State.PID(controlPlane)
	port := "port" + strconv.Itoa(number)
	if err := inNetworkAll(controlPlane,
		fmt.Sprintf("link add %s type veth peer name %s netns %d", port, uplink, node),
		fmt.Sprintf("link set %s master %s up", port, bridge),
	); err != nil {
		return err
	}
	commands := []string{
		"link set lo up",
		"address add " + nodeAddress(number) + prefixLength + " dev " + uplink,
		"link set " + uplink + " up",
		"route add default via " + apiServerAddress,
	}
	if c.DualStack {
		commands = append(commands,
			"address add "+nodeAddress6(number)+prefixLength6+" dev "+uplink+" nodad",
			"-6 route add default via "+apiServerAddress6)
	}
	return inNetworkAll(node, commands...)
}
