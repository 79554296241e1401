package list

import (
	"github.com/spf13/cobra"

	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/output"
)

// NewGet returns the command get.
func NewGet(e *cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get nodes|pools|blocks",
		Short: "List nodes, pools or blocks",
		Long: `Lists nodes, pools or blocks with numbers that kubectl get cannot know, such as the
addresses in use and needed.`,
		Example: cli.Examples("get pools", "get nodes -l zone=a -o wide", "get blocks --node edge-01 -w"),
		RunE: func(*cobra.Command, []string) error {
			return output.Usagef("say what to list: nodes, pools or blocks")
		},
	}
	cmd.AddCommand(newNodes(e), newPools(e), newBlocks(e))
	return cmd
}
