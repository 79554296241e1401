package supportbundle

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// No line keeps the word s3cr3t; the text around it stays.
func TestRedact(t *testing.T) {
	for line, want := range map[string]string{
		`Authorization: Bearer s3cr3ts3cr3t`:                             `Authorization: Bearer (redacted)`,
		`--token=s3cr3t --v=4`:                                           `--token=(redacted) --v=4`,
		`{"password":"s3cr3t","node":"edge-01"}`:                         `{"password":(redacted),"node":"edge-01"}`,
		`{"msg":"got {\"clientSecret\":\"s3cr3t\"}"}`:                    `{"msg":"got {\"clientSecret\":(redacted)}"}`,
		`AWS_SECRET_ACCESS_KEY=s3cr3t`:                                   `AWS_SECRET_ACCESS_KEY=(redacted)`,
		`proxy https://me:s3cr3t@proxy.example:3128/`:                    `proxy https://(redacted)@proxy.example:3128/`,
		`eyJhbGci.eyJzcyI6s3cr3t.s3cr3t-sig is expired`:                  `(redacted) is expired`,
		"-----BEGIN CERTIFICATE-----\ns3cr3t\n-----END CERTIFICATE-----": `(redacted)`,
		`client-key-data: s3cr3t`:                                        `client-key-data: (redacted)`,
		`block 10.20.0.0-29 of pool main on edge-01`:                     `block 10.20.0.0-29 of pool main on edge-01`,
		`{"level":"info","ts":"2026-11-21T10:00:00Z","node":"a"}`:        `{"level":"info","ts":"2026-11-21T10:00:00Z","node":"a"}`,
	} {
		got := redact(line)
		if got != want || strings.Contains(got, "s3cr3t") {
			t.Errorf("%s\n got %s\nwant %s", line, got, want)
		}
	}
}

func TestRedactMeta(t *testing.T) {
	m := metav1.ObjectMeta{
		Name: "a", Labels: map[string]string{"zone": "b"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
		Annotations: map[string]string{
			"kubectl.kubernetes.io/last-applied-configuration": "{}", "cilium-pool.io/paused": "true",
			"network.cilium.io/ipv4-pod-cidr": "10.0.0.0/24", "example.com/cilium.io": "x",
		},
	}
	redactMeta(&m)
	want := metav1.ObjectMeta{Name: "a", Labels: map[string]string{"zone": "b"}, Annotations: map[string]string{
		"kubectl.kubernetes.io/last-applied-configuration": redacted, "cilium-pool.io/paused": "true",
		"network.cilium.io/ipv4-pod-cidr": "10.0.0.0/24", "example.com/cilium.io": redacted,
	}}
	if diff := cmp.Diff(want, m); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
