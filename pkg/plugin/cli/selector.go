package cli

import (
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/output"
)

// AddSelector adds the flag -l.
func AddSelector(cmd *cobra.Command, to *string, what string) {
	cmd.Flags().StringVarP(to, "selector", "l", "", "only "+what+" with these labels, as in zone=a,!storage; not with names")
}

// ParseSelector parses the flag -l, which cannot be combined with names.
func ParseSelector(selector string, names []string) (labels.Selector, error) {
	if selector != "" && len(names) > 0 {
		return nil, output.Usagef("--selector goes without names, and %s is given", names[0])
	}
	picked, err := labels.Parse(selector)
	if err != nil {
		return nil, output.Usagef("--selector is %s: %w", selector, err)
	}
	return picked, nil
}
