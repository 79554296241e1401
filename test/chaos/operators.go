package main

import (
	"bytes"
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
	"github.com/cilium-pool/cilium-pool-operator/test/harness/link"
	"github.com/cilium-pool/cilium-pool-operator/test/harness/process"
)

const (
	operatorBinary = "cilium-pool-operator"
	leaseName      = "cilium-pool-operator"
	// leaseDuration is short, so that a paused leader loses the Lease within seconds.
	leaseDuration = 8 * time.Second
	nodeGone      = 8 * time.Second
	// operatorBackoff is the time until an ended replica starts again, as with a kubelet.
	operatorBackoff = time.Second
)

// operatorFlags returns flags with durations that let blocks be returned within a minute.
func operatorFlags(kubeconfig string, s settings) []string {
	return append([]string{
		"--kubeconfig=" + kubeconfig, "--leader-elect-name=" + leaseName,
		"--leader-elect-lease-duration=" + leaseDuration.String(),
		"--metrics-bind-address=0", "--health-probe-bind-address=0",
		"--reclaim-idle-for=2s", "--ack-hold=500ms", "--ack-timeout=4s", "--agent-settle-time=1s",
		"--cooldown=" + s.mode.cooldown().String(), "--node-gone-cooldown=" + max(nodeGone, s.mode.cooldown()).String(),
		"--reclaims-per-minute=Unlimited", "--reclaims-per-minute-per-pool=Unlimited",
	}, s.mode.operatorFlags()...)
}

// operator is a replica, which is restarted whenever it ends.
type operator struct {
	name string
	args []string   // of the next process, the program's name first
	env  []string   // in addition to ours
	link *link.Link // to the API server; nil if there is none
	// metrics is the address of its metrics.
	metrics string
	log     *os.File

	mu   sync.Mutex
	proc *process.Process
	// elects is when this process began to take part in leader election, acquired when it
	// became leader; zero: it never did.
	elects, acquired time.Time
	// held is an open channel while no process may start, and nil otherwise.
	held chan struct{}
	// killing is true while it is being killed; downFor is its time until the next start.
	killing bool
	downFor time.Duration
	// starts counts processes, endings exits without a signal of ours.
	starts, endings int
	panicked        string
}

// newOperator returns a replica with an account of its own.
func newOperator(ctx context.Context, c *controlplane.Cluster, admin client.Client, s settings, name string) (*operator, error) {
	account := metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name}
	for _, o := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: account},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: name}},
		},
	} {
		if err := admin.Create(ctx, o); err != nil {
			return nil, err
		}
	}
	cfg, err := c.ConfigFor(ctx, account.Namespace, name)
	if err != nil {
		return nil, err
	}
	var way *link.Link
	if s.scenario.linked {
		if way, err = link.New(strings.TrimPrefix(cfg.Host, "https://")); err != nil {
			return nil, err
		}
		cfg.Host = "https://" + way.Addr()
	}
	kubeconfig := filepath.Join(c.Dir(), name+".kubeconfig")
	if err := controlplane.WriteKubeconfig(kubeconfig, cfg); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(process.LogPath(c.Dir(), name), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	o := &operator{
		name: name, log: log, link: way, env: s.pingEnv(), args: append([]string{cmp.Or(s.older, s.program())}, operatorFlags(kubeconfig, s)...),
	}
	if s.scenario.flags == nil {
		return o, nil
	}
	more, err := s.scenario.flags(o)
	o.args = append(o.args, more...)
	return o, err
}

// supervise keeps the operator running until ctx ends.
func (o *operator) supervise(ctx context.Context) error {
	defer o.log.Close()
	for {
		p, err := o.start()
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return p.Kill()
		case <-p.Ended():
		}
		if harness.Sleep(ctx, o.ended()) != nil || !o.mayStart(ctx) {
			return nil
		}
	}
}

func (o *operator) start() (_ *process.Process, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.elects, o.acquired, o.killing = time.Time{}, time.Time{}, false
	o.starts++
	// An empty GOGC lets the operator choose its own, also where the tests run with another.
	env := slices.Concat(os.Environ(), []string{"GOGC="}, o.env)
	o.proc, err = process.Start(process.Command{Name: o.name, Args: o.args, Env: env, Stdout: operatorLog{o}, Stderr: operatorLog{o}})
	return o.proc, err
}

// ended records that the process ended, and returns the time until the next start.
func (o *operator) ended() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.elects, o.acquired = time.Time{}, time.Time{}
	if o.killing {
		return o.downFor
	}
	o.endings++
	return operatorBackoff
}

// kill kills the process; the next one starts after downFor.
func (o *operator) kill(downFor time.Duration) error {
	o.mu.Lock()
	p := o.proc
	o.killing, o.downFor = true, downFor
	o.mu.Unlock()
	return p.Kill()
}

// keepDown ends the process by a signal, and prevents a start until release is called.
func (o *operator) keepDown(s syscall.Signal) (release func(), err error) {
	held := make(chan struct{})
	o.mu.Lock()
	o.held = held
	o.mu.Unlock()
	_, err = o.signal(s, 0)
	return func() { close(held) }, err
}

// mayStart waits while the operator is kept down; it returns false if ctx has ended.
func (o *operator) mayStart(ctx context.Context) bool {
	o.mu.Lock()
	held := o.held
	o.held = nil
	o.mu.Unlock()
	if held == nil {
		return true
	}
	select {
	case <-held:
		return true
	case <-ctx.Done():
		return false
	}
}

// signal sends a signal that ends the process; the channel is closed when it has ended. The
// next one starts after downFor.
func (o *operator) signal(s syscall.Signal, downFor time.Duration) (ended <-chan struct{}, err error) {
	o.mu.Lock()
	p := o.proc
	o.killing, o.downFor = true, downFor
	o.mu.Unlock()
	return p.Ended(), p.Signal(s)
}

// pause stops the process with SIGSTOP until the returned function is called.
func (o *operator) pause() (resume func() error, err error) {
	o.mu.Lock()
	p := o.proc
	o.mu.Unlock()
	return func() error { return p.Signal(syscall.SIGCONT) }, p.Signal(syscall.SIGSTOP)
}

func (o *operator) leadsSince() time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.acquired
}

func (o *operator) electsSince() time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.elects
}

// started returns the number of started processes.
func (o *operator) started() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.starts
}

// leader returns the operator that became leader last and is still alive, or nil.
func leader(operators []*operator) *operator {
	latest := slices.MaxFunc(operators, func(a, b *operator) int { return a.leadsSince().Compare(b.leadsSince()) })
	if latest.leadsSince().IsZero() {
		return nil
	}
	return latest
}

// operatorLog stores the operator's log, and parses it on the way.
type operatorLog struct{ *operator }

func (l operatorLog) Write(p []byte) (int, error) {
	for line := range bytes.Lines(p) {
		l.read(line)
	}
	return l.log.Write(p)
}

func (l operatorLog) read(line []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case bytes.Contains(line, []byte("ttempting to acquire leader lease")):
		l.elects = time.Now()
	case bytes.Contains(line, []byte("uccessfully acquired lease")):
		l.acquired = time.Now()
	case l.panicked == "" && bytes.Contains(line, []byte("panic")):
		l.panicked = string(bytes.TrimSpace(line))
	}
}
