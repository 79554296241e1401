package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// results are the results of one run. They are kept as JSON, from which the report is
// written.
type results struct {
	Began time.Time `json:"began"`
	// Took is in nanoseconds.
	Took    time.Duration `json:"took"`
	Command string        `json:"command"`
	Cores   int           `json:"cores"`
	Memory  string        `json:"memory"`
	Kernel  string        `json:"kernel"`
	Go      string        `json:"go"`
	// Commit is the measured commit, with the suffix "-dirty" if files differed from it.
	Commit string `json:"commit"`
	Nodes  int    `json:"nodes"`
	// Settings are by measure, then by the contender's name.
	Settings map[string]map[string]string `json:"settingsByMeasure,omitempty"`
	Samples  []sample                     `json:"samples"`
	// Sizes are bytes per object.
	Sizes map[string]float64 `json:"sizes,omitempty"`
}

func newResults(began time.Time, command string, nodes int) results {
	return results{
		Began: began.UTC().Truncate(time.Second), Command: command, Cores: runtime.NumCPU(), Memory: firstLine("/proc/meminfo"),
		Kernel: firstLine("/proc/version"), Go: runtime.Version(), Commit: revision(), Nodes: nodes,
	}
}

// file returns the name of the run's file.
func (r results) file() string {
	return r.Began.UTC().Format("20060102T150405Z") + "-" + r.Commit + ".json"
}

func (r results) save(dir string) error {
	data, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, r.file()), append(data, '\n'), 0o644)
}

// loadResults reads the runs stored in a folder, the oldest first.
func loadResults(dir string) ([]results, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	var runs []results
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		var r results
		if err := json.Unmarshal(data, &r); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		runs = append(runs, r)
	}
	slices.SortStableFunc(runs, func(a, b results) int { return a.Began.Compare(b.Began) })
	return runs, nil
}

// set records the settings of a contender in a measure; "": it has no row of settings.
func (r *results) set(measure, contender, settings string) {
	if settings == "" {
		return
	}
	if r.Settings == nil {
		r.Settings = map[string]map[string]string{}
	}
	if r.Settings[measure] == nil {
		r.Settings[measure] = map[string]string{}
	}
	r.Settings[measure][contender] = settings
}

// measured are the samples of one measure at one size, all from one run: contenders are
// compared only with those they alternated with.
type measured struct {
	run     *results
	samples []sample
}

// kept is what the report shows: for each measure and size the latest run that has it.
type kept struct {
	runs  []results
	by    map[string]map[int]measured
	sizes *results
}

func keep(runs []results) kept {
	k := kept{runs: runs, by: map[string]map[int]measured{}}
	for i := range runs {
		r := &runs[i]
		fresh := map[string]map[int]measured{}
		for _, s := range r.Samples {
			if fresh[s.Measure] == nil {
				fresh[s.Measure] = map[int]measured{}
			}
			m := fresh[s.Measure][s.Nodes]
			fresh[s.Measure][s.Nodes] = measured{run: r, samples: append(m.samples, s)}
		}
		for measure, bySize := range fresh {
			for nodes, m := range bySize {
				if k.by[measure] == nil {
					k.by[measure] = map[int]measured{}
				}
				k.by[measure][nodes] = m
			}
		}
		if len(r.Sizes) > 0 {
			k.sizes = r
		}
	}
	return k
}

// used returns the runs that contribute to the report, the oldest first.
func (k kept) used() []*results {
	var out []*results
	for i := range k.runs {
		r := &k.runs[i]
		uses := k.sizes == r
		for _, bySize := range k.by {
			for _, m := range bySize {
				uses = uses || m.run == r
			}
		}
		if uses {
			out = append(out, r)
		}
	}
	return out
}

// commits returns the commits at which the samples were measured.
func (m measured) commits() []string {
	var out []string
	for _, s := range m.samples {
		commit := s.Commit
		if commit == "" {
			commit = m.run.Commit
		}
		if !slices.Contains(out, commit) {
			out = append(out, commit)
		}
	}
	return out
}

// values returns the values of one contender.
func (m measured) values(contender, value string) []float64 {
	return valuesOf(m.samples, contender, value)
}

func firstLine(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return strings.Join(strings.Fields(line), " ")
}

// revision returns the commit that is checked out, because the contender was built from it.
func revision() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty", "--exclude=*", "--abbrev=12").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
