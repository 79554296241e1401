package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/cilium-pool/cilium-pool-operator/test/harness/process"
)

const (
	loopback       = "127.0.0.1"
	etcdQuotaBytes = 8 << 30

	auditPolicyFile = "audit-policy.yaml"
	auditPolicy     = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
`
	pollInterval = 25 * time.Millisecond
	portAttempts = 5
)

// errPortTaken means that another process bound the chosen port first.
var errPortTaken = errors.New("port taken")

// startEtcd returns once etcd listens, which may be before it serves.
func (c *Cluster) startEtcd(ctx context.Context) error {
	client, peer := "unix://"+EtcdSocket, "unix://"+peerSocket
	args := []string{
		"--name=" + etcdName,
		"--data-dir=data",
		"--listen-client-urls=" + client,
		"--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=" + etcdName + "=" + peer,
		"--quota-backend-bytes=" + strconv.Itoa(etcdQuotaBytes),
		"--unsafe-no-fsync",
	}
	p, err := c.startProcess(etcdName, etcdName, args, EtcdSocket, peerSocket)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.etcd = p
	c.mu.Unlock()
	return poll(ctx, etcdName, p, func(context.Context) error {
		_, err := os.Stat(filepath.Join(c.dir, EtcdSocket))
		return err
	})
}

// EtcdSocket is the file below Dir where etcd listens.
//
// etcd requires host:port in every URL; for a unix socket that is the name of its file. It is
// relative to the working directory of all processes, as a socket's path is limited to 107
// bytes.
const EtcdSocket = "etcd-client:0"

const peerSocket = "etcd-peer:0"

// startFirstAPIServer uses the port of an earlier start, or else a free one, and tries another
// if a different process takes it meanwhile.
func (c *Cluster) startFirstAPIServer(ctx context.Context) error {
	path := filepath.Join(c.dir, kubeconfigFile)
	if cfg, err := readKubeconfig(path); err == nil {
		c.config = cfg
		if err := c.startAPIServer(); err != nil {
			return err
		}
		return c.Ready(ctx)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	for attempt := 1; ; attempt++ {
		err := c.tryPort(ctx)
		if err == nil {
			return c.WriteKubeconfig(path)
		}
		if !errors.Is(err, errPortTaken) || attempt == portAttempts {
			return err
		}
	}
}

func (c *Cluster) tryPort(ctx context.Context) error {
	port, err := FreePort(c.opts.BindAddress)
	if err != nil {
		return err
	}
	if c.config, err = c.adminConfig(port); err != nil {
		return err
	}
	if err := c.startAPIServer(); err != nil {
		return err
	}
	err = c.Ready(ctx)
	if _, p := c.processes(); err != nil && !p.Running() &&
		strings.Contains(p.LogTail(), "address already in use") {
		return errors.Join(errPortTaken, err)
	}
	return err
}

func (c *Cluster) startAPIServer() error {
	p, err := c.startAPIServerAs(apiServerName, c.config, c.opts.AuditLog)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.apiServer = p
	c.mu.Unlock()
	return nil
}

// StartUncached starts a second kube-apiserver, and returns the administrator's configuration for
// it. It has no watch cache, so a watch resumes from each version that etcd still has, whatever was
// killed in between. The Kill methods leave it alone, and Stop ends it.
func (c *Cluster) StartUncached(ctx context.Context) (*rest.Config, error) {
	port, err := FreePort(c.opts.BindAddress)
	if err != nil {
		return nil, err
	}
	cfg, err := c.adminConfig(port)
	if err != nil {
		return nil, err
	}
	p, err := c.startAPIServerAs(uncachedName, cfg, false, "--watch-cache=false")
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.uncached = p
	c.mu.Unlock()
	return cfg, ready(ctx, cfg, p)
}

func (c *Cluster) startAPIServerAs(name string, cfg *rest.Config, auditLog bool, more ...string) (*process.Process, error) {
	host, err := url.Parse(cfg.Host)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	args := []string{
		"--etcd-servers=unix://" + EtcdSocket,
		"--bind-address=" + host.Hostname(),
		"--advertise-address=" + host.Hostname(), // Otherwise it looks for a default route.
		"--secure-port=" + host.Port(),
		"--tls-cert-file=" + serverCertFile,
		"--tls-private-key-file=" + serverKeyFile,
		"--client-ca-file=" + caCertFile,
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + serviceAccountKey,
		"--service-account-signing-key-file=" + serviceAccountKey,
		"--authorization-mode=RBAC",
		"--disable-admission-plugins=ServiceAccount",
		"--allow-privileged=true",
		"--shutdown-watch-termination-grace-period=1s", // Otherwise open watches delay its stop.
		"--service-cluster-ip-range=10.96.0.0/16",
		"--endpoint-reconciler-type=none", // The others refuse a loopback address.
	}
	if auditLog {
		policy := filepath.Join(c.dir, auditPolicyFile)
		if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
			return nil, fmt.Errorf("write audit policy: %w", err)
		}
		args = append(args, "--audit-policy-file="+auditPolicyFile, "--audit-log-path="+auditLogFile)
	}
	return c.startProcess(name, apiServerName, append(args, more...))
}

// Ready waits until kube-apiserver reports that it is ready, including etcd, and the default
// namespaces exist. It fails as soon as kube-apiserver or ctx ends.
func (c *Cluster) Ready(ctx context.Context) error {
	_, p := c.processes()
	if p == nil {
		return fmt.Errorf("%s is not running", apiServerName)
	}
	return ready(ctx, c.config, p)
}

func ready(ctx context.Context, cfg *rest.Config, p *process.Process) error {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("wait for %s: %w", p.Name(), err)
	}
	return poll(ctx, p.Name(), p, func(ctx context.Context) error {
		if err := client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
			return err
		}
		for _, namespace := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem} {
			if _, err := client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{}); err != nil {
				return err
			}
		}
		return nil
	})
}

// FreePort returns a free port of an address, below the range that the kernel uses for
// outgoing connections: in that range a client that redials a dead server might connect to
// itself and block the port.
func FreePort(address string) (int, error) {
	const lowest, count, attempts = 20000, 12000, 100
	var last error
	for range attempts {
		port := lowest + rand.IntN(count)
		l, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(port)))
		if err == nil {
			return port, l.Close()
		}
		last = err
	}
	return 0, fmt.Errorf("find a free port: %w", last)
}
