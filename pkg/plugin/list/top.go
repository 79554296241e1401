package list

import (
	"cmp"
	"context"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/exit"
	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/output"
)

// lowestEvery keeps top from reading the whole cluster without a pause.
const lowestEvery = 2 * time.Second

// clearScreen is ANSI: cursor home, then clear to the end.
const clearScreen = "\033[H\033[2J"

// NewTop returns the command top.
func NewTop(e *cli.Env) *cobra.Command {
	rows, every, times := 20, 5*time.Second, 0
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show the fullest nodes and pools, live",
		Long: `Shows the pools and the fullest nodes, again and again, until interrupted. A
terminal is cleared each time; elsewhere each page follows the last one.

Each page reads the whole cluster: in a large one, ask for fewer with --every.`,
		Example: cli.Examples("top", "top --nodes 50 --every 30s", "top --times 1"),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if every < lowestEvery {
				return exit.Usagef("--every is %s: must be %s or more", every, lowestEvery)
			}
			tick := time.NewTicker(every)
			defer tick.Stop()
			for n := 1; ; n++ {
				err := topPage(cmd.Context(), e, rows)
				if n == times || err != nil && cmd.Context().Err() == nil {
					return err
				}
				select {
				case <-cmd.Context().Done():
					return nil
				case <-tick.C:
				}
			}
		},
	}
	cmd.Flags().IntVar(&rows, "nodes", rows, "how many nodes to show")
	cmd.Flags().DurationVar(&every, "every", every, "how often to read the cluster")
	cmd.Flags().IntVar(&times, "times", times, "how many pages to show; 0: without end")
	return cmd
}

func topPage(ctx context.Context, e *cli.Env, most int) error {
	c, err := e.Read(ctx)
	if err != nil {
		return err
	}
	var rows []nodeRow
	for _, name := range c.NodeNames() {
		rows = append(rows, nodeRows(c, name)...)
	}
	slices.SortStableFunc(rows, func(a, b nodeRow) int { return cmp.Compare(fullness(b), fullness(a)) })
	var page output.Text
	page.Line("%s  %s, %s", c.Now.Format(time.TimeOnly), output.Count(len(c.Nodes), "node"), output.Count(len(c.Blocks()), "block"))
	page.Line("")
	if pools := PoolRows(c); len(pools) > 0 {
		page.Table(&output.Flags{}, poolTable(pools, c.Now))
		page.Line("")
	}
	page.Table(&output.Flags{}, nodeTable(rows[:min(most, len(rows))]))
	if cli.IsTerminal(e.Raw.Out) {
		if _, err := io.WriteString(e.Raw.Out, clearScreen); err != nil {
			return err
		}
	}
	_, err = io.WriteString(e.Out, page.String())
	return err
}

// fullness orders nodes: those that need addresses and have none come first.
func fullness(r nodeRow) float64 {
	if r.Capacity == 0 {
		return float64(r.Demand) * 1e6
	}
	return float64(r.Demand) / float64(r.Capacity)
}
