package chart

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/cert"

	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
	"github.com/cilium-pool/cilium-pool-operator/test/harness/process"
)

// seldom are rights that a short test does not use.
var seldom = map[string]string{
	"patch events":               "an event repeated within minutes is counted up",
	"patch events.events.k8s.io": "likewise",

	"list nodes":                      "informers stream what is there, and list where an API server cannot do that",
	"list pods":                       "likewise",
	"list ciliumnodes.cilium.io":      "likewise",
	"list podippools.cilium-pool.io":  "likewise",
	"list podipblocks.cilium-pool.io": "likewise",

	"list services":                            "likewise",
	"list servicecidrs.networking.k8s.io":      "likewise",
	"list ciliumloadbalancerippools.cilium.io": "likewise",
}

// running is the operator, started as the Deployment would start it.
type running struct {
	*process.Process
	b *bed
}

// startOperator runs the operator with the Deployment's arguments and the token of its
// ServiceAccount, until it is stopped or the test ends. Further arguments follow those.
func (b *bed) startOperator(args ...string) *running {
	b.Helper()
	container := b.deployment().Spec.Template.Spec.Containers[0]
	config, err := b.cluster.ConfigFor(b.Context(), namespace, b.deployment().Spec.Template.Spec.ServiceAccountName)
	if err != nil {
		b.Fatal(err)
	}
	if b.pod != nil {
		request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: b.pod.Name, UID: b.pod.UID},
		}}
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: b.pod.Spec.ServiceAccountName}}
		b.Must(b.Client.SubResource("token").Create(b.Context(), account, request))
		config.BearerToken = request.Status.Token
	}
	dir, err := os.MkdirTemp(b.cluster.Dir(), "operator-")
	if err != nil {
		b.Fatal(err)
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	b.Must(controlplane.WriteKubeconfig(kubeconfig, config))
	p, err := process.Start(process.Command{
		Name: "operator", Dir: dir, Env: []string{"PATH=" + os.Getenv("PATH")},
		Args: slices.Concat([]string{operator(b.T)}, container.Args, []string{"--kubeconfig=" + kubeconfig}, args),
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = p.Kill() })

	b.Eventually("the probes of the Deployment are answered", func() error {
		if !p.Running() {
			b.Fatalf("the operator ended: %v\n%s", p.Err(), p.Log())
		}
		for _, probe := range []string{container.LivenessProbe.HTTPGet.Path, container.ReadinessProbe.HTTPGet.Path} {
			if _, err := get(b.Context(), container, "health", probe, "", nil); err != nil {
				return err
			}
		}
		return nil
	})
	return &running{p, b}
}

// stop stops the operator, as kubelet does.
func (p *running) stop() {
	p.b.Helper()
	if err := errors.Join(p.Stop(harness.Patience), p.Err()); err != nil {
		p.b.Errorf("the operator stopped with %v\n%s", err, p.Log())
	}
}

// servesMetrics checks that only authorized clients may read the metrics, that the server has
// the certificate that trust requires, and that the libraries' metrics in docs/reference/metrics.md
// exist.
func (p *running) servesMetrics(trust *tls.Config) {
	p.b.Helper()
	container := p.b.deployment().Spec.Template.Spec.Containers[0]
	for _, test := range []struct{ account, want string }{
		{"", "401 Unauthorized"}, {"stranger", "403 Forbidden"}, {"prometheus", ""},
	} {
		token := ""
		if test.account != "" {
			p.b.Create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: test.account}})
			config, err := p.b.cluster.ConfigFor(p.b.Context(), "default", test.account)
			if err != nil {
				p.b.Fatal(err)
			}
			token = config.BearerToken
		}
		body, err := get(p.b.Context(), container, "metrics", "/metrics", token, trust)
		switch {
		case test.want == "" && err != nil:
			p.b.Fatalf("metrics as %q: %v", test.account, err)
		case test.want == "":
			p.b.documented(body)
		case err == nil || !strings.Contains(err.Error(), test.want):
			p.b.Errorf("metrics as %q: %v, want %s", test.account, err, test.want)
		}
	}
}

// certificate writes a certificate as a Secret of type kubernetes.io/tls is mounted. It
// returns its folder, and the trust configuration of a scraper that uses the chart's
// ServiceMonitor.
func (b *bed) certificate() (string, *tls.Config) {
	b.Helper()
	monitor := ofKind(b.T, render(b.T, "--set", "metrics.certSecret=s,metrics.serviceMonitor.enabled=true"), "ServiceMonitor")[0]
	endpoints, _, _ := unstructured.NestedSlice(monitor.Object, "spec", "endpoints")
	name, _, err := unstructured.NestedString(endpoints[0].(map[string]any), "tlsConfig", "serverName")
	if err != nil || name == "" {
		b.Fatalf("the ServiceMonitor has no serverName: %v", err)
	}
	certificate, key, err := cert.GenerateSelfSignedCertKey(name, nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	dir := b.TempDir()
	for file, data := range map[string][]byte{"tls.crt": certificate, "tls.key": key} {
		b.Must(os.WriteFile(filepath.Join(dir, file), data, 0o600))
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(certificate)
	return dir, &tls.Config{RootCAs: pool, ServerName: name}
}

// documented checks that each of the libraries' metrics in docs/reference/metrics.md is among those
// served; the alerts and the dashboard may query these.
func (b *bed) documented(served string) {
	b.Helper()
	page, err := os.ReadFile(root + "/docs/reference/metrics.md")
	if err != nil {
		b.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## From the libraries\n")
	names := regexp.MustCompile("(?m)^\\| `(\\w+)` \\|").FindAllStringSubmatch(section, -1)
	if len(names) == 0 {
		b.Fatal("docs/reference/metrics.md lists no metrics of the libraries")
	}
	for _, name := range names {
		if !strings.Contains(served, "\n# TYPE "+name[1]+" ") {
			b.Errorf("docs/reference/metrics.md says that %s is served; it is not", name[1])
		}
	}
	if want := `leader_election_master_status{name="` + release + `"} 1`; !strings.Contains(served, want) {
		b.Errorf("the alerts ask for %s; it is not served", want)
	}
}

func (p *running) seesNothingForbidden() {
	p.b.Helper()
	for line := range strings.Lines(p.Log()) {
		if strings.Contains(strings.ToLower(line), "forbidden") {
			p.b.Errorf("the operator logs %s", line)
		}
	}
}

// right formats one verb on one kind: "patch nodes/status", "get leases.coordination.k8s.io".
func right(verb, group, resource, subresource string) string {
	if subresource != "" {
		resource += "/" + subresource
	}
	if group != "" {
		resource += "." + group
	}
	return verb + " " + resource
}

// usedRights reads the operator's requests from the audit log, and fails if one was denied.
func (b *bed) usedRights() []string {
	b.Helper()
	log, err := os.ReadFile(filepath.Join(b.cluster.Dir(), "audit.log"))
	if err != nil {
		b.Fatal(err)
	}
	used := map[string]bool{}
	for line := range bytes.Lines(log) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // the API server has not written the rest yet
		}
		var request struct {
			Verb, RequestURI string
			User             struct{ Username string }
			ObjectRef        *struct{ APIGroup, Resource, Subresource string }
			ResponseStatus   struct{ Code int }
		}
		if err := json.Unmarshal(line, &request); err != nil {
			b.Fatalf("audit log: %v\n%s", err, line)
		}
		if request.User.Username != fmt.Sprintf("system:serviceaccount:%s:%s", namespace, release) {
			continue
		}
		if code := request.ResponseStatus.Code; code == 401 || code == 403 {
			b.Errorf("%s %s was answered with %d", request.Verb, request.RequestURI, code)
		}
		if o := request.ObjectRef; o != nil {
			used[right(request.Verb, o.APIGroup, o.Resource, o.Subresource)] = true
		}
	}
	return slices.Sorted(maps.Keys(used))
}

// grantedRights returns the rights that the chart's roles grant to the operator.
func (b *bed) grantedRights() []string {
	b.Helper()
	clusterWide, local := &rbacv1.ClusterRoleBindingList{}, &rbacv1.RoleBindingList{}
	b.Must(b.Client.List(b.Context(), clusterWide))
	b.Must(b.Client.List(b.Context(), local))
	operator := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: release, Namespace: namespace}
	var rules []rbacv1.PolicyRule
	for _, binding := range clusterWide.Items {
		if slices.Contains(binding.Subjects, operator) {
			role := &rbacv1.ClusterRole{}
			b.Read(role, "", binding.RoleRef.Name)
			rules = append(rules, role.Rules...)
		}
	}
	for _, binding := range local.Items {
		if slices.Contains(binding.Subjects, operator) {
			role := &rbacv1.Role{}
			b.Read(role, binding.Namespace, binding.RoleRef.Name)
			rules = append(rules, role.Rules...)
		}
	}
	granted := map[string]bool{}
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					resource, subresource, _ := strings.Cut(resource, "/")
					granted[right(verb, group, resource, subresource)] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(granted))
}

func (b *bed) compareRights(granted, used []string) {
	b.Helper()
	granted = slices.DeleteFunc(granted, func(r string) bool {
		_, ok := seldom[r]
		return ok && !slices.Contains(used, r)
	})
	if diff := cmp.Diff(used, granted); diff != "" {
		b.Errorf("rights (-used +granted):\n%s", diff)
	}
}
