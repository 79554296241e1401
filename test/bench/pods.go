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
	// podsSeparator is between a measure's name and its number of pods, if that is not its own.
	podsSeparator = ", "
)

const (
	// podsPerBlock is how many of a block's 30 addresses pods have at most: few enough
	// that a node needs no other block, and that what it has suffices for half as many again.
	podsPerBlock = 20
	// mostPods per node: beyond that its blocks would be more than the operator gives a node
	// by default, which is 16.
	mostPods = 16 * podsPerBlock
)

// withPods returns a measure whose clusters have pods with another number of them per node, 0
// for its own. It is a measure by itself, with its own results. Nodes get the blocks that
// the pods need.
func withPods(m measure, pods int) measure {
	if m.world.Pods == 0 || pods == 0 || pods == m.world.Pods {
		return m
	}
	m.name = fmt.Sprintf("%s%s%d %s", m.name, podsSeparator, pods, podsPerNode)
	m.world.Pods, m.world.Used = pods, pods
	m.world.Blocks = max(m.world.Blocks, (pods+podsPerBlock-1)/podsPerBlock)
	return m
}

// numbersOfPods returns the measures that a table is of: its own, and that with other
// numbers of pods, the fewest first.
func (k kept) numbersOfPods(of string) []string {
	var others []string
	for name := range k.by {
		if strings.HasPrefix(name, of+podsSeparator) {
			others = append(others, name)
		}
	}
	slices.SortFunc(others, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b)) })
	return append([]string{of}, others...)
}

// checkPods says what is wrong with -pods.
func checkPods(pods int) error {
	if pods < 0 || pods > mostPods {
		return fmt.Errorf("-pods=%d: choose 1 to %d pods per node, or leave it out", pods, mostPods)
	}
	return nil
}
