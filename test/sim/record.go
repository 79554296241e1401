package main

import (
	"bufio"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
)

// record plays the seeds of a search, and writes one hash for the trace and for each kind of record of a seed
// to a file. If the file exists, it reports the seeds that do otherwise. So it guards a change of the code that
// must not change any behavior.
func record(o options, out io.Writer) int {
	lines := make([]string, o.seeds)
	var workers sync.WaitGroup
	for worker := range o.workers {
		workers.Go(func() {
			for i := worker; i < o.seeds; i += o.workers {
				lines[i] = recordOf(o, o.from+uint64(i))
			}
		})
	}
	workers.Wait()
	file, err := os.Open(o.record)
	if errors.Is(err, fs.ErrNotExist) {
		err = os.WriteFile(o.record, []byte(strings.Join(lines, "\n")+"\n"), 0o644)
	}
	if err != nil {
		fmt.Fprintln(out, err)
		return 2
	}
	if file == nil {
		return 0
	}
	defer file.Close()
	recorded := map[string]string{}
	for scanner := bufio.NewScanner(file); scanner.Scan(); {
		seed, hashes, _ := strings.Cut(scanner.Text(), " ")
		recorded[seed] = hashes
	}
	other := 0
	for _, line := range lines {
		seed, hashes, _ := strings.Cut(line, " ")
		if recorded[seed] != hashes {
			other++
			fmt.Fprintf(out, "seed %s: %s, and did %s\n", seed, recorded[seed], hashes)
		}
	}
	fmt.Fprintf(out, "%d of %d seeds do otherwise than recorded\n", other, len(lines))
	return min(other, 1)
}

func recordOf(o options, seed uint64) string {
	kinds := []string{"object", "event", "metric", "trace"}
	hashes := map[string]interface {
		io.Writer
		Sum32() uint32
	}{}
	for _, kind := range kinds {
		hashes[kind] = fnv.New32a()
	}
	note := func(kind, line string) {
		fmt.Fprintln(hashes[kind], line)
		if o.verbose {
			fmt.Fprintln(os.Stderr, kind, line)
		}
	}
	done := playRecorded(o.originOf(seed), o.steps, o.faults, func(line string) { note("trace", line) }, note)
	line := fmt.Sprint(seed)
	for _, kind := range kinds {
		line += fmt.Sprintf(" %s=%08x", kind, hashes[kind].Sum32())
	}
	return fmt.Sprintf("%s violations=%d", line, len(done.violations))
}
