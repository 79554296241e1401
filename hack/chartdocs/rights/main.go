// Command rights writes a table of the operator's rights, mode by mode, into SECURITY.md, from the
// roles that the chart renders. The purpose of a right is the comment above its rule.
//
//	rights HELM charts/cilium-pool-operator SECURITY.md
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// The table stands between these lines.
const begin, end = "<!-- rights: begin -->\n", "<!-- rights: end -->\n"

var modes = []string{"crd", "multi-pool", "delegated-plugin", "kubernetes"}

// switches are values that add or remove rights of the operator.
var switches = []string{
	"nodes.shortageTaint=KEY", "nodes.condition=false", "cilium.keepPodIPPools=false",
	"metrics.secure=false", "leaderElection.enabled=false",
}

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: rights HELM CHART PAGE")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "rights:", err)
		os.Exit(1)
	}
}

func run(helm, chart, path string) error {
	t := &table{rows: map[string]*row{}}
	for i, mode := range modes {
		if err := t.add(helm, chart, mode, i); err != nil {
			return err
		}
	}
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(page), begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		return fmt.Errorf("%s: no lines %q and %q to write between", path, begin, end)
	}
	return os.WriteFile(path, []byte(before+begin+t.String()+end+after), 0o644)
}

// right is a rule of a role for one resource.
type right struct {
	object, purpose string
	verbs           []string
}

// table has a row for each object, in the order of the roles.
type table struct {
	rows  map[string]*row
	order []string
}

type row struct {
	purposes []string
	cells    [4]cell // by mode
}

// cell are verbs, and the conditions that grant them; "": always.
type cell struct {
	verbs      map[string][]string // by condition
	conditions []string
}

func (c *cell) add(verb, condition string) {
	if c.verbs == nil {
		c.verbs = map[string][]string{}
	}
	if !slices.Contains(c.conditions, condition) {
		c.conditions = append(c.conditions, condition)
	}
	if !slices.Contains(c.verbs[condition], verb) {
		c.verbs[condition] = append(c.verbs[condition], verb)
	}
}

func (c *cell) String() string {
	if len(c.conditions) == 0 {
		return "-"
	}
	var parts []string
	for _, condition := range c.conditions {
		parts = append(parts, strings.TrimSpace(strings.Join(c.verbs[condition], ", ")+" "+condition))
	}
	return strings.Join(parts, "; ")
}

func (t *table) add(helm, chart, mode string, column int) error {
	byDefault, err := render(helm, chart, mode, "")
	if err != nil {
		return err
	}
	granted := verbsOf(byDefault)
	less, more := map[string]map[string]string{}, map[string]map[string]string{}
	all := byDefault
	for _, s := range switches {
		rights, err := render(helm, chart, mode, s)
		if err != nil {
			return err
		}
		with := verbsOf(rights)
		note(less, granted, with, "`"+s+"`")
		note(more, with, granted, "`"+s+"`")
		all = append(all, rights...)
	}
	for _, r := range all {
		t.addRight(r, column, less[r.object], more[r.object])
	}
	return nil
}

// note notes the verbs of a that b lacks.
func note(in map[string]map[string]string, a, b map[string][]string, why string) {
	for object, verbs := range a {
		for _, v := range verbs {
			if slices.Contains(b[object], v) {
				continue
			}
			if in[object] == nil {
				in[object] = map[string]string{}
			}
			in[object][v] = why
		}
	}
}

func (t *table) addRight(r right, column int, less, more map[string]string) {
	if t.rows[r.object] == nil {
		t.rows[r.object] = &row{}
		t.order = append(t.order, r.object)
	}
	row := t.rows[r.object]
	if !slices.Contains(row.purposes, r.purpose) {
		row.purposes = append(row.purposes, r.purpose)
	}
	for _, v := range r.verbs {
		condition := ""
		switch {
		case less[v] != "":
			condition = "unless " + less[v]
		case more[v] != "":
			condition = "with " + more[v]
		}
		row.cells[column].add(v, condition)
	}
}

func (t *table) String() string {
	var b strings.Builder
	b.WriteString("| object | calls | for |\n| --- | --- | --- |\n")
	for _, object := range t.order {
		row := t.rows[object]
		fmt.Fprintf(&b, "| %s | %s | %s |\n", object, row.calls(), strings.Join(row.purposes, " "))
	}
	return b.String()
}

// calls returns the verbs of a row. Modes are named if they differ.
func (r *row) calls() string {
	var calls []string
	by := map[string][]string{}
	for i := range r.cells {
		c := r.cells[i].String()
		if by[c] == nil {
			calls = append(calls, c)
		}
		by[c] = append(by[c], modes[i])
	}
	if len(calls) == 1 {
		return calls[0]
	}
	calls = slices.DeleteFunc(calls, func(c string) bool { return c == "-" })
	for i, c := range calls {
		calls[i] = strings.Join(by[c], ", ") + ": " + c
	}
	return strings.Join(calls, "<br>")
}

func verbsOf(rights []right) map[string][]string {
	verbs := map[string][]string{}
	for _, r := range rights {
		verbs[r.object] = append(verbs[r.object], r.verbs...)
	}
	return verbs
}

// own and cilium are the namespaces that roles are rendered for.
const own, cilium = "own", "cilium"

func render(helm, chart, mode, value string) ([]right, error) {
	args := []string{"template", "x", chart, "-n", own, "--show-only", "templates/rbac.yaml", "--set", "mode=" + mode + ",cilium.namespace=" + cilium}
	if value != "" {
		args = append(args, "--set", value)
	}
	if value == "leaderElection.enabled=false" {
		args = append(args, "--set", "replicas=1")
	}
	var stderr bytes.Buffer
	cmd := exec.Command(helm, args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("helm %s: %w\n%s", strings.Join(args, " "), err, &stderr)
	}
	return read(out)
}

// role holds the needed fields of a ClusterRole or Role.
type role struct {
	Metadata struct{ Namespace string }
	Rules    []yaml.Node
}

type rule struct {
	APIGroups     []string `yaml:"apiGroups"`
	Resources     []string
	ResourceNames []string `yaml:"resourceNames"`
	Verbs         []string
}

func read(out []byte) ([]right, error) {
	var rights []right
	d := yaml.NewDecoder(bytes.NewReader(out))
	for {
		var r role
		err := d.Decode(&r)
		if errors.Is(err, io.EOF) {
			return rights, nil
		}
		if err != nil {
			return nil, err
		}
		for i := range r.Rules {
			more, err := readRule(&r.Rules[i], r.Metadata.Namespace)
			if err != nil {
				return nil, err
			}
			rights = append(rights, more...)
		}
	}
}

func readRule(node *yaml.Node, namespace string) ([]right, error) {
	var r rule
	if err := node.Decode(&r); err != nil {
		return nil, err
	}
	purpose := strings.Join(strings.Fields(strings.ReplaceAll(node.HeadComment, "#", " ")), " ")
	if purpose == "" {
		return nil, fmt.Errorf("templates/rbac.yaml: no comment says what the rule for %v is for", r.Resources)
	}
	var rights []right
	for _, group := range r.APIGroups {
		for _, resource := range r.Resources {
			rights = append(rights, right{object: object(group, resource, r.ResourceNames, namespace), purpose: purpose, verbs: r.Verbs})
		}
	}
	return rights, nil
}

// object names the subject of a rule.
func object(group, resource string, names []string, namespace string) string {
	resource, subresource, _ := strings.Cut(resource, "/")
	if group != "" {
		resource += "." + group
	}
	if subresource != "" {
		resource += "/" + subresource
	}
	s := "`" + resource + "`"
	if len(names) > 0 {
		s += " `" + strings.Join(names, "`, `") + "`"
	}
	switch namespace {
	case own:
		s += " in its namespace"
	case cilium:
		s += " in Cilium's namespace"
	case "default":
		s += " in the namespace default"
	}
	return s
}
