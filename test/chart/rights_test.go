package chart

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
)

// seldom are rights that a short test does not see used.
var seldom = map[string]string{
	"patch events":               "an event repeated within minutes is counted up",
	"patch events.events.k8s.io": "likewise",

	"list nodes":                      "informers stream what is there, and list where an API server cannot do that",
	"list pods":                       "likewise",
	"list ciliumnodes.cilium.io":      "likewise",
	"list podippools.cilium-pool.io":  "likewise",
	"list podipblocks.cilium-pool.io": "likewise",
}

// process is the operator as the Deployment would start it.
type process struct {
	b    *bed
	cmd  *exec.Cmd
	log  string
	done chan error
}

// startOperator runs the operator with the Deployment's arguments and the token
// of its ServiceAccount, until the test ends at the latest.
func (b *bed) startOperator() *process {
	b.Helper()
	container := b.deployment().Spec.Template.Spec.Containers[0]
	config, err := b.cluster.ConfigFor(b.Context(), namespace, b.deployment().Spec.Template.Spec.ServiceAccountName)
	if err != nil {
		b.Fatal(err)
	}
	kubeconfig := filepath.Join(b.TempDir(), "kubeconfig")
	if err := controlplane.WriteKubeconfig(kubeconfig, config); err != nil {
		b.Fatal(err)
	}
	log, err := os.Create(filepath.Join(b.cluster.Dir(), "operator.log"))
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(operator(b.T), append(container.Args, "--kubeconfig="+kubeconfig)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	_ = log.Close() // the process has its own
	p := &process{b: b, cmd: cmd, log: log.Name(), done: make(chan error, 1)}
	go func() { p.done <- cmd.Wait() }()
	b.Cleanup(func() { _ = cmd.Process.Kill() })

	b.eventually("the probes of the Deployment are answered", func() error {
		select {
		case err := <-p.done:
			b.Fatalf("the operator ended: %v\n%s", err, p.readLog())
		default:
		}
		for _, probe := range []string{container.LivenessProbe.HTTPGet.Path, container.ReadinessProbe.HTTPGet.Path} {
			if err := get(b.Context(), container, "health", probe); err != nil {
				return err
			}
		}
		return get(b.Context(), container, "metrics", "/metrics")
	})
	return p
}

// stop asks the operator to stop, as kubelet does.
func (p *process) stop() {
	p.b.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.b.Fatal(err)
	}
	select {
	case err := <-p.done:
		if err != nil {
			p.b.Errorf("the operator stopped with %v\n%s", err, p.readLog())
		}
	case <-time.After(patience):
		p.b.Fatalf("the operator does not stop\n%s", p.readLog())
	}
}

func (p *process) readLog() []byte {
	p.b.Helper()
	log, err := os.ReadFile(p.log)
	if err != nil {
		p.b.Fatal(err)
	}
	return log
}

func (p *process) seesNothingForbidden() {
	p.b.Helper()
	for line := range bytes.Lines(p.readLog()) {
		if bytes.Contains(bytes.ToLower(line), []byte("forbidden")) {
			p.b.Errorf("the operator logs %s", line)
		}
	}
}

// right is one verb on one kind: "patch nodes/status", "get leases.coordination.k8s.io".
func right(verb, group, resource, subresource string) string {
	if subresource != "" {
		resource += "/" + subresource
	}
	if group != "" {
		resource += "." + group
	}
	return verb + " " + resource
}

// usedRights reads from the audit log what the operator did, and fails for what
// it was denied.
func (b *bed) usedRights() []string {
	b.Helper()
	log, err := os.ReadFile(filepath.Join(b.cluster.Dir(), "audit.log"))
	if err != nil {
		b.Fatal(err)
	}
	used := map[string]bool{}
	for line := range bytes.Lines(log) {
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

// grantedRights reads what the chart's roles grant.
func (b *bed) grantedRights() []string {
	b.Helper()
	ours := client.MatchingLabelsSelector{Selector: labels.SelectorFromSet(labels.Set{"app.kubernetes.io/instance": release})}
	cluster, local := &rbacv1.ClusterRoleList{}, &rbacv1.RoleList{}
	if err := b.client.List(b.Context(), cluster, ours); err != nil {
		b.Fatal(err)
	}
	if err := b.client.List(b.Context(), local, ours); err != nil {
		b.Fatal(err)
	}
	var rules []rbacv1.PolicyRule
	for _, r := range cluster.Items {
		rules = append(rules, r.Rules...)
	}
	for _, r := range local.Items {
		rules = append(rules, r.Rules...)
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
