package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Leases of contenders that elect a leader: on an overloaded machine a run should be slow
// rather than fail.
const (
	leaseDuration = "2m"
	renewDeadline = "90s" // of peers; this operator derives it
)

// settingsNote describes settings that are not flags.
const settingsNote = "One replica of each, on all cores, without GOGC, GOMEMLIMIT and GOMAXPROCS in the environment. This operator then sets GOGC to 50 itself " +
	"(a GOGC in the environment would win); peers and bare programs run with Go's default, 100. None sets a memory limit.\n\n" +
	"Leases, as duration, renew deadline and retry period: this operator " + leaseDuration + ", 80s and 16s (it has one flag, for the duration); " +
	"cilium-operator and kube-controller-manager " + leaseDuration + ", " + renewDeadline + " and 2s. Bare programs have none.\n\n" +
	"A client-side limit is a number of requests per second (QPS), and a burst that may exceed it. A row \"in\" a measure has what differs there.\n\n"

// places are flags that name files, addresses and ports, which differ in each run.
func places() []string {
	return []string{"kubeconfig", "k8s-kubeconfig-path", "metrics-bind-address", "health-probe-bind-address", "operator-api-serve-addr", "bind-address", "secure-port", "cert-dir"}
}

// describe adds the flags of a command line to text; "": no text, no description.
func describe(text string, argv []string) string {
	if text == "" {
		return ""
	}
	var out []string
	for _, arg := range argv {
		name, isFlag := strings.CutPrefix(arg, "--")
		name, _, _ = strings.Cut(name, "=")
		if isFlag && !slices.Contains(places(), name) {
			out = append(out, "`"+arg+"`")
		}
	}
	return strings.Join(append(out, text), ", ")
}

// settings returns those of each contender in each measure that the report shows: those of
// the latest run if sizes differ.
func (k kept) settings() map[string]map[string]string {
	out := map[string]map[string]string{}
	for measure, bySize := range k.by {
		for _, m := range slices.SortedFunc(maps.Values(bySize), func(a, b measured) int { return a.run.Began.Compare(b.run.Began) }) {
			for contender, text := range m.run.Settings[measure] {
				if out[contender] == nil {
					out[contender] = map[string]string{}
				}
				out[contender][measure] = text
			}
		}
	}
	return out
}

// settingsTable returns a table of the contenders' settings: for each a row with its usual
// settings, and further rows for the measures in which they differ.
func settingsTable(k kept) string {
	of := k.settings()
	if len(of) == 0 {
		return ""
	}
	var out strings.Builder
	out.WriteString("### Settings\n\n" + settingsNote + "| contender | settings |\n| --- | --- |\n")
	for _, name := range slices.Sorted(maps.Keys(of)) {
		usual := mostCommon(of[name])
		fmt.Fprintf(&out, "| %s | %s |\n", name, usual)
		others := map[string][]string{}
		for _, measure := range slices.Sorted(maps.Keys(of[name])) {
			if text := of[name][measure]; text != usual {
				others[text] = append(others[text], measure)
			}
		}
		for _, text := range slices.Sorted(maps.Keys(others)) {
			fmt.Fprintf(&out, "| %s, in %s | %s |\n", name, strings.Join(others[text], "; "), text)
		}
	}
	return out.String() + "\n"
}

// mostCommon returns the settings of most measures; if there are several, those of the
// first measure by name.
func mostCommon(byMeasure map[string]string) string {
	count := map[string]int{}
	for _, text := range byMeasure {
		count[text]++
	}
	usual := ""
	for _, measure := range slices.Sorted(maps.Keys(byMeasure)) {
		if text := byMeasure[measure]; count[text] > count[usual] {
			usual = text
		}
	}
	return usual
}
