package addressmap

import (
	"bufio"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/list"
)

func at(minute int) time.Time { return time.Date(2026, 11, 20, 14, minute, 0, 0, time.UTC) }

// sample is a small plan with an example of everything.
func sample() *Map {
	since := at(3)
	user := func(ip, name string) list.User { return list.User{IP: netip.MustParseAddr(ip), Name: name} }
	return &Map{
		Time: at(5), Cluster: "prod <1>",
		Pools: []Pool{
			{
				PoolRow:  list.PoolRow{Pool: "main", Family: "ipv4", BlockBits: 29, State: "Ready", Assignable: 48, Free: 41},
				Reserved: []netip.Prefix{cidr("10.20.0.248/29")},
				Sections: []Section{{CIDR: cidr("10.20.0.0/24"), Of: cidr("10.20.0.0/24")}, {CIDR: cidr("10.21.0.0/25"), Of: cidr("10.21.0.0/25"), Cordoned: true, Drains: true}},
			},
			{
				PoolRow:  list.PoolRow{Pool: "six", Family: "ipv6", BlockBits: 122, State: "Exhausted", Message: "no free block is left", Assignable: 1 << 58},
				Sections: []Section{{CIDR: cidr("fd00::/116"), Of: cidr("fd00::/64"), ClosedBy: "other"}},
			},
		},
		Blocks: []list.BlockRow{
			{CIDR: cidr("10.20.0.0/29"), Pool: "main", Node: "edge-01", Phase: "InService", Addresses: 6, Used: 6, Created: at(0),
				Users: []list.User{user("10.20.0.1", "router"), user("10.20.0.2", "shop/Web-0")}},
			{CIDR: cidr("10.20.0.8/29"), Pool: "main", Node: "edge-02", Phase: "Draining", Reason: "Reclaim", Since: since, WaitsFor: "pods shop/web-1", Addresses: 6, Used: 1, Created: at(0),
				Users: []list.User{user("10.20.0.9", "shop/web-1")}},
			{CIDR: cidr("10.20.0.16/29"), Pool: "main", Node: "edge-02", Phase: "CoolingDown", Since: since, Addresses: 6, Created: at(0), Conflict: true},
			{CIDR: cidr("10.99.0.0/29"), Pool: "main", Node: "edge-01", Phase: "InService", Addresses: 6, Created: at(0)},
		},
	}
}

func ask(t *testing.T, h http.Handler, path string, with ...func(*http.Request)) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:8080"+path, nil)
	for _, w := range with {
		w(r)
	}
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, r)
	return answer
}

func host(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }
func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

// Only the page itself gets an answer, and only with the token.
func TestWhoIsAnswered(t *testing.T) {
	h := Handler(NewBoard(sample()), "secret")
	tests := map[string]struct {
		path string
		with []func(*http.Request)
		want int
	}{
		"the page":                        {path: "/secret/", want: 200},
		"a script":                        {path: "/secret/app.js", want: 200},
		"by its name":                     {path: "/secret/", with: []func(*http.Request){host("localhost:8080")}, want: 200},
		"by way of a tunnel":              {path: "/secret/", with: []func(*http.Request){host("localhost:9")}, want: 200},
		"by IPv6":                         {path: "/secret/", with: []func(*http.Request){host("[::1]:8080")}, want: 200},
		"its own script asks":             {path: "/secret/block?cidr=10.20.0.0/29", with: []func(*http.Request){header("Sec-Fetch-Site", "same-origin"), header("Origin", "http://127.0.0.1:8080")}, want: 200},
		"no token":                        {path: "/", want: 404},
		"another token":                   {path: "/guess/search", want: 404},
		"only the token":                  {path: "/secret", want: 404},
		"nothing there":                   {path: "/secret/nothing", want: 404},
		"a name that leads here":          {path: "/secret/", with: []func(*http.Request){host("evil.example:8080")}, want: 403},
		"a name that looks like loopback": {path: "/secret/", with: []func(*http.Request){host("127.0.0.1.evil.example")}, want: 403},
		"an address of the machine":       {path: "/secret/", with: []func(*http.Request){host("192.168.0.7:8080")}, want: 403},
		"another page asks":               {path: "/secret/search", with: []func(*http.Request){header("Origin", "http://evil.example")}, want: 403},
		"another page loads it":           {path: "/secret/app.js", with: []func(*http.Request){header("Sec-Fetch-Site", "cross-site")}, want: 403},
		"a page on another port asks":     {path: "/secret/search", with: []func(*http.Request){header("Sec-Fetch-Site", "same-site")}, want: 403},
		"a write":                         {path: "/secret/search", with: []func(*http.Request){func(r *http.Request) { r.Method = http.MethodPost }}, want: 405},
		"no prefix":                       {path: "/secret/block?cidr=10", want: 400},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			answer := ask(t, h, test.path, test.with...)
			if answer.Code != test.want {
				t.Errorf("status %d, want %d", answer.Code, test.want)
			}
			if !strings.HasPrefix(answer.Header().Get("Content-Security-Policy"), "default-src 'none'") {
				t.Error("there is no policy")
			}
		})
	}
}

func decode[T any](t *testing.T, r *httptest.ResponseRecorder) T {
	t.Helper()
	var v T
	if err := json.NewDecoder(r.Body).Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestAnswers(t *testing.T) {
	h := Handler(NewBoard(sample()), "secret")
	addrs := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
	users := decode[[]list.User](t, ask(t, h, "/secret/block?cidr=10.20.0.0/29"))
	if diff := cmp.Diff(sample().Blocks[0].Users, users, addrs); diff != "" {
		t.Errorf("users of a block (-want +got):\n%s", diff)
	}
	if none := decode[[]list.User](t, ask(t, h, "/secret/block?cidr=10.20.0.64/29")); none == nil || len(none) != 0 {
		t.Errorf("users of no block: %v", none)
	}
	found := decode[[]Found](t, ask(t, h, "/secret/search?user=web-"))
	want := []Found{
		{User: sample().Blocks[0].Users[1], Block: cidr("10.20.0.0/29"), Node: "edge-01"},
		{User: sample().Blocks[1].Users[0], Block: cidr("10.20.0.8/29"), Node: "edge-02"},
	}
	if diff := cmp.Diff(want, found, addrs, prefixes); diff != "" {
		t.Errorf("found (-want +got):\n%s", diff)
	}
	if none := decode[[]Found](t, ask(t, h, "/secret/search?user=")); len(none) != 0 {
		t.Errorf("nothing is searched for, and %v found", none)
	}
}

func TestChangeTo(t *testing.T) {
	since := at(3)
	block := func(c string, used int) list.BlockRow { return list.BlockRow{CIDR: cidr(c), Used: used, Since: since} }
	withUser := block("10.0.1.0/24", 1)
	withUser.Users = []list.User{{IP: netip.MustParseAddr("10.0.1.1"), Name: "a/b"}}
	tests := map[string]struct {
		from, to []list.BlockRow
		set      []string
		gone     []string
	}{
		"nothing":      {from: []list.BlockRow{block("10.0.1.0/24", 1)}, to: []list.BlockRow{block("10.0.1.0/24", 1)}},
		"first":        {to: []list.BlockRow{block("10.0.1.0/24", 1)}, set: []string{"10.0.1.0/24"}},
		"last":         {from: []list.BlockRow{block("10.0.1.0/24", 1)}, gone: []string{"10.0.1.0/24"}},
		"changed":      {from: []list.BlockRow{block("10.0.1.0/24", 1), block("10.0.2.0/24", 1)}, to: []list.BlockRow{block("10.0.1.0/24", 1), block("10.0.2.0/24", 2)}, set: []string{"10.0.2.0/24"}},
		"another user": {from: []list.BlockRow{block("10.0.1.0/24", 1)}, to: []list.BlockRow{withUser}, set: []string{"10.0.1.0/24"}},
		"replaced": {
			from: []list.BlockRow{block("10.0.1.0/24", 1), block("10.0.3.0/24", 1)}, to: []list.BlockRow{block("10.0.2.0/24", 1), block("fd00::/64", 1)},
			set: []string{"10.0.2.0/24", "fd00::/64"}, gone: []string{"10.0.1.0/24", "10.0.3.0/24"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := (&Map{Blocks: test.from}).changeTo(&Map{Blocks: test.to})
			var set, gone []string
			for _, b := range c.Set {
				set = append(set, b.CIDR.String())
				if b.Users != nil {
					t.Error("all browsers get the users")
				}
			}
			for _, p := range c.Gone {
				gone = append(gone, p.String())
			}
			if diff := cmp.Diff([][]string{test.set, test.gone}, [][]string{set, gone}); diff != "" {
				t.Errorf("change (-want +got):\n%s", diff)
			}
		})
	}
}

// A stream begins with the map and continues with its changes.
func TestEvents(t *testing.T) {
	board := NewBoard(sample())
	server := httptest.NewServer(Handler(board, "secret"))
	defer server.Close()
	answer, err := http.Get(server.URL + "/secret/events")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	lines := bufio.NewReader(answer.Body)
	next := func() (event, data string) {
		t.Helper()
		for data == "" {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if v, ok := strings.CutPrefix(line, "event: "); ok {
				event = strings.TrimSpace(v)
			}
			if v, ok := strings.CutPrefix(line, "data: "); ok {
				data = strings.TrimSpace(v)
			}
		}
		return event, data
	}
	if event, data := next(); event != "map" || strings.Contains(data, "shop/web-0") {
		t.Errorf("first comes %s %s", event, data)
	}
	if event, data := next(); event != "problem" || data != `""` {
		t.Errorf("then comes %s %s", event, data)
	}
	changed := sample()
	changed.Blocks = changed.Blocks[1:]
	board.Put(changed)
	if event, data := next(); event != "change" || !strings.Contains(data, `"gone":["10.20.0.0/29"]`) {
		t.Errorf("after a change comes %s %s", event, data)
	}
	board.Problem("cut off")
	if event, data := next(); event != "problem" || data != `"cut off"` {
		t.Errorf("after a problem comes %s %s", event, data)
	}
}
