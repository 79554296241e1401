package bed

import (
	"crypto/sha256"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Speedometer measures how fast the machine runs while it measures something else: it repeats a
// fixed piece of work and takes its CPU time. On a virtual machine that grows whenever others use
// the same cores or caches, and with it grow all other times and CPU times.
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
	w := newWork()
	tick := time.NewTicker(lapEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			return
		case at := <-tick.C:
			cpu, err := cpuTime(func() { w.do() })
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

// work takes about half of its time in a core and half waiting for memory, as API servers and
// controllers do.
type work struct {
	next []uint32
	data []byte
}

const (
	workSlots = 2 << 20 // 8 MiB, more than a core's own caches hold
	workSteps = 3000
	workBytes = 1 << 20
)

func newWork() *work {
	w := &work{next: make([]uint32, workSlots), data: make([]byte, workBytes)}
	for i := range w.next {
		w.next[i] = uint32(i)
	}
	random := rand.New(rand.NewPCG(1, 2))
	// Sattolo's shuffle makes one cycle, so that no step can be foreseen.
	for i := len(w.next) - 1; i > 0; i-- {
		j := random.IntN(i)
		w.next[i], w.next[j] = w.next[j], w.next[i]
	}
	return w
}

// do does the work, and returns a checksum, lest the compiler leave it out.
func (w *work) do() uint32 {
	at := uint32(0)
	for range workSteps {
		at = w.next[at]
	}
	return at + uint32(sha256.Sum256(w.data)[0])
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
