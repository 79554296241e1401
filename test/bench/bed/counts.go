package bed

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/client-go/kubernetes"
)

// Counts are the API server's own counters.
type Counts struct {
	// Requests are by "VERB resource" or "VERB resource/subresource", followed by the
	// status code, such as " 409", if they failed. WATCH counts when it has ended.
	Requests map[string]float64
	// Lists are full reads by resource, either by LIST or by a watch that begins with all
	// objects.
	Lists map[string]float64
	// Answered and Watched are bytes sent in responses to requests and to watches.
	Answered, Watched float64
}

// Sub returns what was counted since before.
func (c Counts) Sub(before Counts) Counts {
	return Counts{
		Requests: less(c.Requests, before.Requests), Lists: less(c.Lists, before.Lists),
		Answered: c.Answered - before.Answered, Watched: c.Watched - before.Watched,
	}
}

func less(now, before map[string]float64) map[string]float64 {
	out := map[string]float64{}
	for k, n := range now {
		if d := n - before[k]; d != 0 {
			out[k] = d
		}
	}
	return out
}

// Writes sums successful writes of the resources, including subresources. Without resources
// it sums those of all resources except leases and events.
func (c Counts) Writes(resources ...string) float64 {
	sum := 0.0
	for k, n := range c.Requests {
		verb, rest, _ := strings.Cut(k, " ")
		if !slices.Contains([]string{"POST", "PUT", "PATCH", "APPLY", "DELETE"}, verb) || strings.Contains(rest, " ") {
			continue
		}
		resource, _, _ := strings.Cut(rest, "/")
		if slices.Contains(resources, resource) || len(resources) == 0 && !housekeeping(resource) {
			sum += n
		}
	}
	return sum
}

// housekeeping reports whether a resource is leases, events, or something that the API
// server writes about itself.
func housekeeping(resource string) bool {
	return slices.Contains([]string{"leases", "events", "tokenreviews", "subjectaccessreviews", "endpointslices", "endpoints",
		"configmaps", "apiservices", "flowschemas", "prioritylevelconfigurations", "clusterroles", "clusterrolebindings",
		"roles", "rolebindings", "namespaces", "services", "priorityclasses", "ipaddresses", "servicecidrs", "selfsubjectaccessreviews"}, resource)
}

// Failed counts refused writes, most of them conflicts.
func (c Counts) Failed() float64 {
	sum := 0.0
	for k, n := range c.Requests {
		verb, rest, _ := strings.Cut(k, " ")
		if _, code, failed := strings.Cut(rest, " "); failed && verb != "WATCH" && verb != "GET" && verb != "LIST" && code != "" {
			sum += n
		}
	}
	return sum
}

// String lists what was counted, except leases.
func (c Counts) String() string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(c.Requests)) {
		if !strings.Contains(k, " leases") {
			out = append(out, fmt.Sprintf("%s %.0f", k, c.Requests[k]))
		}
	}
	for _, k := range slices.Sorted(maps.Keys(c.Lists)) {
		out = append(out, fmt.Sprintf("read all %s %.0f", k, c.Lists[k]))
	}
	return strings.Join(out, ", ")
}

func (s *Stage) counts(ctx context.Context) (Counts, error) {
	c := Counts{Requests: map[string]float64{}, Lists: map[string]float64{}}
	return c, s.series(ctx, c.add)
}

// series calls add for each series of the API server's metrics.
func (s *Stage) series(ctx context.Context, add func(name string, labels map[string]string, value float64)) error {
	clients, err := kubernetes.NewForConfig(s.Config())
	if err != nil {
		return err
	}
	body, err := clients.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return fmt.Errorf("read the API server's metrics: %w", err)
	}
	lines := bufio.NewScanner(bytes.NewReader(body))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		name, labels, value, ok := parseSeries(lines.Text())
		if ok {
			add(name, labels, value)
		}
	}
	return lines.Err()
}

func (c *Counts) add(name string, labels map[string]string, value float64) {
	resource := labels["resource"]
	switch name {
	case "apiserver_request_total":
		key := labels["verb"] + " " + resource
		if labels["subresource"] != "" {
			key += "/" + labels["subresource"]
		}
		if code := labels["code"]; code != "" && code[0] != '2' && code != "0" {
			key += " " + code
		}
		c.Requests[key] += value
		if labels["verb"] == "LIST" {
			c.Lists[resource] += value
		}
	case "apiserver_watch_list_duration_seconds_count":
		c.Lists[resource] += value
	case "apiserver_response_sizes_sum":
		c.Answered += value
	case "apiserver_watch_events_sizes_sum":
		c.Watched += value
	}
}

// parseSeries parses one line of the text format of metrics.
func parseSeries(line string) (name string, labels map[string]string, value float64, ok bool) {
	if line == "" || line[0] == '#' {
		return "", nil, 0, false
	}
	at := strings.LastIndexByte(line, ' ')
	if at < 0 {
		return "", nil, 0, false
	}
	value, err := strconv.ParseFloat(line[at+1:], 64)
	if err != nil {
		return "", nil, 0, false
	}
	name, list, has := strings.Cut(line[:at], "{")
	labels = map[string]string{}
	if !has {
		return name, labels, value, true
	}
	for list != "" {
		key, rest, found := strings.Cut(list, `="`)
		if !found {
			break
		}
		text, rest, found := strings.Cut(rest, `"`) // labels read here contain no quotes
		if !found {
			break
		}
		labels[key] = text
		list = strings.TrimPrefix(rest, ",")
	}
	return name, labels, value, true
}
