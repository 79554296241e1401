package chart

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
	"github.com/cilium-pool/cilium-pool-operator/test/harness/process"
)

// running is the operator, started as the Deployment would start it.
type running struct {
	*process.Process
	b *bed
}

// startOperator runs the operator with the Deployment's arguments and the token of its
// ServiceAccount, until it is stopped or the test ends. Further arguments follow those.
func (b *bed) startOperator(args ...string) *running {
	b.Helper()
	op := b.launchOperator(args...)
	container := b.deployment().Spec.Template.Spec.Containers[0]
	b.Eventually("the probes of the Deployment are answered", func() error {
		if !op.Running() {
			b.Fatalf("the operator ended: %v\n%s", op.Err(), op.Log())
		}
		return errors.Join(b.probe(container.LivenessProbe), b.probe(container.ReadinessProbe))
	})
	return op
}

// probe probes the operator as its kubelet would.
func (b *bed) probe(probe *corev1.Probe) error {
	b.Helper()
	_, err := get(b.Context(), b.deployment().Spec.Template.Spec.Containers[0], "health", probe.HTTPGet.Path, rest.Config{})
	return err
}

// launchOperator does not wait for its probes.
func (b *bed) launchOperator(args ...string) *running {
	b.Helper()
	container := b.deployment().Spec.Template.Spec.Containers[0]
	config, err := b.cluster.ConfigFor(b.Context(), namespace, b.deployment().Spec.Template.Spec.ServiceAccountName)
	b.Must(err)
	if b.pod != nil {
		request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: b.pod.Name, UID: b.pod.UID},
		}}
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: b.pod.Spec.ServiceAccountName}}
		b.Must(b.Client.SubResource("token").Create(b.Context(), account, request))
		config.BearerToken = request.Status.Token
	}
	dir, err := os.MkdirTemp(b.cluster.Dir(), "operator-")
	b.Must(err)
	kubeconfig := filepath.Join(dir, "kubeconfig")
	b.Must(controlplane.WriteKubeconfig(kubeconfig, config))
	p, err := process.Start(process.Command{
		Name: "operator", Dir: dir, Env: []string{"PATH=" + os.Getenv("PATH")},
		Args: slices.Concat([]string{operator(b.T)}, container.Args, []string{"--kubeconfig=" + kubeconfig}, args),
	})
	b.Must(err)
	b.Cleanup(func() { _ = p.Kill() })
	return &running{p, b}
}

// stop stops the operator, as kubelet does.
func (p *running) stop() {
	p.b.Helper()
	if err := errors.Join(p.Stop(harness.Patience), p.Err()); err != nil {
		p.b.Errorf("the operator stopped with %v\n%s", err, p.Log())
	}
}

// logs waits until the operator's log has a text.
func (p *running) logs(text string) {
	p.b.Helper()
	p.b.Eventually("the log says "+text, func() error {
		if log := p.Log(); !strings.Contains(log, text) {
			return errors.New(log)
		}
		return nil
	})
}

// servesMetrics checks that only authorized clients may read the metrics, that the server has
// the certificate that trust requires, and that the libraries' metrics in docs/reference/metrics.md
// exist.
func (p *running) servesMetrics(trust rest.TLSClientConfig) {
	p.b.Helper()
	container := p.b.deployment().Spec.Template.Spec.Containers[0]
	for _, test := range []struct {
		account string
		want    func(error) bool
	}{
		{"", apierrors.IsUnauthorized}, {"stranger", apierrors.IsForbidden}, {"prometheus", func(err error) bool { return err == nil }},
	} {
		config := &rest.Config{}
		if test.account != "" {
			p.b.Create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: test.account}})
			var err error
			config, err = p.b.cluster.ConfigFor(p.b.Context(), "default", test.account)
			p.b.Must(err)
		}
		body, err := get(p.b.Context(), container, "metrics", "/metrics", rest.Config{BearerToken: config.BearerToken, TLSClientConfig: trust})
		if !test.want(err) {
			p.b.Errorf("metrics as %q: %v", test.account, err)
		}
		if err == nil {
			p.b.documented(body)
		}
	}
}
