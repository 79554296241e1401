package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net/netip"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
	"github.com/cilium-pool/cilium-pool-operator/pkg/controller/event"
	"github.com/cilium-pool/cilium-pool-operator/test/harness"
)

// source returns the syntax trees of a package's files, without its tests, by path.
func source(t *testing.T, dir string) map[string]*ast.File {
	t.Helper()
	parsed := sources(t, dir+"/")
	maps.DeleteFunc(parsed, func(file string, _ *ast.File) bool { return path.Dir(file) != dir })
	return parsed
}

// sources returns the syntax trees of all files of the program below some folders, by path.
func sources(t *testing.T, folders ...string) map[string]*ast.File {
	t.Helper()
	parsed := map[string]*ast.File{}
	for _, path := range files(t, func(name string) bool { return strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") }) {
		if slices.ContainsFunc(folders, func(folder string) bool { return strings.HasPrefix(path, folder) }) {
			parsed[path] = parse(t, path)
		}
	}
	if len(parsed) == 0 {
		t.Fatalf("no Go files below %v", folders)
	}
	return parsed
}

func parse(t *testing.T, path string) *ast.File {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path), nil, parser.SkipObjectResolution)
	harness.Must(t, err)
	return f
}

// inFunctions calls do with each node of each function, and the names of its file and function.
func inFunctions(parsed map[string]*ast.File, do func(file, function string, n ast.Node)) {
	for file, f := range parsed {
		for _, d := range f.Decls {
			if decl, ok := d.(*ast.FuncDecl); ok {
				ast.Inspect(decl, func(n ast.Node) bool {
					do(file, decl.Name.Name, n)
					return true
				})
			}
		}
	}
}

// constants returns the values of a package's string constants with a name, or a type's name, that
// starts with one of the prefixes.
func constants(t *testing.T, dir string, prefixes ...string) []string {
	t.Helper()
	var values []string
	for _, f := range source(t, dir) {
		for _, d := range f.Decls {
			if decl, ok := d.(*ast.GenDecl); ok && decl.Tok == token.CONST {
				for _, s := range decl.Specs {
					values = append(values, valuesOf(s.(*ast.ValueSpec), prefixes)...)
				}
			}
		}
	}
	if len(values) == 0 {
		t.Fatalf("%s has no constants %v", dir, prefixes)
	}
	return values
}

func valuesOf(spec *ast.ValueSpec, prefixes []string) []string {
	var values []string
	for i, name := range spec.Names {
		kind, _ := spec.Type.(*ast.Ident)
		for _, p := range prefixes {
			if !strings.HasPrefix(name.Name, p) && (kind == nil || kind.Name != p) {
				continue
			}
			if v, ok := text(spec.Values[i]); ok && v != "" {
				values = append(values, v)
			}
			break
		}
	}
	return values
}

func text(e ast.Expr) (string, bool) {
	literal, ok := e.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return "", false
	}
	v, err := strconv.Unquote(literal.Value)
	return v, err == nil
}

func TestEventsPage(t *testing.T) {
	page := read(t, "docs/reference/events.md")
	sameSet(t, "events", column(page, "Events", 0), append(constants(t, "pkg/controller/event", "Reason"), constants(t, "pkg/config", "Reason")...))
	for _, row := range table(page, "Events") {
		if want := event.Type(code(row[0])); row[2] != want {
			t.Errorf("event %s is %s on the page, and %s", row[0], row[2], want)
		}
	}
	for heading, columns := range map[string]int{
		"Events": 5, "Conditions of a PodIPPool": 5, "Conditions of a PodIPBlock": 4, "Condition of a PodIPPin": 3, "Condition of a Node": 5, "Reasons of DrainWaits": 3,
	} {
		for _, row := range table(page, heading) {
			if len(row) != columns || slices.Contains(row, "") {
				t.Errorf("%s: something is missing in %q", heading, row)
			}
		}
	}
	var documented []string
	for _, row := range table(page, "Conditions of a PodIPPool") {
		documented = append(documented, code(row[0])+" "+row[1]+" "+code(row[2]))
	}
	sameSet(t, "conditions of pools with status and reason", documented, poolConditions(t))
	sameSet(t, "conditions of pools", unique(column(page, "Conditions of a PodIPPool", 0)), constants(t, "api/v1alpha1", "Pool"))
	sameSet(t, "reasons of pools", unique(column(page, "Conditions of a PodIPPool", 2)), constants(t, "pkg/controller/pool", "Reason"))
	sameSet(t, "conditions of blocks", unique(column(page, "Conditions of a PodIPBlock", 0)), constants(t, "api/v1alpha1", "Block"))
	reasons := constants(t, "api/v1alpha1", "Reason", "Draining", "Published", "Conflict")
	sameSet(t, "reasons of blocks", column(page, "Conditions of a PodIPBlock", 1), reasons)
	sameSet(t, "reasons of blocks, as decided", constants(t, "pkg/expand", "Reason"), constants(t, "api/v1alpha1", "Reason"))
	sameSet(t, "condition and reasons of pins", append(unique(column(page, "Condition of a PodIPPin", 0)), column(page, "Condition of a PodIPPin", 1)...), constants(t, "api/v1alpha1", "Pin"))
	sameSet(t, "conditions of Nodes", unique(column(page, "Condition of a Node", 0)), constants(t, "api/v1alpha1", "NodeAddressShortage"))
	sameSet(t, "reasons of Nodes", column(page, "Condition of a Node", 2),
		append(constants(t, "pkg/controller/node", "reason"), constants(t, "api/v1alpha1", "NodePoolsExhausted")...))
	sameSet(t, "what a drain waits for", column(page, "Reasons of DrainWaits", 0), constants(t, "pkg/expand", "WaitReason"))
}

// poolConditions returns all conditions that the code sets on a pool, as "type status
// reason": the calls of trueFor, falseFor and unknownFor, by the function they are in.
func poolConditions(t *testing.T) []string {
	t.Helper()
	values := stringConstants(t, "api/v1alpha1")
	maps.Copy(values, stringConstants(t, "pkg/controller/pool"))
	kinds := map[string]string{
		"overlapCondition": "PoolOverlapping", "exhaustedCondition": "PoolExhausted", "readyCondition": "PoolReady", "windowCondition": "PoolWindow",
		"familiesCondition": "PoolFamiliesServed", "reservedCondition": "PoolReservedHeld", "masqueradedCondition": "PoolMasqueraded",
		"excludedCondition": "PoolCoversCluster", "ciliumPoolCondition": "PoolCiliumPool",
	}
	var found []string
	inFunctions(source(t, "pkg/controller/pool"), func(_, function string, n ast.Node) {
		note := func(status string, reason ast.Expr) {
			kind := values[kinds[function]]
			if kind == "" || values[name(reason)] == "" {
				t.Fatalf("cannot read a condition: %q, %q, %q", kind, status, name(reason))
			}
			found = append(found, kind+" "+status+" "+values[name(reason)])
		}
		if call, ok := n.(*ast.CallExpr); ok {
			status := map[string]string{"trueFor": "True", "falseFor": "False", "unknownFor": "Unknown"}[name(call.Fun)]
			if status != "" && function != "noSpec" {
				note(status, call.Args[0])
			}
		}
	})
	return unique(found)
}

// stringConstants returns a package's string constants by name.
func stringConstants(t *testing.T, dir string) map[string]string {
	t.Helper()
	values := map[string]string{}
	for _, f := range source(t, dir) {
		ast.Inspect(f, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Values) == len(spec.Names) {
				for i := range spec.Names {
					if v, ok := text(spec.Values[i]); ok {
						values[spec.Names[i].Name] = v
					}
				}
			}
			return true
		})
	}
	return values
}

// name returns the last part of an identifier.
func name(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

// Events and conditions are sent and set where the page's test looks for them.
func TestOnePlaceForEvents(t *testing.T) {
	where := map[string][]string{}
	inFunctions(sources(t, "pkg/controller/", "pkg/ciliumnode/", "pkg/crd/", "cmd/cilium-pool-operator/"), func(_, function string, n ast.Node) {
		if call, ok := n.(*ast.CallExpr); ok {
			where[name(call.Fun)] = append(where[name(call.Fun)], function)
		}
	})
	sameSet(t, "functions that send events", where["Eventf"], []string{"SendWith"})
	sameSet(t, "functions that set conditions", where["SetStatusCondition"], []string{"setCondition", "Reconcile", "SetBlockCondition"})
	if len(where["Event"]) > 0 {
		t.Errorf("%v send events", where["Event"])
	}
}

func unique(names []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(names)))
}

// Log stores and whois --at read the lines that tell who held an address: the page has all of them, with their fields.
func TestHolderLinesPage(t *testing.T) {
	documented := ""
	for _, row := range table(read(t, "docs/operations.md"), "Logs") {
		documented += strings.Join(row, " ")
	}
	want := constants(t, "pkg/config", "Block", "Address")
	for _, line := range []config.HolderLine{
		{Message: config.BlockFreed, Block: netip.MustParsePrefix("10.0.0.0/29"), Owner: "default/web"}, {Message: config.AddressKept, Address: netip.MustParseAddr("10.0.0.1")},
	} {
		for i, key := range line.KeysAndValues() {
			if i%2 == 0 {
				want = append(want, key.(string))
			}
		}
	}
	for _, word := range want {
		if !strings.Contains(documented, "`"+word+"`") {
			t.Errorf("docs/operations.md, Logs, has no %s", word)
		}
	}
}
