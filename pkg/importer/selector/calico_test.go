package selector

import (
	"strings"
	"testing"
)

type labels = map[string]string

// The cases of Calico's own tests: libcalico-go/lib/selector/parser, parser_test.go, and tokenizer,
// tokenizer_test.go, of v3.34.
func TestCalicoMatches(t *testing.T) {
	for name, test := range map[string]struct {
		selector string
		yes, no  []labels
	}{
		"equal":               {`a == "b"`, []labels{{"a": "b"}, {"a": "b", "c": "d"}}, []labels{{}, {"a": "c"}, {"c": "d"}}},
		"single quotes":       {`a == 'a'`, []labels{{"a": "a"}}, []labels{{"a": "b"}, {}}},
		"no spaces":           {`(a=="b")`, []labels{{"a": "b"}}, []labels{{"a": "c"}}},
		"different":           {`a != "b"`, []labels{{"a": "a"}, {}}, []labels{{"a": "b"}}},
		"different, no space": {`a!='"'`, []labels{{"a": "a"}, {}}, []labels{{"a": `"`}}},
		"in":                  {`a in {"a", "b"}`, []labels{{"a": "a"}, {"a": "b"}}, []labels{{"a": "c"}, {}}},
		"in, quotes as values": {`a in {"'", '"', "c"}`,
			[]labels{{"a": "c"}, {"a": `"`}, {"a": `'`}}, []labels{{}, {"a": "e"}}},
		"not in, quotes as values": {`a not in {"'", '"', "c"}`,
			[]labels{{}, {"a": "e"}}, []labels{{"a": "c"}, {"a": `"`}, {"a": `'`}}},
		"not in, one word":     {`a notin{"a","B"}`, []labels{{"a": "b"}, {}}, []labels{{"a": "a"}, {"a": "B"}}},
		"not in, spaces":       {`a  not  in  {"bar"}  &&  ! has( foo ) `, []labels{{}, {"a": "b"}}, []labels{{"a": "bar"}, {"foo": ""}}},
		"not in nothing":       {`a not in {}`, []labels{{}, {"a": "b"}}, nil},
		"in nothing":           {`a in {}`, nil, []labels{{}, {"a": "b"}}},
		"trailing comma":       {`a in {"a",}`, []labels{{"a": "a"}}, []labels{{"a": ""}}},
		"not, then in":         {`!a in {"a"}`, []labels{{"a": "b"}, {}}, []labels{{"a": "a"}}},
		"contains":             {`a contains "a"`, []labels{{"a": "a"}, {"a": "bab"}, {"a": "aaa", "b": "c"}}, []labels{{}, {"a": "b"}, {"b": "aaa"}}},
		"contains, no space":   {`label contains"value"`, []labels{{"label": "a-value"}}, []labels{{}}},
		"label named contains": {`contains contains 'contains'`, []labels{{"contains": "contains"}}, []labels{{}}},
		"starts with":          {`a starts with "a"`, []labels{{"a": "a"}, {"a": "abb"}, {"a": "aaa", "b": "c"}}, []labels{{}, {"a": "b"}, {"a": "baa"}, {"b": "aaa"}}},
		"starts with, 1 word":  {`startswith startswith "a"`, []labels{{"startswith": "ab"}}, []labels{{}}},
		"ends with":            {`a ends  with "a"`, []labels{{"a": "a"}, {"a": "bba"}, {"a": "aaa", "b": "c"}}, []labels{{}, {"a": "b"}, {"a": "aab"}, {"b": "aaa"}}},
		"ends with, 1 word":    {`endswith endswith "a"`, []labels{{"endswith": "ba"}}, []labels{{}}},
		"has":                  {`has(a)`, []labels{{"a": "b"}, {"a": ""}}, []labels{{"b": "b"}}},
		"has not":              {`! has(a)`, []labels{{"b": "b"}}, []labels{{"a": "b"}}},
		"not, twice":           {`!!has(b)`, []labels{{"b": ""}}, []labels{{"a": "b"}}},
		"not, three times":     {`!! ! has(a)`, []labels{{}}, []labels{{"a": "b"}}},
		"empty":                {``, []labels{{}, {"a": "b"}}, nil},
		"space":                {` `, []labels{{}, {"a": "b"}}, nil},
		"all":                  {` all( )`, []labels{{}, {"a": "b"}}, nil},
		"global":               {`global( )`, []labels{{}, {"a": "b"}}, nil},
		"none":                 {`!all()`, nil, []labels{{}, {"a": "b"}}},
		"and":                  {`a == "b" && c == "d"`, []labels{{"a": "b", "c": "d"}}, []labels{{}, {"a": "b", "c": "e"}, {"a": "c", "c": "d"}, {"c": "d"}, {"a": "b"}}},
		"or":                   {`a == "b" || c == "d"`, []labels{{"a": "b", "c": "d"}, {"a": "b"}, {"c": "d"}}, []labels{{}, {"a": "e", "c": "e"}, {"c": "e"}, {"a": "e"}}},
		"and, different":       {`a != 'a1' && b != 'b1'`, []labels{{}}, []labels{{"a": "a1", "b": "b1"}}},
		"not binds tightest":   {`!a == 'a1' && b == 'b1'`, []labels{{"b": "b1"}}, []labels{{"a": "a1", "b": "b1"}, {}}},
		"and, has not":         {`!has(b) && has(a)`, []labels{{"a": "a"}}, []labels{{"a": "a", "b": ""}}},
		"not of or":            {`!(!has(a) || has(b))`, []labels{{"a": "a"}}, []labels{{}, {"a": "", "b": ""}}},
		"or of nots":           {`! a == 'a1' || ! b == 'b1'`, []labels{{}}, []labels{{"a": "a1", "b": "b1"}}},
		"or binds loosest":     {`a == 'x' && b == 'x' || c == 'x'`, []labels{{"c": "x"}, {"a": "x", "b": "x"}}, []labels{{"a": "x"}}},
		"keys with slashes": {`calico/k8s_ns == "kube-system" && k8s-app == "kube-dns"`,
			[]labels{{"calico/k8s_ns": "kube-system", "k8s-app": "kube-dns"}}, []labels{{}}},
		"key with two slashes": {`has(calico/k8s_NS-.1/role)`, []labels{{"calico/k8s_NS-.1/role": ""}}, []labels{{}}},
		"longest key":          {strings.Repeat("a", 512) + ` == "value"`, []labels{{strings.Repeat("a", 512): "value"}}, []labels{{}}},
		"all of it": {`!(!(k == 'v' && has(t) || all()) && (a in {'b', 'c'}))`,
			[]labels{{}, {"a": "b"}, {"k": "v", "t": ""}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := ParseCalico(test.selector)
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range test.yes {
				if !selects(e, l) {
					t.Errorf("does not select %v", l)
				}
			}
			for _, l := range test.no {
				if selects(e, l) {
					t.Errorf("selects %v", l)
				}
			}
		})
	}
}

func TestCalicoRefuses(t *testing.T) {
	for _, s := range []string{
		`b == b`, `b contains b`, `b starts with b`, `b ends with b`, `'b1' == b`, `b`, `a b`, `!`,
		`foo == "bar" &`, `foo == "bar" |`, `foo != ||`, `foo in {"", ||`, `foo in ""`, `"FOO`, `"FOO'`, `'FOO`,
		`(`, `(a == "foo"`, `)`, `()`, `%`, `a == "b" && %`, `a == "b" || %`, `a `, `has(foo) &&`,
		strings.Repeat("a", 513) + ` == "value"`, `label == "value`, `label == 'value`, `label = "value"`,
		`all(`, `global(`, `has()`, `has(foo`, `has( foo `, `a == "b" & has(foo)`, `a == "b" | has(foo)`,
		`label starts foo "value"`, `label inf "value"`, `label ends foo "value"`, `label ends withs "value"`,
		`label squiggles "value"`, `a not in "bar" && !has(foo) || b in c`, "a == 'b'\n", `a in {,}`, `has (a)`,
		`a in {'a' 'b'}`, strings.Repeat("!", maxLength) + "all()",
	} {
		if e, err := ParseCalico(s); err == nil {
			t.Errorf("%s is taken: %+v", s, e)
		}
	}
}
