package audit

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/cilium-pool/cilium-pool-operator/pkg/ciliumnode"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane"
	"github.com/cilium-pool/cilium-pool-operator/test/controlplane/cptest"
)

// The role in the page grants only reading. Without any part of it check fails and reports why, or
// names the part that it did not look at.
func TestRights(t *testing.T) {
	b := newBed(t)
	optional := map[string]string{
		"leases":                    "Lease kube-system/cilium-pool-operator may not be read: the operator is assumed to run in mode crd; --mode sets another",
		"configmaps":                "ConfigMap kube-system/cilium-config may not be read: how Cilium is configured was not checked",
		"ciliumnodeconfigs":         "CiliumNodeConfigs of namespace kube-system may not be read: how Cilium is configured was not checked",
		"customresourcedefinitions": "", // their version is not compared
		"namespaces":                "", // for multi-pool mode
		"ciliumpodippools":          "",
		// Further addresses of the cluster.
		"endpointslices":              "",
		"ipaddresspools":              "",
		"ciliumegressgatewaypolicies": "",
	}
	if !b.ServesServiceCIDRs() {
		optional["servicecidrs"] = ""
	}
	role := roleOfPage(t)
	if o := b.check(); o.code != 0 {
		t.Errorf("with the rights of the page: exit code %d\n%s%s", o.code, o.stdout, o.stderr)
	}
	for r, rule := range role.Rules {
		for i, resource := range rule.Resources {
			says, mayLack := optional[resource]
			if !slices.Equal(rule.Verbs, []string{"list"}) && (!mayLack || rule.Verbs[0] != "get" || slices.Contains(rule.Verbs, "watch")) {
				t.Errorf("the page grants %v on %v", rule.Verbs, rule.Resources)
			}
			less := roleOfPage(t)
			less.Rules[r].Resources = slices.Delete(less.Rules[r].Resources, i, i+1)
			if len(less.Rules[r].Resources) == 0 {
				less.Rules = slices.Delete(less.Rules, r, r+1)
			}
			o := b.run("check", "--kubeconfig="+b.reader("without-"+resource, less))
			switch {
			case mayLack && (o.code != 0 || !strings.Contains(o.stdout+o.stderr, says) || says == "" && strings.Contains(o.stderr, "CRD")),
				!mayLack && (o.code != 2 || o.stdout != "" || !strings.Contains(o.stderr, "not audited") || !strings.Contains(o.stderr, `cannot list resource "`+resource+`"`)):
				t.Errorf("without %s: exit code %d\n%s%s", resource, o.code, o.stdout, o.stderr)
			}
		}
	}
	// The operator may have its Lease elsewhere.
	b.leaderless()
	b.leads("kube-public", "pools", ciliumnode.Kubernetes)
	if o := b.check("-o", "json"); b.report(o).Mode != "kubernetes" {
		t.Errorf("an operator in another namespace: exit code %d\n%s%s", o.code, o.stdout, o.stderr)
	}
}

func TestWithoutCRDs(t *testing.T) {
	cluster := cptest.New(t, controlplane.Options{CRDs: []*apiextensionsv1.CustomResourceDefinition{}})
	b := &bed{TB: t}
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
