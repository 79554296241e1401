package controller

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/cilium-pool/cilium-pool-operator/pkg/apiclient"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/informer"
)

const (
	// unreadFor is the time that a list or watch may fail before the operator is not ready.
	unreadFor = time.Minute
	// stuckFor is the time after which workers that take no node from the queue count as deadlocked. A
	// request to the API server gets an answer or a timeout long before.
	stuckFor = 10 * time.Minute
)

// health answers the kubelet's probes.
type health struct {
	feed  *informer.Feed
	reads *apiclient.Reads
	// missing returns the missing prerequisites.
	missing func() ([]string, error)
	clock   clock.PassiveClock

	mu sync.Mutex
	// taken is the count of nodes taken from the queue by the last probe, and since the time of its last
	// change, or of the last probe that found no reason to take a node.
	taken uint64
	since time.Time
}

// ready fails while the operator cannot read the cluster: an upgrade must not replace the other, good
// replica. Missing prerequisites do not count, because Helm may wait for the operator before it installs Cilium.
func (h *health) ready(*http.Request) error {
	failing := h.reads.Failing(h.clock.Now().Add(-unreadFor))
	if h.feed.Ledger.Ready() {
		if len(failing) > 0 {
			return errors.New("cannot list or watch " + strings.Join(failing, ", "))
		}
		return nil
	}
	if missing, _ := h.missing(); len(missing) > 0 {
		return nil
	}
	return errors.New("the cluster's objects are being read; cannot list or watch: " + strings.Join(failing, ", "))
}

// alive fails once nodes wait and no worker has taken one for stuckFor. It passes on a standby, which
// queues no node, before the initial lists are stored, and while a list or watch fails.
func (h *health) alive(*http.Request) error {
	waiting, taken := h.feed.NodesTaken()
	now := h.clock.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if waiting == 0 || taken != h.taken || !h.feed.Ledger.Ready() || len(h.reads.Failing(now)) > 0 || h.since.IsZero() {
		h.taken = taken
		h.since = now
		return nil
	}
	if stuck := now.Sub(h.since); stuck >= stuckFor {
		return fmt.Errorf("%d nodes wait, and no worker took one for %s", waiting, stuck.Round(time.Second))
	}
	return nil
}
