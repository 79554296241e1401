package controlplane

// RunningIn names the parts that run in dir.
func RunningIn(dir string) ([]string, error) {
	var running []string
	for _, name := range []string{etcdName, apiServerName} {
		p, err := findProcess(dir, name)
		if err != nil {
			return nil, err
		}
		if p.running() {
			running = append(running, name)
		}
	}
	return running, nil
}
