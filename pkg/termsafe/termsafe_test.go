package termsafe

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"
)

func TestText(t *testing.T) {
	for name, test := range map[string]struct{ in, want string }{
		"plain":              {"a\tb\nc é 世界", "a\tb\nc é 世界"},
		"an escape sequence": {"default/\x1b[2Jweb", `default/\u001b[2Jweb`},
		"a carriage return":  {"evil\rgood", `evil\u000dgood`},
		"delete":             {"a\x7fb", `a\u007fb`},
		"C1":                 {"a\u009b31m", `a\u009b31m`},
		"right to left":      {"a\u202eb", `a\u202eb`},
		"beyond 16 bits":     {"a\U000e0001b", `a\udb40\udc01b`},
		"no UTF-8":           {"a\xffb", "a\ufffdb"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Text(test.in); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
			var out bytes.Buffer
			if n, err := fmt.Fprint(Writer(&out), test.in); n != len(test.in) || err != nil || out.String() != test.want {
				t.Errorf("wrote %q, %d of %d, error %v", out.String(), n, len(test.in), err)
			}
		})
	}
}

func TestCut(t *testing.T) {
	for text, want := range map[string]string{"short": "short", "ab世界": "ab世界", "ab世界!": "ab世…", "abc世界": "abc…", "abcdefghi": "abcde…"} {
		if got := Cut(text, 8); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// JSON stays JSON, and means the same.
func TestJSONStaysJSON(t *testing.T) {
	const owner = "a\x1b\x7f\u009b\u202e\U000e0001\n\"b"
	body, err := json.Marshal(owner)
	if err != nil {
		t.Fatal(err)
	}
	var back string
	if err := json.Unmarshal([]byte(Text(string(body))), &back); err != nil || back != owner {
		t.Errorf("%q, error %v", back, err)
	}
}
