//go:build linux

package bed

import "path/filepath"

const (
	operatorName       = "cilium-pool-operator"
	ciliumOperatorName = "cilium-operator"
)

// Operator is a running cilium-pool-operator.
type Operator struct{ process *process }

// StartOperator starts one, with its defaults but for the given flags.
func (b *Bed) StartOperator(flags ...string) (*Operator, error) {
	argv := append([]string{
		filepath.Join(b.opts.BinDir, operatorName),
		"--kubeconfig=" + b.kubeconfig,
		"--metrics-bind-address=0", "--health-probe-bind-address=0",
		"--log-format=console", "--log-level=debug",
	}, flags...)
	p, err := b.spawn("operator", nil, argv...)
	if err != nil {
		return nil, err
	}
	return &Operator{p}, nil
}

// Kill kills it with SIGKILL.
func (o *Operator) Kill() error { return o.process.kill() }

// Running tells whether it has not ended.
func (o *Operator) Running() bool { return o.process.running() }

// StartCiliumOperator starts Cilium's own operator in the bed's IPAM mode, as
// shipped but for the given flags.
func (b *Bed) StartCiliumOperator(flags ...string) (*Operator, error) {
	argv := append([]string{
		filepath.Join(b.opts.CiliumDir, ciliumOperatorName),
		"--k8s-kubeconfig-path=" + b.kubeconfig,
		"--ipam=" + b.opts.IPAM,
		"--enable-ipv4=true", "--enable-ipv6=false",
		"--identity-allocation-mode=crd",
	}, flags...)
	p, err := b.spawn("cilium-operator", nil, argv...)
	if err != nil {
		return nil, err
	}
	return &Operator{p}, nil
}
