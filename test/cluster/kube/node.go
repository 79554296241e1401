//go:build linux

package kube

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cilium-pool/cilium-pool-operator/test/cluster/box"
)

// MaxNodes is the number of nodes with certificates.
const MaxNodes = 6

// containerdSocket is where containerd listens, in a node's own /run.
const containerdSocket = "/run/containerd/containerd.sock"

//go:embed containerd.toml
var containerdConfig string

//go:embed kubelet.yaml
var kubeletConfig string

// StartNode starts a node, with its earlier disk if it has run before.
func (c *Cluster) StartNode(ctx context.Context, number int) error {
	name := NodeName(number)
	disk := c.disk(name)
	if _, err := os.Stat(disk); err != nil {
		if err := c.makeDisk(ctx, disk); err != nil {
			return fmt.Errorf("disk of %s: %w", name, err)
		}
	}
	config := filepath.Join(disk, "kubelet.yaml")
	files := map[string]string{
		config: strings.NewReplacer("@CA@", c.pkiFile("ca.crt"), "@CERT@", c.pkiFile(name+".crt"), "@KEY@", c.pkiFile(name+".key"),
			"@SOCKET@", containerdSocket).Replace(kubeletConfig),
		filepath.Join(disk, "etc.upper", "hosts"):       fmt.Sprintf("127.0.0.1 localhost\n%s %s\n", nodeAddress(number), name),
		filepath.Join(disk, "etc.upper", "resolv.conf"): "",
	}
	for path, content := range files {
		if err := writeFile(path, content); err != nil {
			return err
		}
	}
	link, err := c.linkKubelet(number)
	if err != nil {
		return err
	}
	kubelet := c.service(name, "kubelet", "--config="+config, "--kubeconfig="+c.pkiFile(name+".kubeconfig"),
		"--hostname-override="+name, "--node-ip="+c.nodeIPs(number), "--v=2")
	kubelet.Argv[0] = link
	spec := box.Spec{Name: name, Disk: disk, Leashed: c.Leashed, Programs: c.BinDir, Services: []box.Service{c.containerd(name, disk), kubelet}}
	return c.State.Start(spec, c.log(name), nil, func(pid int) error {
		return c.plugIn(pid, number)
	})
}

// SetKubelet sets the program that the kubelet of a node runs from its next start on.
func (c *Cluster) SetKubelet(number int, program string) error {
	c.Kubelets[number] = program
	_, err := c.linkKubelet(number)
	return err
}

// linkKubelet creates a link to the program of a node's kubelet, and returns its path.
func (c *Cluster) linkKubelet(number int) (string, error) {
	program, set := c.Kubelets[number]
	if !set {
		program = filepath.Join(c.BinDir, "kubelet")
	}
	link := filepath.Join(c.Dir, "kubelets", NodeName(number))
	if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
		return "", err
	}
	if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	return link, os.Symlink(program, link)
}

// nodeIPs returns the addresses that kubelet reports for a node.
func (c *Cluster) nodeIPs(number int) string {
	if c.DualStack {
		return nodeAddress(number) + "," + nodeAddress6(number)
	}
	return nodeAddress(number)
}

func writeFile(path, content string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(content), 0o644)
}

func (c *Cluster) disk(name string) string { return filepath.Join(c.Dir, "disks", name) }

// containerd returns the service; its configuration is on the disk.
func (c *Cluster) containerd(where, disk string) box.Service {
	s := c.service(where, "containerd", "--config="+filepath.Join(disk, "containerd.toml"))
	s.Socket = containerdSocket
	return s
}

func (c *Cluster) writeContainerdConfig(disk string) error {
	runc, err := exec.LookPath("runc")
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(disk, "containerd.toml"), strings.ReplaceAll(containerdConfig, "@RUNC@", runc))
}

// StopNode ends a node as a power cut would. Its disk stays.
func (c *Cluster) StopNode(number int) error { return c.State.Kill(NodeName(number)) }

// WipeNode ends a node and deletes its disk.
func (c *Cluster) WipeNode(number int) error {
	if err := c.StopNode(number); err != nil {
		return err
	}
	return os.RemoveAll(c.disk(NodeName(number)))
}

// KillProgram kills, with SIGKILL, all processes of a node that run a program of this name;
// the node or its kubelet restarts it.
func (c *Cluster) KillProgram(node, program string) error { return c.kill(node, program) }

// Import imports an image into a node.
func (c *Cluster) Import(ctx context.Context, number int, file string) error {
	return c.importInto(ctx, NodeName(number), file)
}

func (c *Cluster) importInto(ctx context.Context, name, file string) error {
	if err := c.awaitContainerd(ctx, name); err != nil {
		return err
	}
	_, err := c.State.Run(ctx, name, filepath.Join(c.BinDir, "ctr"), "--namespace=k8s.io", "images", "import", "--local", file)
	return err
}

func (c *Cluster) awaitContainerd(ctx context.Context, name string) error {
	return Await(ctx, time.Minute, "containerd of "+name+" answers", func(ctx context.Context) error {
		_, err := c.State.Run(ctx, name, filepath.Join(c.BinDir, "ctr"), "version")
		return err
	})
}

// linked copies a folder by hard links to the same files.
func linked(from, to string) error {
	err := exec.Command("cp", "--archive", "--link", from, to).Run()
	if err == nil {
		return nil
	}
	var stat unix.Stat_t
	if statErr := unix.Stat(from, &stat); statErr != nil {
		return errors.Join(err, statErr)
	}
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	return exec.Command("cp", "--archive", from, to).Run() // They are on different file systems.
}
