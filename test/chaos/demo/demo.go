// Package demo runs scripted chaos for people to watch: nodes join, a burst, a scale-down, a
// full pool, a killed operator, a lost CiliumNode.
//
// Only this suite finds a first run that fails for a new user, or contradicts the checker.
package demo

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"github.com/cilium-pool/cilium-pool-operator/test/agent"
)

const usage = `
  chaos demo                      the whole story, in about a minute; exit 1 if a rule broke
  chaos up                        start the same and leave it running
  chaos burst --node=N --pods=P   let N have P pods, on what "up" started; 0 removes them
  chaos down                      stop what "up" started
  chaos agents                    the simulated nodes of "up"; it starts them itself

Run it from the root of the repository, best by make demo, up, burst and down.

Flags:
`

var (
	// ErrUsage means that the command line is wrong.
	ErrUsage = errors.New("wrong command line")
	// ErrUnexpected means that an expectation failed, as the demo has reported.
	ErrUnexpected = errors.New("not everything came as expected")
)

// options are the options of the commands.
type options struct {
	binDir, runDir, examples string
	mode                     agent.IPAM
	ipv6                     bool
	nodes                    int
	node                     string
	pods                     int
}

func commands() map[string]func(context.Context, options, *printer) error {
	return map[string]func(context.Context, options, *printer) error{
		"demo": tellStory, "up": up, "down": down, "burst": playBurst, "agents": runAgents,
	}
}

// Has reports whether there is such a command.
func Has(name string) bool { return commands()[name] != nil }

// Command runs the command that args begin with.
func Command(ctx context.Context, args []string) error {
	var o options
	fs := pflag.NewFlagSet("chaos "+args[0], pflag.ContinueOnError)
	fs.StringVar(&o.binDir, "bin-dir", ".cache/bin", "folder of etcd, kube-apiserver, kubectl and the operator")
	fs.StringVar(&o.runDir, "run-dir", ".run", "folder for state and logs")
	fs.StringVar(&o.examples, "examples", "examples", "folder of the examples, whose pools are applied")
	fs.StringVar((*string)(&o.mode), "mode", string(agent.CRD), "IPAM mode of the agents: crd or multi-pool")
	fs.BoolVar(&o.ipv6, "ipv6", false, "agents run IPv6, too; the examples must have ranges of it")
	fs.IntVar(&o.nodes, "nodes", 20, "nodes, half of them in each zone, 4 to 400")
	fs.StringVar(&o.node, "node", "", "node that burst is about")
	fs.IntVar(&o.pods, "pods", 60, "pods that burst leaves on the node")
	fs.Usage = func() { fmt.Print(usage, fs.FlagUsages()) }
	switch err := fs.Parse(args[1:]); {
	case errors.Is(err, pflag.ErrHelp):
		return err
	case err != nil:
		return fmt.Errorf("%w: %w", ErrUsage, err)
	case fs.NArg() > 0:
		return fmt.Errorf("%w: unexpected argument %q", ErrUsage, fs.Arg(0))
	case o.mode != agent.CRD && o.mode != agent.MultiPool:
		return fmt.Errorf("%w: --mode is %q: must be crd or multi-pool", ErrUsage, o.mode)
	case o.nodes < 4 || o.nodes > 400:
		return fmt.Errorf("%w: --nodes is %d: must be between 4 and 400", ErrUsage, o.nodes)
	}
	return commands()[args[0]](ctx, o, newPrinter(os.Stdout))
}
