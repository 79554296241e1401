// Package selector turns selectors of nodes, as Calico's IPPools and
// Kubernetes' NodeSelectors write them, into the one Kubernetes label selector
// that a PodIPPool has. It does so exactly, for every set of labels that a Node
// can have, or refuses with the reason.
//
// An expression becomes a union of terms, each a conjunction with one constraint per label. The
// narrowest conjunction around all terms is then the only candidate; it is taken if the terms cover
// all of it.
package selector

import (
	"errors"
	"fmt"
	"strings"
)

const (
	// maxLength is more than Calico's own API takes: 1024.
	maxLength = 4096
	// maxKey is Calico's tokenizer.MaxLabelLength (v3.34).
	maxKey = 512
)

// ParseCalico reads a selector of Calico: libcalico-go/lib/selector of v3.34.
// An empty one selects everything. A label that is missing is different from
// any value: k != 'v' and k not in {'v'} select it.
func ParseCalico(s string) (Expr, error) {
	if len(s) > maxLength {
		return Expr{}, fmt.Errorf("it is longer than %d characters", maxLength)
	}
	p := &parser{rest: s}
	p.space()
	if p.rest == "" {
		return Expr{}, nil
	}
	e, err := p.union()
	if err == nil && p.rest != "" {
		err = fmt.Errorf("%q is too much", p.rest)
	}
	if err != nil {
		return Expr{}, err
	}
	return e, nil
}

// parser is at the beginning of rest, which has no space in front.
type parser struct{ rest string }

// space skips the characters that Calico takes for space: no newlines.
func (p *parser) space() { p.rest = strings.TrimLeft(p.rest, " \t") }

// symbol skips s and the space after it, if s comes next.
func (p *parser) symbol(s string) bool {
	rest, ok := strings.CutPrefix(p.rest, s)
	if ok {
		p.rest = rest
		p.space()
	}
	return ok
}

// union := intersection { "||" intersection }
func (p *parser) union() (Expr, error) { return p.list(opOr, "||", p.intersection) }

// intersection := operation { "&&" operation }
func (p *parser) intersection() (Expr, error) { return p.list(opAnd, "&&", p.operation) }

func (p *parser) list(op operator, separator string, one func() (Expr, error)) (Expr, error) {
	e, err := one()
	if err != nil {
		return Expr{}, err
	}
	list := Expr{op: op, args: []Expr{e}}
	for p.symbol(separator) {
		if e, err = one(); err != nil {
			return Expr{}, err
		}
		list.args = append(list.args, e)
	}
	return list, nil
}

// operation := { "!" } ( "(" union ")" | "all()" | "global()" | "has(" key ")" | comparison )
func (p *parser) operation() (Expr, error) {
	negated := false
	for p.symbol("!") {
		negated = !negated
	}
	e, err := p.positive()
	if err == nil && negated {
		e = not(e)
	}
	return e, err
}

func (p *parser) positive() (Expr, error) {
	var e Expr
	var err error
	switch {
	case p.symbol("("):
		e, err = p.union()
	case p.symbol("has("):
		e.op = opHas
		e.key, err = p.label()
	case !p.symbol("all(") && !p.symbol("global("):
		return p.comparison()
	}
	if err == nil && !p.symbol(")") {
		err = fmt.Errorf("a ')' is missing before %q", p.rest)
	}
	return e, err
}

// comparison := key ( "==" | "!=" | "contains" | "starts with" | "ends with" ) string | key [ "not" ] "in" set
func (p *parser) comparison() (Expr, error) {
	key, err := p.label()
	if err != nil {
		return Expr{}, err
	}
	e := Expr{key: key}
	negated := false
	switch {
	case p.symbol("=="):
		e.op = opIn
	case p.symbol("!="):
		e.op = opIn
		negated = true
	case p.words("contains"):
		e.op = opContains
	case p.words("starts", "with"):
		e.op = opStartsWith
	case p.words("ends", "with"):
		e.op = opEndsWith
	case p.words("not", "in"):
		e.op = opIn
		negated = true
		e.values, err = p.set()
	case p.words("in"):
		e.op = opIn
		e.values, err = p.set()
	default:
		return Expr{}, fmt.Errorf("no operator follows the label %q", key)
	}
	if e.values == nil && err == nil {
		e.values = make([]string, 1)
		e.values[0], err = p.text()
	}
	if negated {
		e = not(e)
	}
	return e, err
}

// words skips an operator; there may be space between its words. The next character, a quote or a
// brace, cannot be taken for the rest of a word.
func (p *parser) words(words ...string) bool {
	start := p.rest
	for _, w := range words {
		if !p.symbol(w) {
			p.rest = start
			return false
		}
	}
	return true
}

func (p *parser) label() (string, error) {
	end := strings.IndexFunc(p.rest, func(c rune) bool { return !inLabel(c) })
	if end < 0 {
		end = len(p.rest)
	}
	key := p.rest[:end]
	if key == "" {
		return "", fmt.Errorf("a label is missing before %q", p.rest)
	}
	if len(key) > maxKey {
		return "", fmt.Errorf("a label is longer than %d characters", maxKey)
	}
	p.rest = p.rest[end:]
	p.space()
	return key, nil
}

func inLabel(c rune) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune("_./-", c)
}

// text := "'" … "'" | '"' … '"'
func (p *parser) text() (string, error) {
	if p.rest == "" || p.rest[0] != '\'' && p.rest[0] != '"' {
		return "", fmt.Errorf("a value in quotes is missing before %q", p.rest)
	}
	value, rest, ok := strings.Cut(p.rest[1:], p.rest[:1])
	if !ok {
		return "", errors.New("a quote is not closed")
	}
	p.rest = rest
	p.space()
	return value, nil
}

// set := "{" [ text { "," text } [ "," ] ] "}"
func (p *parser) set() ([]string, error) {
	if !p.symbol("{") {
		return nil, fmt.Errorf("a '{' is missing before %q", p.rest)
	}
	values := []string{}
	for !p.symbol("}") {
		v, err := p.text()
		if err != nil {
			return nil, err
		}
		values = append(values, v)
		if !p.symbol(",") && !strings.HasPrefix(p.rest, "}") {
			return nil, fmt.Errorf("a '}' is missing before %q", p.rest)
		}
	}
	return values, nil
}
