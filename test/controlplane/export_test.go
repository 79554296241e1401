package controlplane

import "github.com/cilium-pool/cilium-pool-operator/test/harness/process"

// RunningIn returns the names of the processes that run in dir.
func RunningIn(dir string) ([]string, error) {
	var running []string
	for _, name := range []string{etcdName, apiServerName} {
		p, err := process.Find(dir, name)
		if err != nil {
			return nil, err
		}
		if p.Running() {
			running = append(running, name)
		}
	}
	return running, nil
}
