package bed

import (
	"context"
	"fmt"
	"maps"
	"regexp"
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
}

// Sub returns the difference to the counts before.
func (c Counts) Sub(before Counts) Counts {
	less := func(now, before map[string]float64) map[string]float64 {
		out := map[string]float64{}
		for k, n := range now {
			if d := n - before[k]; d != 0 {
				out[k] = d
			}
		}
		return out
	}
	return Counts{Requests: less(c.Requests, before.Requests), Lists: less(c.Lists, before.Lists)}
}

// housekeeping are the resources that processes write about themselves.
var housekeeping = strings.Fields(`leases events tokenreviews subjectaccessreviews endpointslices endpoints configmaps apiservices
	flowschemas prioritylevelconfigurations clusterroles clusterrolebindings roles rolebindings namespaces services priorityclasses
	ipaddresses servicecidrs selfsubjectaccessreviews`)

// Writes sums successful writes of the resources, including subresources. Without resources
// it sums all except housekeeping.
func (c Counts) Writes(resources ...string) float64 {
	return c.sum(func(resource, code string) bool {
		return code == "" && (slices.Contains(resources, resource) || len(resources) == 0 && !slices.Contains(housekeeping, resource))
	})
}

// Failed counts refused writes, most of them conflicts.
func (c Counts) Failed() float64 { return c.sum(func(_, code string) bool { return code != "" }) }

// sum sums the writes that count selects by resource and error code.
func (c Counts) sum(count func(resource, code string) bool) float64 {
	sum := 0.0
	for k, n := range c.Requests {
		verb, rest, _ := strings.Cut(k, " ")
		path, code, _ := strings.Cut(rest, " ")
		resource, _, _ := strings.Cut(path, "/")
		if verb != "WATCH" && verb != "GET" && verb != "LIST" && count(resource, code) {
			sum += n
		}
	}
	return sum
}

// String lists all counts except for leases.
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
	clients, err := kubernetes.NewForConfig(s.Config())
	if err != nil {
		return c, err
	}
	body, err := clients.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return c, fmt.Errorf("read the API server's metrics: %w", err)
	}
	for line := range strings.Lines(string(body)) {
		if err := c.add(strings.TrimSpace(line)); err != nil {
			return c, err
		}
	}
	return c, nil
}

// label is a label of a series; those read here contain no quotes.
var label = regexp.MustCompile(`(\w+)="([^"]*)"`)

// add adds a line of the API server's metrics.
func (c Counts) add(line string) error {
	name, rest, _ := strings.Cut(line, "{")
	if name != "apiserver_request_total" && name != "apiserver_watch_list_duration_seconds_count" {
		return nil
	}
	value, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
	if err != nil {
		return fmt.Errorf("read %s: %w", line, err)
	}
	labels := map[string]string{}
	for _, match := range label.FindAllStringSubmatch(rest, -1) {
		labels[match[1]] = match[2]
	}
	if name != "apiserver_request_total" || labels["verb"] == "LIST" {
		c.Lists[labels["resource"]] += value
	}
	if name == "apiserver_request_total" {
		key := labels["verb"] + " " + labels["resource"]
		if labels["subresource"] != "" {
			key += "/" + labels["subresource"]
		}
		if code := labels["code"]; code != "" && code[0] != '2' && code != "0" {
			key += " " + code
		}
		c.Requests[key] += value
	}
	return nil
}
