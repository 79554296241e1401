package docs

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
)

func pluginCommand() *cobra.Command {
	root := plugin.New(genericiooptions.NewTestIOStreamsDiscard(), "v0.0.0")
	root.InitDefaultVersionFlag()
	return root
}

// pluginFlags returns all flags of the kubectl plugin.
func pluginFlags() map[string]bool {
	known := map[string]bool{}
	var add func(*cobra.Command)
	add = func(c *cobra.Command) {
		for _, set := range []*pflag.FlagSet{c.Flags(), c.PersistentFlags()} {
			set.VisitAll(func(f *pflag.Flag) { known[f.Name] = true })
		}
		for _, sub := range c.Commands() {
			add(sub)
		}
	}
	add(pluginCommand())
	return known
}

// One flag has one meaning: commands that share its name share its shorthand and type.
func TestFlagsMeanOneThing(t *testing.T) {
	seen := map[string]string{}
	var look func(*cobra.Command)
	look = func(c *cobra.Command) {
		c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			form := f.Value.Type() + " " + f.Shorthand
			if f.Name != "help" && seen[f.Name] != "" && seen[f.Name] != form {
				t.Errorf("%s: --%s is %s, and %s elsewhere", c.CommandPath(), f.Name, form, seen[f.Name])
			}
			seen[f.Name] = form
		})
		for _, sub := range c.Commands() {
			look(sub)
		}
	}
	look(pluginCommand())
	for _, synonym := range []string{"format", "file", "again", "nodes", "leader-elect-name"} {
		if seen[synonym] != "" {
			t.Errorf("--%s has another name in other commands: output, output-file, every, node, lease", synonym)
		}
	}
}

// The table of exit codes matches the code, and names commands that exist.
func TestExitCodesPage(t *testing.T) {
	rows := "| command | 0 | 1 | 2 | 3 |\n| --- | --- | --- | --- | --- |\n"
	for _, x := range cli.ExitCodes() {
		name := "all"
		if x.Command != "" {
			name = "`" + x.Command + "`"
			command, rest, err := pluginCommand().Find(strings.Fields(x.Command))
			if err != nil || len(rest) > 0 || !strings.Contains(command.Long, cli.ExitsOf(x.Command).String()) {
				t.Errorf("%s is no command with these exit codes in its help: %v", x.Command, err)
			}
		}
		rows += strings.TrimRight(fmt.Sprintf("| %s | %s | %s | %s | %s", name, x.Done, x.Failed, x.Usage, x.NotReached), " ") + " |\n"
	}
	rows = strings.ReplaceAll(rows, "|  |", "| |")
	generatedPart(t, "docs/kubectl/README.md", "exit codes", strings.ReplaceAll(rows, "|  |", "| |"))
}

// argument matches one argument of a command line; a quoted string is one argument.
var argument = regexp.MustCompile(`'[^']*'|"[^"]*"|\S+`)

// checkLine returns what is wrong with a command line of the plugin. NAME in capitals stands
// for a value.
func checkLine(line string) error {
	for _, end := range []string{" #", " | ", " > ", " < "} {
		line, _, _ = strings.Cut(line, end)
	}
	args := argument.FindAllString(strings.TrimPrefix(line, "kubectl cilium-pool "), -1)
	root := pluginCommand()
	named, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	if err := named.ParseFlags(rest); err != nil {
		return err
	}
	// A page may name a command without its arguments.
	if given := named.Flags().Args(); len(given) > 0 {
		return named.ValidateArgs(given)
	}
	return nil
}

// Commands of the plugin that pages show exist, with these flags. Pages generated from --help
// have their own test (test/plugin).
func TestPluginCommands(t *testing.T) {
	pages := slices.DeleteFunc(files(t, isMarkdown), func(page string) bool { return strings.HasPrefix(page, "docs/kubectl/kubectl_") })
	check := func(page string, m []string) {
		if err := checkLine(m[1]); err != nil {
			t.Errorf("%s: %s: %v", page, m[1], err)
		}
	}
	matches(t, pages, joined, `(?m)^[ \t]*(kubectl cilium-pool .+)$`, 20, check)
	matches(t, pages, prose, "`(kubectl cilium-pool [^`]+)`", 20, check)
}

// The plugin's help, its page and its manifest for krew name the same commands that write.
func TestCommandsThatWrite(t *testing.T) {
	want := regexp.MustCompile(`All commands but [^.]* only read`).FindString(pluginCommand().Long)
	for _, path := range []string{"docs/kubectl/README.md", "hack/release/krew.go"} {
		if want == "" || !strings.Contains(strings.ReplaceAll(read(t, path), "`", ""), want) {
			t.Errorf("%s does not say %q", path, want)
		}
	}
}

// fence is a code block.
type fence struct{ language, code string }

func fences(page string) []fence {
	var out []fence
	for _, m := range regexp.MustCompile("(?ms)^ *```(\\w*)\n(.*?)^ *```$").FindAllStringSubmatch(page, -1) {
		out = append(out, fence{m[1], m[2]})
	}
	return out
}
