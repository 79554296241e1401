//go:build linux

package kube

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cilium-pool/cilium-pool-operator/test/cluster/box"
)

// controlPlane is the name of its box.
const controlPlane = "control-plane"

// Outage stops outageParts, in this order: without etcd the API server takes long to exit.
var outageParts = []string{"kube-apiserver", "etcd"}

// StartControlPlane creates certificates and starts the control plane. Call it once per
// cluster.
func (c *Cluster) StartControlPlane(ctx context.Context) error {
	for _, dir := range []string{c.Logs(), c.holdDir(), filepath.Join(c.Dir, "etcd")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	// It is opened here, in the machine's own network, and served by the box.
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return err
	}
	defer listener.Close()
	file, err := listener.File()
	if err != nil {
		return err
	}
	defer file.Close()
	if err := c.writePKI("https://" + listener.Addr().String()); err != nil {
		return err
	}
	// The log is of this cluster alone.
	if err := errors.Join(os.RemoveAll(c.log("audit")), os.WriteFile(c.auditPolicy(), []byte(auditPolicy), 0o644)); err != nil {
		return err
	}
	spec := box.Spec{
		Name:      controlPlane,
		Services:  c.controlPlaneServices(),
		ForwardTo: net.JoinHostPort(apiServerAddress, apiServerPort),
		Leashed:   c.Leashed,
		Hold:      c.holdDir(),
	}
	if err := c.State.Start(spec, c.log(controlPlane), file, c.makeBridge); err != nil {
		return err
	}
	return c.AwaitControlPlane(ctx)
}

// AwaitControlPlane waits until the API server is ready.
func (c *Cluster) AwaitControlPlane(ctx context.Context) error {
	return Await(ctx, 2*time.Minute, "the API server is ready", func(ctx context.Context) error {
		_, err := c.Kubectl(ctx, "get", "--raw", "/readyz")
		return err
	})
}

func (c *Cluster) controlPlaneServices() []box.Service {
	const etcdURL = "http://127.0.0.1:2379"
	return []box.Service{
		c.service(controlPlane, "etcd", "--data-dir="+filepath.Join(c.Dir, "etcd"), "--unsafe-no-fsync",
			"--listen-client-urls="+etcdURL, "--advertise-client-urls="+etcdURL),
		c.service(controlPlane, "kube-apiserver", "--etcd-servers="+etcdURL,
			"--bind-address=0.0.0.0", "--secure-port="+apiServerPort, "--advertise-address="+apiServerAddress,
			"--client-ca-file="+c.pkiFile("ca.crt"),
			"--tls-cert-file="+c.pkiFile("kube-apiserver.crt"), "--tls-private-key-file="+c.pkiFile("kube-apiserver.key"),
			"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+c.pkiFile("service-accounts.key"),
			"--service-account-signing-key-file="+c.pkiFile("service-accounts.key"), "--service-cluster-ip-range="+c.serviceRanges(),
			"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
			"--kubelet-client-certificate="+c.pkiFile("kubelet-client.crt"), "--kubelet-client-key="+c.pkiFile("kubelet-client.key"),
			"--kubelet-certificate-authority="+c.pkiFile("ca.crt"), "--kubelet-preferred-address-types=InternalIP",
			"--event-ttl=6h", "--audit-policy-file="+c.auditPolicy(), "--audit-log-path="+c.log("audit")),
		c.service(controlPlane, "kube-controller-manager", "--kubeconfig="+c.pkiFile("kube-controller-manager.kubeconfig"),
			"--use-service-account-credentials", "--leader-elect=false", "--allocate-node-cidrs=false",
			"--service-account-private-key-file="+c.pkiFile("service-accounts.key"), "--root-ca-file="+c.pkiFile("ca.crt"),
			"--cluster-signing-cert-file="+c.pkiFile("ca.crt"), "--cluster-signing-key-file="+c.pkiFile("ca.key")),
		c.service(controlPlane, "kube-scheduler", "--kubeconfig="+c.pkiFile("kube-scheduler.kubeconfig"), "--leader-elect=false"),
	}
}

// auditPolicy logs the operator's requests alone.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users: ["system:serviceaccount:kube-system:cilium-pool-operator"]
- level: None
`

func (c *Cluster) auditPolicy() string { return filepath.Join(c.Dir, "audit-policy.yaml") }

func (c *Cluster) serviceRanges() string {
	if c.DualStack {
		return serviceRange + "," + serviceRange6
	}
	return serviceRange
}

// service returns the service of a program that was built, with its own log.
func (c *Cluster) service(where, name string, args ...string) box.Service {
	return box.Service{Name: name, Argv: append([]string{filepath.Join(c.BinDir, name)}, args...), Log: c.log(where + "-" + name)}
}

func (c *Cluster) log(name string) string { return filepath.Join(c.Logs(), name+".log") }
func (c *Cluster) holdDir() string        { return filepath.Join(c.Dir, "hold") }

// Outage kills the API server and etcd, which stay down until EndOutage.
func (c *Cluster) Outage() error {
	for _, part := range outageParts {
		if err := os.WriteFile(filepath.Join(c.holdDir(), part), nil, 0o644); err != nil {
			return err
		}
		if err := c.kill(controlPlane, part); err != nil {
			return err
		}
	}
	return nil
}

// EndOutage restarts them and waits until they serve.
func (c *Cluster) EndOutage(ctx context.Context) error {
	for _, part := range outageParts {
		if err := os.Remove(filepath.Join(c.holdDir(), part)); err != nil {
			return err
		}
	}
	return c.AwaitControlPlane(ctx)
}

// kill kills the processes in a box that run a program of this name, in containers too.
func (c *Cluster) kill(where, program string) error {
	pids, err := c.State.PIDs(where)
	if err != nil {
		return err
	}
	killed := 0
	for _, pid := range pids {
		path, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if err != nil || filepath.Base(path) != program {
			continue
		}
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
		killed++
	}
	if killed == 0 {
		return fmt.Errorf("no %s runs in %s", program, where)
	}
	return nil
}

// AskOutside requests a URL from an address that does not belong to the cluster.
func (c *Cluster) AskOutside(ctx context.Context, url string) error {
	_, err := c.State.Run(ctx, controlPlane, filepath.Join(c.BinDir, "probe"), "get", url, Outside)
	return err
}
