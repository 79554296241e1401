//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// The differences from docs/install.md that this machine requires. Everything not
// listed here is as the page, the charts and examples/ have it.
//
//   - Cilium's chart is the folder in Cilium's Go module, not the one at
//     helm.cilium.io, as there is no network outside this machine. The page must
//     name the version that was built.
//   - forced/cilium.yaml, with a reason for each value.
//   - The images are in containerd before anything is installed, under the names
//     that the charts ask for.
//
// The API server has the address of examples/.

const forcedCilium = " -f test/cluster/forced/cilium.yaml"

var remoteChart = regexp.MustCompile(`\bcilium/cilium --version (\S+)`)

// force changes a documented command line for this machine; it returns "" if the machine does
// not need the command.
func (b *bed) force(line string) (string, error) {
	if strings.HasPrefix(line, "helm repo ") {
		return "", nil
	}
	m := remoteChart.FindStringSubmatch(line)
	if m == nil {
		return line, nil
	}
	data, err := os.ReadFile(filepath.Join(b.options.cilium, "Chart.yaml"))
	if err != nil {
		return "", err
	}
	if !strings.Contains(string(data), "\nversion: "+m[1]+"\n") {
		return "", fmt.Errorf("documented is Cilium %s, but another version was built: %s", m[1], b.options.cilium)
	}
	return strings.Replace(line, m[0], b.options.cilium, 1) + forcedCilium, nil
}
