//go:build linux

package box

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

const (
	// restartDelay is the pause before a service that exited is restarted.
	restartDelay = time.Second
	// socketTimeout is the time for a service to open its socket.
	socketTimeout = time.Minute
)

// supervisor runs the services of a box.
type supervisor struct {
	hold    string
	path    string
	mu      sync.Mutex
	running map[int]Service
}

func (s *supervisor) startAll(services []Service) {
	for _, service := range services {
		s.start(service)
		if service.Socket == "" {
			continue
		}
		for deadline := time.Now().Add(socketTimeout); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
			if _, err := os.Stat(service.Socket); err == nil {
				break
			}
		}
	}
}

// start holds the lock until the process is recorded, or else reap could see its exit before.
func (s *supervisor) start(service Service) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pid, err := spawn(service, s.path)
	if err != nil {
		fmt.Fprintf(os.Stderr, "box: %s: %v\n", service.Name, err)
		go s.again(service)
		return
	}
	s.running[pid] = service
}

func spawn(service Service, path string) (int, error) {
	log, err := os.OpenFile(service.Log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return 0, err
	}
	defer log.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	process, err := os.StartProcess(service.Argv[0], service.Argv, &os.ProcAttr{
		Env:   []string{"PATH=" + path, "HOME=/root"},
		Files: []*os.File{null, log, log},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return 0, err
	}
	pid := process.Pid // Release clears it.
	return pid, process.Release()
}

// again restarts a service that exited, once it is no longer held.
func (s *supervisor) again(service Service) {
	for {
		time.Sleep(restartDelay)
		if _, err := os.Stat(filepath.Join(s.hold, service.Name)); err != nil {
			break
		}
	}
	s.start(service)
}

// reap waits for every orphaned process, as a first process must.
func (s *supervisor) reap() error {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.ECHILD):
			time.Sleep(100 * time.Millisecond)
			continue
		case err != nil:
			return fmt.Errorf("wait for processes: %w", err)
		}
		s.mu.Lock()
		service, known := s.running[pid]
		delete(s.running, pid)
		s.mu.Unlock()
		if known {
			fmt.Fprintf(os.Stderr, "%s %s ended: exit code %d, signal %d\n",
				time.Now().Format(time.RFC3339), service.Name, status.ExitStatus(), status.Signal())
			go s.again(service)
		}
	}
}
