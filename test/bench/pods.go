package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

const (
	// podsPerNode is a value of samples whose clusters have pods.
	podsPerNode = "pods per node"
	// separator separates a measure's name from how it differs from the measure of that name,
	// such as by its number of pods.
	separator = ", "
)

const (
	// podsPerBlock is the maximum number of a block's 30 addresses that pods use: few
	// enough that a node needs no further block, and that the rest suffices for half as
	// many pods again.
	podsPerBlock = 20
	// mostPods is the maximum per node: with more pods a node would need more than the 16
	// blocks that it may have by default.
	mostPods = 16 * podsPerBlock
)

// withPods returns a measure with another number of pods per node, if its clusters have
// pods; 0: its own number. The result is a separate measure with its own results. Nodes get
// the blocks that the pods need.
func withPods(m measure, pods int) measure {
	if m.world.Pods == 0 || pods == 0 || pods == m.world.Pods {
		return m
	}
	m.name = fmt.Sprintf("%s%s%d %s", m.name, separator, pods, podsPerNode)
	m.world.Pods, m.world.Used = pods, pods
	m.world.Blocks = max(m.world.Blocks, (pods+podsPerBlock-1)/podsPerBlock)
	return m
}

// adapted returns a measure as -pods and -fsync change it.
func (b *bench) adapted(m measure) measure {
	m = withPods(m, b.pods)
	if b.fsync && !m.synced {
		m.name += separator + "with fsync"
		m.synced = true
	}
	return m
}

// variants returns the measures that a table covers: the measure itself, and those that
// differ in the number of pods, the fewest first, in mode, or in etcd.
func (k kept) variants(of string) []string {
	var others []string
	for name := range k.by {
		if strings.HasPrefix(name, of+separator) {
			others = append(others, name)
		}
	}
	slices.SortFunc(others, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b)) })
	return append([]string{of}, others...)
}

// checkPods validates -pods.
func checkPods(pods int) error {
	if pods < 0 || pods > mostPods {
		return fmt.Errorf("-pods=%d: choose 1 to %d pods per node, or leave it out", pods, mostPods)
	}
	return nil
}
