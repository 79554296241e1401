package supportbundle

import (
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// redacted replaces text that a support bundle leaves out.
const redacted = "(redacted)"

// secrets match text that must not leave the cluster, with its replacement. docs/kubectl/README.md
// lists them.
var secrets = []struct {
	pattern *regexp.Regexp
	left    string
}{
	{regexp.MustCompile(`-----BEGIN [A-Z0-9 ]+-----(?s:.*?)-----END [A-Z0-9 ]+-----`), redacted},
	{regexp.MustCompile(`\beyJ[\w-]+\.[\w-]+\.[\w-]*`), redacted},
	{regexp.MustCompile(`(?i)\b(bearer|basic) +[\w\-.~+/]{8,}=*`), "$1 " + redacted},
	{regexp.MustCompile(`://[^/\s:@"']*:[^/\s@"']+@`), "://" + redacted + "@"},
	{regexp.MustCompile(`(?i)([\w.-]*(?:password|passwd|passphrase|secret|token|credential|api[-_]?key|private[-_]?key|(?:key|certificate|authority)-data)[\w.-]*\\?"?\s*[:=]\s*)(\\?"[^"\\]*\\?"|[^\s,;&}"'\\]+)`), "$1" + redacted},
}

// redact removes secrets from text.
func redact(s string) string {
	for _, secret := range secrets {
		s = secret.pattern.ReplaceAllString(s, secret.left)
	}
	return s
}

// redactMeta keeps the part of an object's metadata that shows its origin. Annotation values
// may contain anything: kubectl keeps whole objects in one. Those about pod addresses stay.
func redactMeta(m *metav1.ObjectMeta) {
	m.ManagedFields = nil
	if m.Annotations == nil {
		return
	}
	kept := map[string]string{}
	for key, value := range m.Annotations {
		if !aboutAddresses(key) {
			value = redacted
		}
		kept[key] = value
	}
	m.Annotations = kept
}

func aboutAddresses(annotation string) bool {
	domain, _, _ := strings.Cut(annotation, "/")
	return domain == "cilium-pool.io" || domain == "cilium.io" || strings.HasSuffix(domain, ".cilium.io")
}
