// Package supportbundle is kubectl cilium-pool support-bundle.
package supportbundle

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	ciliumv2 "github.com/cilium/cilium/pkg/k8s/apis/cilium.io/v2"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/cilium-pool/cilium-pool-operator/pkg/audit"
	"github.com/cilium-pool/cilium-pool-operator/pkg/audit/check"
	"github.com/cilium-pool/cilium-pool-operator/pkg/clusterview"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/explain"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/list"
	"github.com/cilium-pool/cilium-pool-operator/pkg/suggest"
	"github.com/cilium-pool/cilium-pool-operator/pkg/termsafe"
)

// New returns the command support-bundle.
func New(e *cli.Env) *cobra.Command {
	file := ""
	logLines := int64(10000)
	cmd := &cobra.Command{
		Use:   "support-bundle",
		Short: "Pack the data for a support request into one file",
		Long: `Packs into a .tar.gz the data for a support request: status, nodes, an explanation
of each node, a first look of check, all PodIPPools, PodIPBlocks and CiliumNodes,
events about these, and the operator's pods with their logs.

It holds names of nodes and pods, labels and addresses: look at it before you send
it. It reads no Secret; tokens, passwords, keys and certificates are redacted
(docs/kubectl/README.md). errors.txt and the terminal list the objects that could not
be read.`,
		Example: cli.Examples("support-bundle", "support-bundle --output-file case-17.tar.gz --log-lines 1000"),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := e.Read(cmd.Context())
			if err != nil {
				return err
			}
			config, err := e.Config()
			if err != nil {
				return err
			}
			clientset, err := kubernetes.NewForConfig(config)
			if err != nil {
				return err
			}
			var packed bytes.Buffer
			zip := gzip.NewWriter(&packed)
			b := &bundle{env: e, cluster: c, clientset: clientset, tar: tar.NewWriter(zip)}
			b.gather(cmd.Context(), logLines)
			if err := errors.Join(b.tar.Close(), zip.Close()); err != nil {
				return err
			}
			if file == "" {
				file = "cilium-pool-" + c.Now.UTC().Format("20060102-150405") + ".tar.gz"
			}
			if err := os.WriteFile(file, packed.Bytes(), 0o600); err != nil {
				return err
			}
			fmt.Fprintf(e.Out, "wrote %s: %s\n", file, suggest.Count(b.files, "file"))
			for _, p := range b.problems {
				fmt.Fprintf(e.ErrOut, "not in it: %v\n", p)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&file, "output-file", file, "file to write; empty: a name with the time, here")
	cmd.Flags().Int64Var(&logLines, "log-lines", logLines, "number of lines of each operator's log")
	return cmd
}

// bundle collects files, without secrets.
type bundle struct {
	env       *cli.Env
	cluster   *clusterview.Cluster
	clientset kubernetes.Interface // for logs
	tar       *tar.Writer
	files     int
	problems  []error
}

func (b *bundle) add(name string, body []byte, err error) {
	if err == nil {
		body = []byte(termsafe.Text(redact(string(body))))
		err = b.tar.WriteHeader(&tar.Header{Name: "cilium-pool/" + name, Mode: 0o644, Size: int64(len(body)), ModTime: b.cluster.Now})
	}
	if err == nil {
		_, err = b.tar.Write(body)
		b.files++
	}
	if err != nil {
		b.problems = append(b.problems, fmt.Errorf("%s: %w", name, err))
	}
}

func (b *bundle) addYAML(name string, v any) {
	body, err := yaml.Marshal(v)
	b.add(name, body, err)
}

func (b *bundle) gather(ctx context.Context, logLines int64) {
	b.add("version.txt", []byte("kubectl cilium-pool "+b.env.Version+"\noperator "+cmp.Or(b.cluster.Operator.Settings.Version, "unknown")+"\n"), nil)
	var status, explained cli.Text
	list.ReadOverview(ctx, b.env, b.cluster, 0).Describe(&status, &cli.Output{Format: "wide"}, b.cluster.Now)
	b.add("status.txt", []byte(status.String()), nil)
	for _, name := range b.cluster.NodeNames() {
		explain.Node(&explained, b.cluster, name)
		explained.Line("")
	}
	b.add("explain.txt", []byte(explained.String()), nil)
	report := audit.NewReport(b.cluster.Objects, 1, audit.Check(b.cluster.Objects, check.SettingsOf(b.cluster.Operator.Settings)))
	var checked bytes.Buffer
	err := report.Text(&checked)
	b.add("check.txt", checked.Bytes(), err)
	b.addObjects(ctx)
	b.addEvents(ctx)
	b.addOperators(ctx, logLines)
	if len(b.problems) > 0 {
		b.add("errors.txt", []byte(errors.Join(b.problems...).Error()+"\n"), nil)
	}
}

func (b *bundle) addObjects(ctx context.Context) {
	if body := b.cluster.Operator.Published; body != "" {
		b.add("settings.json", []byte(body+"\n"), nil)
	}
	objects := b.cluster.Objects
	for i := range objects.Pools {
		redactMeta(&objects.Pools[i].ObjectMeta)
	}
	for i := range objects.Blocks {
		redactMeta(&objects.Blocks[i].ObjectMeta)
	}
	for i := range objects.Pins {
		redactMeta(&objects.Pins[i].ObjectMeta)
	}
	b.addYAML("podippools.yaml", objects.Pools)
	b.addYAML("podippins.yaml", objects.Pins)
	b.addYAML("podipblocks.yaml", objects.Blocks)
	ciliumNodes := &ciliumv2.CiliumNodeList{}
	if err := b.cluster.Client.List(ctx, ciliumNodes); err != nil {
		b.add("ciliumnodes.yaml", nil, err)
		return
	}
	for i := range ciliumNodes.Items {
		redactMeta(&ciliumNodes.Items[i].ObjectMeta)
	}
	b.addYAML("ciliumnodes.yaml", ciliumNodes.Items)
}

// addEvents adds the events about kinds that matter here.
func (b *bundle) addEvents(ctx context.Context) {
	list := &corev1.EventList{}
	if err := b.cluster.Client.List(ctx, list); err != nil {
		b.add("events.yaml", nil, err)
		return
	}
	kinds := map[string]bool{"PodIPPool": true, "PodIPPin": true, "PodIPBlock": true, "CiliumNode": true, "Node": true}
	events := []corev1.Event{}
	for i := range list.Items {
		if kinds[list.Items[i].InvolvedObject.Kind] {
			redactMeta(&list.Items[i].ObjectMeta)
			events = append(events, list.Items[i])
		}
	}
	b.addYAML("events.yaml", events)
}

// addOperators adds the status of the operator's pods, and their logs.
func (b *bundle) addOperators(ctx context.Context, lines int64) {
	list := &corev1.PodList{}
	namespace := b.cluster.Operator.Lease.Namespace
	err := b.cluster.Client.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{"app.kubernetes.io/name": "cilium-pool-operator"})
	if err != nil {
		b.add("operators.yaml", nil, err)
		return
	}
	status := map[string]corev1.PodStatus{}
	for i := range list.Items {
		p := &list.Items[i]
		status[p.Name] = p.Status
		options := &corev1.PodLogOptions{TailLines: &lines, Container: p.Spec.Containers[0].Name}
		log, err := b.clientset.CoreV1().Pods(namespace).GetLogs(p.Name, options).DoRaw(ctx)
		b.add("logs/"+p.Name+".log", log, err)
	}
	if len(list.Items) == 0 {
		err := fmt.Errorf("no pod in namespace %s has the label app.kubernetes.io/name=cilium-pool-operator: add the logs of the operator yourself", namespace)
		b.add("logs", nil, err)
	}
	b.addYAML("operators.yaml", status)
}

// redacted replaces text that a support bundle leaves out.
const redacted = "(redacted)"

// secretKey matches a key of YAML, JSON or a flag whose value is secret, and secretValue that value: quoted,
// in quotes of a quoted text, or one word. A quoted value may be cut off at the end of a line.
const (
	secretKey = `([\w.-]*(?:password|passwd|passphrase|secret|token|credential|api[-_]?key|private[-_]?key|(?:key|certificate|authority)-data)` +
		`[\w.-]*\\?["']?[ \t]*[:=][ \t]*)`
	secretValue = `(?:"(?:[^"\\\n]|\\.)*"?|\\"(?:[^"\\\n]|\\\\\\"|\\[^"\n])*(?:\\"|\n|$)|'(?:[^'\n]|'')*'?|[^\s,;&}"'\\]+)`
)

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
	{regexp.MustCompile(`(?i)` + secretKey + `[|>][-+\d]*[ \t]*(?:\n[ \t]+.*)+`), "$1" + redacted}, // a block of YAML
	{regexp.MustCompile(`(?im)` + secretKey + `\n[ \t]+` + secretValue + `[ \t]*$`), "$1" + redacted},
	{regexp.MustCompile(`(?i)` + secretKey + secretValue), "$1" + redacted},
}

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
	safe := map[string]string{}
	for key, value := range m.Annotations {
		if !aboutAddresses(key) {
			value = redacted
		}
		safe[key] = value
	}
	m.Annotations = safe
}

func aboutAddresses(annotation string) bool {
	domain, _, _ := strings.Cut(annotation, "/")
	return domain == "cilium-pool.io" || domain == "cilium.io" || strings.HasSuffix(domain, ".cilium.io")
}
