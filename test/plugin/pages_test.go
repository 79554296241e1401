package plugin

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin"
)

// Each command has a page in docs/kubectl, generated from its --help. go test ./test/plugin
// -update writes them.
func TestPages(t *testing.T) {
	made := t.TempDir()
	cmd := plugin.New(genericiooptions.NewTestIOStreamsDiscard(), "")
	cmd.DisableAutoGenTag = true
	// The page of options alone has the flags of all commands, without kubectl's own.
	options, _, err := cmd.Find([]string{"options"})
	if err != nil {
		t.Fatal(err)
	}
	kubectls := pflag.NewFlagSet("", pflag.PanicOnError)
	genericclioptions.NewConfigFlags(false).AddFlags(kubectls)
	for _, c := range []*cobra.Command{cmd, options} {
		cmd.PersistentFlags().VisitAll(func(f *pflag.Flag) { f.Hidden = c == cmd || kubectls.Lookup(f.Name) != nil && f.Name != "namespace" })
		if err := doc.GenMarkdownTree(c, made); err != nil {
			t.Fatal(err)
		}
	}
	want, got := pages(t, made), pages(t, filepath.Join(root, "docs", "kubectl"))
	delete(got, "README.md")
	if *update {
		for name := range got {
			if err := os.Remove(filepath.Join(root, "docs", "kubectl", name)); err != nil {
				t.Fatal(err)
			}
		}
		for name, page := range want {
			if err := os.WriteFile(filepath.Join(root, "docs", "kubectl", name), []byte(page), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("docs/kubectl (-commands +pages); go test ./test/plugin -update fixes it:\n%s", diff)
	}
}

// sameOnAll matches the part of a page that says the same of each command.
var sameOnAll = regexp.MustCompile("### Options\n\n```\n +-h, --help +help for .*\n```\n\n" +
	`|(?m:^ +-h, --help +help for .*\n)|\n?### SEE ALSO\n\n\* \[.*\n+\z`)

func pages(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	pages := map[string]string{}
	for _, e := range entries {
		body, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		pages[e.Name()] = sameOnAll.ReplaceAllString(string(body), "")
	}
	return pages
}

// words matches the words of a command line, quoted ones as one.
var words = regexp.MustCompile(`'[^']*'|\S+`)

// Each command, at any level, has examples with commands and flags that exist.
func TestExamples(t *testing.T) {
	cmd := plugin.New(genericiooptions.NewTestIOStreamsDiscard(), "")
	all := []*cobra.Command{cmd}
	for i := 0; i < len(all); i++ {
		all = append(all, all[i].Commands()...)
	}
	for _, c := range all {
		if !c.Hidden && (c.Example == "" || c.Long == "") {
			t.Errorf("%s has no examples, or says nothing", c.CommandPath())
		}
		for line := range strings.Lines(c.Example) {
			line, _, _ = strings.Cut(strings.TrimSpace(line), " | ")
			line, _, _ = strings.Cut(line, " > ")
			line, _, _ = strings.Cut(line, " < ")
			args, ok := strings.CutPrefix(line, "kubectl cilium-pool ")
			if !ok {
				t.Errorf("%s: the example %q is none of ours", c.CommandPath(), line)
				continue
			}
			named, rest, err := cmd.Find(words.FindAllString(args, -1))
			if err != nil || named == cmd {
				t.Errorf("%s: the example %q names no command: %v", c.CommandPath(), line, err)
				continue
			}
			parses(t, named, line, rest)
		}
	}
}

func parses(t *testing.T, c *cobra.Command, line string, args []string) {
	t.Helper()
	if err := c.ParseFlags(args); err != nil {
		t.Errorf("%q: %v", line, err)
		return
	}
	if err := c.ValidateArgs(c.Flags().Args()); err != nil {
		t.Errorf("%q: %v", line, err)
	}
}
