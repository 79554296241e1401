package claims

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// start is when the requests of these tests begin.
var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func second(s float64) time.Time { return start.Add(time.Duration(s*1000) * time.Millisecond) }

// line returns the part of an audit event that matters, as kube-apiserver v1.36 writes it.
func line(id, stage, verb, resource, name string, received, stamp float64, rest string) string {
	const form = "2006-01-02T15:04:05.000000Z"
	return fmt.Sprintf(`{"kind":"Event","auditID":%q,"stage":%q,"verb":%q,"user":{"username":"system:serviceaccount:kube-system:operator-a"},`+
		`"objectRef":{"resource":%q,"name":%q},"requestReceivedTimestamp":%q,"stageTimestamp":%q%s}`+"\n",
		id, stage, verb, resource, name, second(received).Format(form), second(stamp).Format(form), rest)
}

// request returns the lines of a request that took a tenth of a second.
func request(id, verb, resource, name string, received float64, code int, more string) string {
	return line(id, "RequestReceived", verb, resource, name, received, received, "") +
		line(id, "ResponseComplete", verb, resource, name, received, received+0.1001, fmt.Sprintf(`,"responseStatus":{"code":%d}%s`, code, more))
}

const (
	blockName = "100.64.0.0-28"
	made      = `,"requestObject":{"kind":"PodIPBlock","spec":{"cidr":"100.64.0.0/28","nodeName":"n1"}},` +
		`"responseObject":{"kind":"PodIPBlock","metadata":{"uid":"u1","finalizers":["f"]}}`
	listed = `,"requestObject":{"spec":{"ipam":{"pool":{"100.64.0.1":{},"fd00::1":{},"odd":{}},"podCIDRs":["100.64.0.0/28","192.0.2.0/24"]}}}`
	// assignsWhole assigns a block in multi-pool mode.
	assignsWhole = `,"requestObject":{"spec":{"ipam":{"pools":{"allocated":[{"pool":"default","cidrs":["100.64.0.0/28","192.0.2.0/24"]}]}}}}`
	empty        = `,"requestObject":{"spec":{"ipam":{"pool":{"100.64.0.1":null},"podCIDRs":[]}}}`
	gone         = `,"requestObject":{"kind":"PodIPBlock","metadata":{"uid":"u1"}},` +
		`"responseObject":{"kind":"PodIPBlock","metadata":{"uid":"u1","deletionTimestamp":"2026-01-02T03:04:05Z"}}`
	draining = `,"responseObject":{"kind":"PodIPBlock","metadata":{"uid":"u1","deletionTimestamp":"2026-01-02T03:04:05Z","finalizers":["f"]}}`
)

func life() []string {
	return []string{
		request("1", "create", "podipblocks", "", 1, 201, made),
		request("2", "patch", "ciliumnodes", "n1", 2, 200, listed),
		request("3", "delete", "podipblocks", blockName, 3, 200, draining), // a person asks for a drain
		request("4", "patch", "ciliumnodes", "n1", 4, 200, empty),
		request("5", "update", "podipblocks", blockName, 5, 200, gone),
	}
}

// read returns the requests read from a log, with the times at which they arrived and
// ended.
func read(t *testing.T, log string, deaths []time.Time, sightings []Sighting) []string {
	t.Helper()
	h, err := Read(strings.NewReader(log), deaths, InFlight, sightings)
	if err != nil {
		t.Fatal(err)
	}
	out := []string{}
	for _, op := range h.Operations {
		r := op.Input.(Request)
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s–%s %s %s %s %s", time.Unix(0, op.Call).Sub(start), time.Unix(0, op.Return).Sub(start), r.Kind, op.Output, r.Node, r.UID)))
	}
	return out
}

func TestRead(t *testing.T) {
	born := Sighting{Block: block, Node: "n1", UID: "u1", Created: second(1), Seen: second(1.5)}
	died := Sighting{Block: block, Node: "n1", UID: "u1", Gone: true, Created: second(1), Seen: second(6.5)}
	deaths := []time.Time{second(0.5), second(5.5), second(50)}
	all := []string{
		"1s–1.1s create done n1 u1", "2s–2.1s publish done n1", "4s–4.1s withdraw done n1", "5s–5.1s remove done  u1",
	}
	for name, c := range map[string]struct {
		log       []string
		sightings []Sighting
		want      []string
	}{
		"a life": {life(), []Sighting{born, died}, all},
		"refused": {append(life(), request("6", "create", "podipblocks", "", 6, 409,
			`,"requestObject":{"spec":{"cidr":"100.64.0.0/28","nodeName":"n2"}},"responseStatus":{"code":409,"reason":"AlreadyExists"}`)),
			nil, append(all[:4:4], "6s–6.1s create refused n2")},
		"a conflict says nothing": {append(life(), request("6", "patch", "ciliumnodes", "n1", 6, 409, listed)), nil, all},
		"an agent's whole object states what it holds": {append(life(), request("6", "update", "ciliumnodes", "n1", 4.5, 200,
			`,"requestObject":{"metadata":{"name":"n1"},"spec":{"ipam":{}}}`)), nil, append(all[:4:4], "4.5s–4.6s withdraw done n1")},
		"a deleted CiliumNode holds nothing": {append(life(), request("6", "delete", "ciliumnodes", "n1", 6, 200, "")),
			nil, append(all[:4:4], "6s–6.1s withdraw done n1")},
		"a patch that was never answered ends with the API server": {
			append(life(), line("6", "RequestReceived", "patch", "ciliumnodes", "n1", 5.2, 5.2, "")), nil,
			append(all[:4:4], "5.2s–15.5s publish unknown n1", "5.2s–15.5s withdraw unknown n1")},
		"a patch of unknown outcome": {append(life(), request("6", "patch", "ciliumnodes", "n1", 6, 500, listed)), nil,
			append(all[:4:4], "6s–16.1s publish unknown n1")},
		"a create that was never answered, and took effect": {
			append(life()[1:], line("1", "RequestReceived", "create", "podipblocks", "", 1, 1, "")), []Sighting{born},
			append(all[1:4:4], "1s–1.5s create done n1 u1")},
		"a create that was never answered, and did not": {
			append(life(), line("6", "RequestReceived", "create", "podipblocks", "", 6, 6, "")), []Sighting{born, died}, all},
		"an end that was never answered": {
			append(life()[:4], line("5", "RequestReceived", "update", "podipblocks", blockName, 5, 5, "")), []Sighting{born, died},
			append(all[:3:3], "5s–6.5s remove done n1 u1")},
		"whole blocks": {[]string{
			life()[0], request("2", "patch", "ciliumnodes", "n1", 2, 200, assignsWhole),
			request("3", "patch", "ciliumnodes", "n1", 3, 200, `,"requestObject":{"metadata":{"annotations":{"network.cilium.io/ipv4-pod-cidr":"100.64.0.0/28"}}}`),
			request("4", "update", "ciliumnodes", "n1", 4, 200, `,"requestObject":{"metadata":{"name":"n1"},"spec":{"ipam":{"pools":{"requested":[]}}}}`), life()[4],
		}, []Sighting{born, died}, all},
		"the podCIDR of a Node": {[]string{
			request("0", "create", "nodes", "", 0.5, 201, `,"requestObject":{"metadata":{"name":"n1"}}`), life()[0],
			request("2", "patch", "nodes", "n1", 2, 200, `,"requestObject":{"metadata":{"annotations":{"network.cilium.io/ipv4-pod-cidr":"100.64.0.0/28"}}}`),
			request("3", "patch", "nodes", "n1", 3, 200, `,"requestObject":{"metadata":{"annotations":{"other":"x"}}}`),
			request("4", "delete", "nodes", "n1", 4, 200, ""), life()[4],
		}, []Sighting{born, died}, append([]string{"500ms–600ms withdraw done n1"}, all...)},
		"a line cut off": {append(life(), `{"auditID":"6","stage":"Resp`), nil, all},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, read(t, strings.Join(c.log, ""), deaths, c.sightings)); diff != "" {
				t.Errorf("history (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReadSeesUnrequestedClaims(t *testing.T) {
	for name, s := range map[string]Sighting{
		"a block without a create": {Block: block, Node: "n2", UID: "u2", Created: second(7), Seen: second(8)},
		"an end without a delete":  {Block: block, Node: "n1", UID: "u2", Gone: true, Created: second(1), Seen: second(8)},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Read(strings.NewReader(strings.Join(life(), "")), nil, InFlight, []Sighting{s}); err == nil {
				t.Error("it passes")
			}
		})
	}
}

// TestCheck plants each wrong request into a good history.
func TestCheck(t *testing.T) {
	picture := filepath.Join(t.TempDir(), "history.html")
	read := func(log ...string) *History {
		t.Helper()
		h, err := Read(strings.NewReader(strings.Join(log, "")), nil, InFlight, nil)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	good := read(life()...)
	harness.Must(t, errors.Join(good.Check(picture), good.Prove()))
	if _, err := os.Stat(picture); err == nil {
		t.Error("a good history was drawn")
	}
	for name, planted := range map[string]string{
		"a second claim": request("6", "create", "podipblocks", "", 3, 201, strings.Replace(made, `"n1"`, `"n2"`, 1)),
		// A leader that was paused resumes with this write still pending.
		"a late patch":    request("6", "patch", "ciliumnodes", "n1", 6, 200, listed),
		"another's patch": request("6", "patch", "ciliumnodes", "n2", 3, 200, listed),
		"freed too early": request("6", "update", "podipblocks", blockName, 3.5, 200, gone),
		"refused for no reason": request("6", "create", "podipblocks", "", 6, 409,
			`,"requestObject":{"spec":{"cidr":"100.64.0.0/28","nodeName":"n2"}},"responseStatus":{"code":409,"reason":"AlreadyExists"}`),
	} {
		t.Run(name, func(t *testing.T) {
			if err := read(append(life(), planted)...).Check(picture); !errors.Is(err, ErrNoOrder) {
				t.Errorf("it passes: %v", err)
			}
			if _, err := os.Stat(picture); err != nil {
				t.Error(err)
			}
		})
	}
	if err := read().Prove(); err == nil {
		t.Error("an empty history proves something")
	}
}
