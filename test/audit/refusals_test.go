package audit

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane/cptest"
)

// The role in the page grants exactly what is needed, only list; without any part of it check
// fails, and reports why.
func TestRights(t *testing.T) {
	b := newBed(t)
	role := roleOfPage(t)
	for _, rule := range role.Rules {
		if !slices.Equal(rule.Verbs, []string{"list"}) && !readsMode(rule) && !readsVersion(rule) {
			t.Errorf("the page grants %v on %v", rule.Verbs, rule.Resources)
		}
	}
	if o := b.check(); o.code != 0 {
		t.Errorf("with the rights of the page: exit code %d\n%s%s", o.code, o.stdout, o.stderr)
	}
	for r := range role.Rules {
		for i, resource := range role.Rules[r].Resources {
			less := roleOfPage(t)
			less.Rules[r].Resources = slices.Delete(less.Rules[r].Resources, i, i+1)
			if len(less.Rules[r].Resources) == 0 {
				less.Rules = slices.Delete(less.Rules, r, r+1)
			}
			o := b.run("check", "--kubeconfig="+b.reader("without-"+resource, less))
			if readsMode(role.Rules[r]) {
				if o.code != 0 || !strings.Contains(o.stderr, "may not be read: the operator is assumed to run in mode crd; --mode sets another") {
					t.Errorf("without %s: exit code %d\n%s%s", resource, o.code, o.stdout, o.stderr)
				}
				continue
			}
			if readsVersion(role.Rules[r]) {
				if o.code != 0 || strings.Contains(o.stderr, "CRD") {
					t.Errorf("without %s: exit code %d\n%s%s", resource, o.code, o.stdout, o.stderr)
				}
				continue
			}
			if o.code != 2 || o.stdout != "" || !strings.Contains(o.stderr, "not audited") || !strings.Contains(o.stderr, `cannot list resource "`+resource+`"`) {
				t.Errorf("without %s: exit code %d\n%s%s", resource, o.code, o.stdout, o.stderr)
			}
		}
	}
}

// readsMode reports whether a rule only grants reading the object with the mode.
func readsMode(rule rbacv1.PolicyRule) bool {
	return slices.Equal(rule.Verbs, []string{"get"}) && len(rule.ResourceNames) == 1
}

// readsVersion reports whether a rule only grants reading the CRDs, whose served
// version is compared. Without it the comparison is skipped.
func readsVersion(rule rbacv1.PolicyRule) bool {
	return slices.Equal(rule.Verbs, []string{"get"}) && slices.Equal(rule.Resources, []string{"customresourcedefinitions"}) &&
		len(rule.ResourceNames) == 3
}

func TestWithoutCRDs(t *testing.T) {
	cluster := cptest.New(t, controlplane.Options{CRDs: []*apiextensionsv1.CustomResourceDefinition{}})
	b := &bed{T: t}
	o := b.run("check", "--kubeconfig="+filepath.Join(cluster.Dir(), "kubeconfig"))
	if o.code != 2 || o.stdout != "" || !strings.Contains(o.stderr, "not installed") {
		t.Errorf("exit code %d\n%s%s", o.code, o.stdout, o.stderr)
	}
}

// Warnings fail the command, unless --fail-on=error.
func TestFailOn(t *testing.T) {
	b := newBed(t)
	b.pool("main", nil, "10.0.0.0/16")
	cn := b.node("a", "10.0.0.0/29")
	cn.Spec.IPAM.Pool["192.0.2.200"] = cn.Spec.IPAM.Pool["10.0.0.1"]
	b.Update(cn)
	for failOn, code := range map[string]int{"warning": 1, "error": 0} {
		o := b.check("--fail-on=" + failOn)
		if o.code != code || !strings.Contains(o.stdout, "WARNINGS\n  ForeignPoolEntry  CiliumNode/a  192.0.2.200: ") {
			t.Errorf("--fail-on=%s: exit code %d, want %d\n%s%s", failOn, o.code, code, o.stdout, o.stderr)
		}
	}
}
