package plugin

import (
	"slices"
	"strings"
)

// former are the former names of commands, and their present ones. They go after release 0.1.
var former = map[string]string{
	"blocks":         "get blocks",
	"nodes":          "get nodes",
	"pools":          "get pools",
	"top":            "status --watch --nodes=20",
	"renumber":       "drain --evict",
	"migrate tidy":   "migrate finish",
	"import calico":  "import --from calico",
	"import cilium":  "import --from cilium",
	"import kubeadm": "import --from kubeadm",
}

// Present returns arguments with the present name of their command.
func Present(args []string) []string {
	for words := range min(len(args), 2) {
		name := strings.Join(args[:words+1], " ")
		now, ok := former[name]
		if !ok {
			continue
		}
		rest := slices.Clone(args[words+1:])
		if name == "renumber" { // --from is an argument now
			rest = slices.DeleteFunc(rest, func(arg string) bool { return arg == "--from" })
			for i := range rest {
				rest[i] = strings.TrimPrefix(rest[i], "--from=")
			}
		}
		return append(strings.Fields(now), rest...)
	}
	return args
}
