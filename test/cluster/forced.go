//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// What this machine forces to be otherwise than docs/start.md says, and nothing
// else. Everything not named here is as the page, the charts and examples/ have it.
//
//   - Cilium's chart is the folder in Cilium's Go module, not that of
//     helm.cilium.io: no registry, and what was built here is that version. The
//     page has to ask for the same one.
//   - forced/cilium.yaml, with a reason for each value.
//   - The API server's address: the page gives kind's.
//   - The images are in containerd before anything is installed. Their names are
//     those that the charts ask for.

// forcedValues of each chart are added at the end of its command line.
var forcedValues = map[string]string{
	"cilium":               "-f test/cluster/forced/cilium.yaml --set k8sServiceHost=192.0.2.10,k8sServicePort=6443",
	"cilium-pool-operator": "--set k8sServiceHost=192.0.2.10,k8sServicePort=6443",
}

var remoteChart = regexp.MustCompile(`\bcilium/cilium --version (\S+)`)

// force changes a documented command line to what this machine can do.
func (b *bed) force(line string) (string, error) {
	fields := strings.Fields(line)
	if len(fields) < 3 || fields[0] != "helm" {
		return line, nil
	}
	if m := remoteChart.FindStringSubmatch(line); m != nil {
		data, err := os.ReadFile(filepath.Join(b.options.cilium, "Chart.yaml"))
		if err != nil {
			return "", err
		}
		if !strings.Contains(string(data), "\nversion: "+m[1]+"\n") {
			return "", fmt.Errorf("documented is Cilium %s, but another version was built: %s", m[1], b.options.cilium)
		}
		line = strings.Replace(line, m[0], b.options.cilium, 1)
	}
	if values, ok := forcedValues[fields[2]]; ok {
		line += " " + values
	}
	return line, nil
}
