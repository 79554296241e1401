package whois

import (
	"compress/gzip"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cilium-pool/cilium-pool-operator/pkg/plugin/cli"
)

// Lines of two operators: a has the block, then b, with an address that stays with an owner.
const (
	claimedByA  = `{"level":"info","ts":"2026-01-01T10:00:00.5Z","msg":"claimed","controller":"node","name":"a","block":"10.0.0.0/29","node":"a","pool":"p","reason":"NeedsAddresses"}`
	returnedByA = `{"level":"info","ts":"2026-01-01T12:00:00Z","msg":"returned","block":"10.0.0.0/29","node":"a","pool":"p","reason":"Returned","since":"2026-01-01T10:00:00Z"}`
	freedByA    = `{"level":"info","ts":"2026-01-01T12:10:00Z","msg":"freed","block":"10.0.0.0/29","node":"a","pool":"p","reason":"Returned","since":"2026-01-01T10:00:00Z","until":"2026-01-01T12:00:00Z"}`
	claimedByB  = `{"level":"info","ts":"2026-01-01T14:00:00Z","msg":"claimed","block":"10.0.0.0/29","node":"b","pool":"p","reason":"NeedsAddresses"}`
	keptForPod  = `{"level":"info","ts":"2026-01-01T14:01:00Z","msg":"keeping an address for an owner","address":"10.0.0.2","owner":"default/web-0"}`
	another     = `{"level":"info","ts":"2026-01-01T15:00:00Z","msg":"claimed","block":"10.0.0.8/29","node":"c","pool":"p","reason":"NeedsAddresses"}`
)

func TestAt(t *testing.T) {
	const ends = "The log has lines from 2026-01-01T10:00:00Z to 2026-01-01T15:00:00Z.\n"
	const noPod = "The log names no pod: ask the API server's audit log, or Cilium's flow log.\n"
	all := []string{claimedByA, returnedByA, freedByA, claimedByB, keptForPod, another}
	for name, test := range map[string]struct {
		at    string
		lines []string
		known bool
		want  string
	}{
		"a former holder": {
			"11:00", all, true,
			"10.0.0.2 was in block 10.0.0.0/29 of pool p, which node a held from 2026-01-01T10:00:00Z until 2026-01-01T12:00:00Z (Returned).\n" + noPod + ends,
		},
		"its last line is missing": {
			"11:00", []string{claimedByA, returnedByA, another}, true,
			"10.0.0.2 was in block 10.0.0.0/29 of pool p, which node a held from 2026-01-01T10:00:00Z until 2026-01-01T12:00:00Z (Returned).\n" + noPod + ends,
		},
		"its first line is missing, and prefixes": {
			"11:00", []string{`[pod/x] {"ts":"2026-01-01T10:00:00Z","msg":"starting"}`, "2026-01-01T12:10:00Z stderr F " + freedByA, another}, true,
			"10.0.0.2 was in block 10.0.0.0/29 of pool p, which node a held from 2026-01-01T10:00:00Z until 2026-01-01T12:00:00Z (Returned).\n" + noPod + ends,
		},
		"between two holders": {
			"13:00", all, true,
			"The log names no node that held 10.0.0.2 at 2026-01-01T13:00:00Z.\n" +
				"Node a held block 10.0.0.0/29 from 2026-01-01T10:00:00Z until 2026-01-01T12:00:00Z (Returned).\n" +
				"Node b held block 10.0.0.0/29 from 2026-01-01T14:00:00Z on.\n" +
				"A block that was claimed before 2026-01-01T10:00:00Z and is still held has no line.\n" + ends,
		},
		"the present holder, and a pod": {
			"14:30", all, true,
			"10.0.0.2 was in block 10.0.0.0/29 of pool p, which node b held from 2026-01-01T14:00:00Z on.\n" +
				"Only pod default/web-0 got it, from 2026-01-01T14:01:00Z on.\n" + ends,
		},
		"the pod alone has the block": {
			"14:30", []string{claimedByA, returnedByA, freedByA, strings.Replace(claimedByB, `"pool"`, `"owner":"default/web-0","pool"`, 1), another}, true,
			"10.0.0.2 was in block 10.0.0.0/29 of pool p, which node b held from 2026-01-01T14:00:00Z on.\n" +
				"Only pod default/web-0 got it, from 2026-01-01T14:00:00Z on.\n" + ends,
		},
		"removed by force, and two holders": {
			"14:30", []string{claimedByA, claimedByB, another}, true,
			"10.0.0.2 was in block 10.0.0.0/29 of pool p, which node a held from 2026-01-01T10:00:00Z on.\n" +
				"10.0.0.2 was in block 10.0.0.0/29 of pool p, which node b held from 2026-01-01T14:00:00Z on.\n" +
				"That must not be, unless a user removed a block by force: the line of its return is missing then.\n" + noPod + ends,
		},
		"the Node was deleted": {
			"11:00", []string{claimedByA, strings.Replace(freedByA, `"Returned"`, `"NodeGone"`, 1), another}, true,
			"10.0.0.2 was in block 10.0.0.0/29 of pool p, which node a held from 2026-01-01T10:00:00Z until 2026-01-01T12:00:00Z (NodeGone).\n" +
				"Its Node was deleted then: the machine may have run on.\n" + noPod + ends,
		},
		"before the log": {
			"09:00", all, false,
			"The log names no node that held 10.0.0.2 at 2026-01-01T09:00:00Z.\n" +
				"Node a held block 10.0.0.0/29 from 2026-01-01T10:00:00Z until 2026-01-01T12:00:00Z (Returned).\n" +
				"A block that was claimed before 2026-01-01T10:00:00Z and is still held has no line.\n" + ends + "It does not cover 2026-01-01T09:00:00Z.\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			log := holderLog{addr: netip.MustParseAddr("10.0.0.2")}
			if err := log.readFiles(strings.NewReader(strings.Join(test.lines, "\n")), []string{"-"}); err != nil {
				t.Fatal(err)
			}
			moment, err := time.Parse(time.RFC3339, "2026-01-01T"+test.at+":00Z")
			if err != nil {
				t.Fatal(err)
			}
			found := log.at(moment)
			var text cli.Text
			found.describe(&text)
			if diff := cmp.Diff(test.want, text.String()); diff != "" || found.isKnown() != test.known {
				t.Errorf("known: %t; (-want +got):\n%s", found.isKnown(), diff)
			}
		})
	}
}

// Logs are several files in any order, compressed ones too, and exports of log stores, with lines twice.
func TestReadFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	var packed strings.Builder
	w := gzip.NewWriter(&packed)
	if _, err := w.Write([]byte(claimedByA + "\n" + returnedByA + "\n")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	store := `{"labels":{"app":"x"},"line":"` + strings.ReplaceAll(freedByA, `"`, `\"`) + "\"}\nnot a line\n" + freedByA
	log := holderLog{addr: netip.MustParseAddr("10.0.0.7")}
	if err := log.readFiles(strings.NewReader(claimedByB), []string{write("store.jsonl", store), "-", write("old.gz", packed.String())}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, line := range log.lines {
		got = append(got, line.Message+" "+line.Node)
	}
	if diff := cmp.Diff([]string{"claimed a", "returned a", "freed a", "claimed b"}, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	text := holderLog{addr: netip.MustParseAddr("10.0.0.7")}
	if err := text.readFiles(nil, []string{write("console.log", "2026-01-01T10:00:00Z\tINFO\tclaimed\t{\"block\": \"10.0.0.0/29\"}\n")}); err == nil || !strings.Contains(err.Error(), "--log-format=json") {
		t.Errorf("a log in the console format: %v", err)
	}
}
