package bed

import (
	"bytes"
	"context"
	"slices"

	"k8s.io/client-go/rest"
)

// Effects show what settings of the API server have come to.
type Effects struct {
	// WatchCaches are the resources that the API server keeps in a watch cache.
	WatchCaches []string
	// Streamed are lists that were sent as the beginning of a watch, by resource.
	Streamed map[string]float64
	// Dispatched are requests that priority and fairness let through, by priority level;
	// Waited is for how long they did in its queues, in seconds, and Rejected how many it
	// refused.
	Dispatched       map[string]float64
	Waited, Rejected float64
	// CBOR: custom resources are served in it.
	CBOR bool
}

// exemptLevel is the priority level of requests that are not limited.
const exemptLevel = "exempt"

// Effects are those since the API server has started.
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

// Sub is what was counted since before; what the API server can do is as it is now.
func (e Effects) Sub(before Effects) Effects {
	e.Streamed, e.Dispatched = less(e.Streamed, before.Streamed), less(e.Dispatched, before.Dispatched)
	e.Waited -= before.Waited
	e.Rejected -= before.Rejected
	return e
}

// Limited is how many requests priority and fairness let through that it may delay.
func (e Effects) Limited() float64 {
	sum := 0.0
	for level, n := range e.Dispatched {
		if level != exemptLevel {
			sum += n
		}
	}
	return sum
}

// servesCBOR asks for a page of CiliumNodes in CBOR first, and in JSON if there is none.
func servesCBOR(ctx context.Context, config *rest.Config) (bool, error) {
	api, err := RawClient(config)
	if err != nil {
		return false, err
	}
	body, err := api.Get().AbsPath(CiliumNodes).Param("limit", "1").SetHeader("Accept", "application/cbor, application/json;q=0.9").DoRaw(ctx)
	// The tag that self-describes CBOR (RFC 8949, section 3.4.6), with which apimachinery begins.
	return bytes.HasPrefix(body, []byte{0xd9, 0xd9, 0xf7}), err
}
