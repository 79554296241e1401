package bed

import (
	"bytes"
	"context"
	"slices"

	"k8s.io/client-go/rest"
)

// Effects show the effects of settings of the API server.
type Effects struct {
	// WatchCaches are the resources that the API server keeps in a watch cache.
	WatchCaches []string
	// Streamed are lists sent as the beginning of a watch, by resource.
	Streamed map[string]float64
	// Dispatched are requests that priority and fairness let through, by priority level.
	// Waited is how long they waited in its queues, in seconds, and Rejected how many it
	// refused.
	Dispatched       map[string]float64
	Waited, Rejected float64
	// CBOR: custom resources are served in CBOR.
	CBOR bool
}

// exemptLevel is the priority level of requests that are not limited.
const exemptLevel = "exempt"

// Effects returns the effects since the API server started.
func (s *Stage) Effects(ctx context.Context) (Effects, error) {
	e := Effects{Streamed: map[string]float64{}, Dispatched: map[string]float64{}}
	if err := s.series(ctx, e.add); err != nil {
		return e, err
	}
	var err error
	e.CBOR, err = servesCBOR(ctx, s.Config())
	return e, err
}

func (e *Effects) add(name string, labels map[string]string, value float64) {
	switch name {
	case "apiserver_watch_cache_initializations_total":
		if !slices.Contains(e.WatchCaches, labels["resource"]) {
			e.WatchCaches = append(e.WatchCaches, labels["resource"])
		}
	case "apiserver_watch_list_duration_seconds_count":
		e.Streamed[labels["resource"]] += value
	case "apiserver_flowcontrol_dispatched_requests_total":
		e.Dispatched[labels["priority_level"]] += value
	case "apiserver_flowcontrol_request_wait_duration_seconds_sum":
		e.Waited += value
	case "apiserver_flowcontrol_rejected_requests_total":
		e.Rejected += value
	}
}

// Sub returns what was counted since before; what the API server can do stays as it is now.
func (e Effects) Sub(before Effects) Effects {
	e.Streamed, e.Dispatched = less(e.Streamed, before.Streamed), less(e.Dispatched, before.Dispatched)
	e.Waited -= before.Waited
	e.Rejected -= before.Rejected
	return e
}

// Limited returns how many of the requests that priority and fairness let through it may
// delay.
func (e Effects) Limited() float64 {
	sum := 0.0
	for level, n := range e.Dispatched {
		if level != exemptLevel {
			sum += n
		}
	}
	return sum
}

// servesCBOR requests a page of CiliumNodes, preferably in CBOR, otherwise in JSON.
func servesCBOR(ctx context.Context, config *rest.Config) (bool, error) {
	api, err := RawClient(config)
	if err != nil {
		return false, err
	}
	body, err := api.Get().AbsPath(CiliumNodes).Param("limit", "1").SetHeader("Accept", "application/cbor, application/json;q=0.9").DoRaw(ctx)
	// The tag that self-describes CBOR (RFC 8949, section 3.4.6), with which apimachinery
	// begins.
	return bytes.HasPrefix(body, []byte{0xd9, 0xd9, 0xf7}), err
}
