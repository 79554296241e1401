// Command kubectl-cilium_pool is kubectl cilium-pool: it shows the blocks, their owners and the
// reasons, and prepares changes.
package main

import (
	"cmp"
	"fmt"
	"os"
	"runtime"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin"
)

// version and commit are set at the build by -ldflags -X.
var version, commit = "dev", ""

func main() {
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	cmd := plugin.New(streams, version)
	cmd.Version = fmt.Sprintf("%s (%s, %s)", version, cmp.Or(commit, "unknown commit"), runtime.Version())
	cmd.SetContext(ctrl.SetupSignalHandler())
	os.Exit(plugin.Run(cmd, streams))
}
