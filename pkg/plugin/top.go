package plugin

import (
	"cmp"
	"context"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
)

// lowestEvery keeps top from reading the whole cluster without pause.
const lowestEvery = 2 * time.Second

// clearScreen is ANSI: cursor home, then clear to the end.
const clearScreen = "\033[H\033[2J"

func topCommand(e *env) *cobra.Command {
	rows, every, times := 20, 5*time.Second, 0
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show the fullest nodes and pools, live",
		Long: `Shows the pools and the fullest nodes, again and again, until interrupted. A
terminal is cleared each time; elsewhere each page follows the last one.

Each page reads the whole cluster: in a large one, ask for fewer with --every.`,
		Example: examples("top", "top --nodes 50 --every 30s", "top --times 1"),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if every < lowestEvery {
				return usagef("--every is %s: must be %s or more", every, lowestEvery)
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

func topPage(ctx context.Context, e *env, most int) error {
	c, err := e.read(ctx)
	if err != nil {
		return err
	}
	var rows []nodeRow
	for _, name := range c.nodeNames() {
		rows = append(rows, nodeRows(c, name)...)
	}
	slices.SortStableFunc(rows, func(a, b nodeRow) int { return cmp.Compare(fullness(b), fullness(a)) })
	var page story
	page.say("%s  %s, %s", c.now.Format(time.TimeOnly), count(len(c.nodes), "node"), count(len(c.blocks()), "block"))
	page.say("")
	plain := output{}
	if pools := poolRows(c); len(pools) > 0 {
		if err := plain.print(&page, &page, pools, poolTable(pools, c.now)); err != nil {
			return err
		}
		page.say("")
	}
	if err := plain.print(&page, &page, rows, nodeTable(rows[:min(most, len(rows))])); err != nil {
		return err
	}
	if isTerminal(e.raw.Out) {
		if _, err := io.WriteString(e.raw.Out, clearScreen); err != nil {
			return err
		}
	}
	_, err = io.WriteString(e.Out, page.String())
	return err
}

// fullness orders nodes: those without an address but with need come first.
func fullness(r nodeRow) float64 {
	if r.Capacity == 0 {
		return float64(r.Demand) * 1e6
	}
	return float64(r.Demand) / float64(r.Capacity)
}

// isTerminal reports whether a stream is a character device.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
