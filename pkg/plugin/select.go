package plugin

import (
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
)

// addSelector adds the flag -l.
func addSelector(cmd *cobra.Command, to *string, what string) {
	cmd.Flags().StringVarP(to, "selector", "l", "", "only "+what+" with these labels, as in zone=a,!storage; not with names")
}

// picks reads the flag -l, which goes without names.
func picks(selector string, names []string) (labels.Selector, error) {
	if selector != "" && len(names) > 0 {
		return nil, usagef("--selector goes without names, and %s is given", names[0])
	}
	picked, err := labels.Parse(selector)
	if err != nil {
		return nil, usagef("--selector is %s: %w", selector, err)
	}
	return picked, nil
}

// namesOf are the names of rows as kubectl writes them with -o name.
func namesOf[R any](kind string, rows []R, name func(R) string) []string {
	out := make([]string, 0, len(rows))
	for _, r := range rows {
		out = append(out, kind+name(r))
	}
	return out
}
