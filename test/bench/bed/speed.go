package bed

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Speedometer measures how fast the machine runs while it measures something else: it repeats a
// fixed piece of work and takes its CPU time. On a virtual machine that grows whenever others use
// the same cores, and with it grow all other times and CPU times.
type Speedometer struct {
	stop  chan struct{}
	ended sync.WaitGroup

	mu   sync.Mutex
	laps []lap
	err  error
}

type lap struct {
	at  time.Time
	cpu time.Duration
}

// lapEvery keeps what the work takes from others below a hundredth of a core.
const lapEvery = 200 * time.Millisecond

// StartSpeedometer starts one, which must be stopped.
func StartSpeedometer() *Speedometer {
	s := &Speedometer{stop: make(chan struct{})}
	s.ended.Go(s.run)
	return s
}

// Stop stops it.
func (s *Speedometer) Stop() {
	close(s.stop)
	s.ended.Wait()
}

func (s *Speedometer) run() {
	runtime.LockOSThread() // its CPU time is the work's
	defer runtime.UnlockOSThread()
	text := workText()
	tick := time.NewTicker(lapEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			return
		case at := <-tick.C:
			cpu, err := cpuTime(func() { json.Valid(text) })
			s.mu.Lock()
			s.laps, s.err = append(s.laps, lap{at, cpu}), err
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}
}

// Between returns the mean CPU time of the work between two times; 0 if it was not done then.
func (s *Speedometer) Between(from, to time.Time) (time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var sum, laps time.Duration
	for _, l := range s.laps {
		if !l.at.Before(from) && !l.at.After(to) {
			sum, laps = sum+l.cpu, laps+1
		}
	}
	return sum / max(laps, 1), s.err
}

// workObjects is how many objects the text has.
const workObjects = 1500

// workText is the JSON text that the work checks, as API servers and controllers parse JSON. Work
// that waits for memory, or repeats one instruction, hardly shows that another thread runs on the
// same core.
func workText() []byte {
	objects := make([]string, workObjects)
	for i := range objects {
		objects[i] = fmt.Sprintf(`{"metadata":{"name":"node-%06d","generation":%d},"spec":{"ipam":{"pool":{"10.%d.%d.%d":{"owner":"default/pod-%d"}}}}}`,
			i, i*7, i%11, i%97, i%251, i*31)
	}
	return []byte("[" + strings.Join(objects, ",") + "]")
}

// cpuTime returns the CPU time that f takes of the thread to which its goroutine is locked.
func cpuTime(f func()) (time.Duration, error) {
	var begin, end unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &begin); err != nil {
		return 0, err
	}
	f()
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &end); err != nil {
		return 0, err
	}
	return time.Duration(end.Nano() - begin.Nano()), nil
}
