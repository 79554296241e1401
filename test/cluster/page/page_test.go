package page

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBlocks(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []Block
	}{
		"runs unless excused": {
			"# Page\n\n```sh\nls\n```\n\n## 2. Key\n<!-- not run: needs a key: yours -->\n```sh\nrm x\n```\n",
			[]Block{{Line: 3, Heading: "Page", Language: "sh", Code: "ls\n"}, {Line: 9, Heading: "2. Key", Language: "sh", Code: "rm x\n", NotRun: "needs a key: yours"}},
		},
		"other languages": {"<!-- applied -->\n```yaml\na: 1\n```\n```yaml\nb: 1\n```\n```json\n{}\n```\n", []Block{{Line: 2, Language: "yaml", Code: "a: 1\n"}}},
		"in a list": {
			"1. Do\n   ```sh\n   if a; then\n     b\n   fi\n   ```\n2. Then\n   ```sh\n   c\n   ```\n",
			[]Block{{Line: 2, Language: "sh", Code: "if a; then\n  b\nfi\n"}, {Line: 8, Language: "sh", Code: "c\n"}},
		},
		"all that can be said": {
			"<!-- after docs/install.md -->\n<!-- setup:\na\nb\n-->\n<!-- exits with 3 -->\n<!-- prints: x -->\n\n<!-- until it prints: y: z -->\n<!-- install: begin -->\n```sh\nc\n```\n",
			[]Block{{Line: 11, Language: "sh", Code: "c\n", AfterStart: true, Setup: "a\nb\n", Exit: 3, Prints: []string{"x", "y: z"}, Again: true}},
		},
		"a comment is for the block right below": {"<!-- of the text -->\nText.\n```sh\na\n```\n", []Block{{Line: 3, Language: "sh", Code: "a\n"}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Blocks(c.text)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestMarked(t *testing.T) {
	const text = "```sh\nno\n```\n<!-- move: a -->\n```sh\nkubectl a\nkubectl b\n```\n<!-- file: c.yaml -->\n```yaml\nc: 1\n```\n<!-- move: d -->\nText.\n```sh\nno\n```\n"
	if diff := cmp.Diff(map[string]string{"a": "kubectl a\nkubectl b\n"}, Marked(text, "move")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"c.yaml": "c: 1\n"}, Marked(text, "file")); diff != "" {
		t.Error(diff)
	}
}

func TestBlocksRefused(t *testing.T) {
	for text, want := range map[string]string{
		"<!-- not run -->\n```sh\na\n```\n":                      "line 2: comment \"not run\"",
		"\n<!-- nor run: lazy -->\n```sh\na\n```\n":              "line 3: comment \"nor run: lazy\"",
		"<!-- exits with three -->\n```sh\na\n```\n":             "three",
		"<!-- applied -->\n```sh\na\n```\n":                      "applied",
		"<!-- not run: x -->\n<!-- prints: y -->\n```sh\na\n```": "needs no other comment",
	} {
		if _, err := Blocks(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestNamed(t *testing.T) {
	const code = "kubectl label node beijing-01 zone=beijing; kubectl get node NODE # NODES"
	if got, want := Named(code), "kubectl label node n1 zone=beijing; kubectl get node n1 # NODES"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
