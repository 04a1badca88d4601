package replication

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm"
	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// stateRules reads the source of the operations' rules: the possible outcomes of an operation are those that its rule
// names, and those that the functions it calls name.
type stateRules struct {
	info   types.Info
	bodies map[types.Object]*ast.FuncDecl
	read   map[string]*types.Package
}

// Import implements types.Importer. Packages beside the state machines are empty, and names missing from them are no
// error.
func (r *stateRules) Import(name string) (*types.Package, error) {
	if r.read[name] == nil {
		r.read[name] = types.NewPackage(name, path.Base(name))
		r.read[name].MarkComplete()
	}
	return r.read[name], nil
}

const stateModule = "github.com/seed-20419f34/rollcall/fsm/"

func readStateRules(t *testing.T) *stateRules {
	t.Helper()
	r := &stateRules{
		info:   types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}, Types: map[ast.Expr]types.TypeAndValue{}},
		bodies: map[types.Object]*ast.FuncDecl{}, read: map[string]*types.Package{},
	}
	fset, config := token.NewFileSet(), types.Config{Importer: r, Error: func(error) {}}
	for _, dir := range []string{"codec", "order", "access", "catalog", "registry", "kv"} {
		var files []*ast.File
		for _, name := range need.Got(filepath.Glob("../fsm/" + dir + "/*.go"))(t) {
			if !strings.HasSuffix(name, "_test.go") && !strings.HasSuffix(name, "_next.go") && !strings.HasSuffix(name, "_skip.go") {
				files = append(files, need.Got(parser.ParseFile(fset, name, nil, 0))(t))
			}
		}
		r.read[stateModule+dir], _ = config.Check(stateModule+dir, fset, files, &r.info)
		for _, file := range files {
			for _, d := range file.Decls {
				if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
					r.bodies[r.info.Defs[f.Name]] = f
				}
			}
		}
	}
	return r
}

// method finds a method by its package, its type and its name.
func (r *stateRules) method(dir, typ, name string) types.Object {
	of := r.read[stateModule+dir].Scope().Lookup(typ)
	if of == nil {
		return nil
	}
	m, _, _ := types.LookupFieldOrMethod(of.Type(), true, of.Pkg(), name)
	return m
}

// of returns the outcomes of a row, and the patterns of its refusals: with must, those that it must have, otherwise
// all that it can have.
func (r *stateRules) of(row stateRow, must bool) map[string]bool {
	found, done := map[string]bool{}, map[types.Object]bool{}
	dir, name := "registry", "perform"
	if strings.HasPrefix(row.name, "kv.") {
		dir, name = "kv", "apply"
	}
	todo := []types.Object{r.method(dir, reflect.TypeOf(row.zero).Name(), name)}
	if _, once := row.zero.(kv.Once); once && !must { // performs any of the others
		for _, other := range kv.Operations.Rows() {
			todo = append(todo, r.method("kv", other.Type, name))
		}
	}
	for len(todo) > 0 {
		f := todo[0]
		todo = todo[1:]
		if r.bodies[f] == nil { // of an interface
			if f = r.method("registry", "Registry", f.Name()); r.bodies[f] == nil {
				continue
			}
		}
		// Package access tests what makes a role or token valid.
		pkg := f.Pkg().Name()
		skip := must && (f.Name() == "Validate" || pkg == "access" && row.name != "kv.access")
		if !done[f] && !skip && pkg != "codec" && !strings.EqualFold(f.Name(), "fields") {
			done[f] = true
			todo = append(todo, r.names(r.bodies[f].Body, found, pkg != "catalog")...)
		}
	}
	maps.DeleteFunc(found, func(what string, _ bool) bool {
		return statesNever[what] && must || dir == "kv" && !strings.Contains(what, " ") && strings.ToLower(what) != what || dir != "kv" && strings.Contains(what, " ") || row.name == "kv.key" && keysSayNot.MatchString(what)
	})
	return found
}

// names adds the outcomes and texts of a body, and returns the functions that it names. An outcome that is only
// compared with does not count.
func (r *stateRules) names(body ast.Node, found map[string]bool, counts bool) (called []types.Object) {
	visit := func(nodes []ast.Node, counts bool) {
		for _, n := range nodes {
			called = append(called, r.names(n, found, counts)...)
		}
	}
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CaseClause:
			for _, e := range n.List {
				visit([]ast.Node{e}, false)
			}
			for _, s := range n.Body {
				visit([]ast.Node{s}, counts)
			}
			return false
		case *ast.CallExpr:
			if id, ok := n.Fun.(*ast.Ident); ok && id.Name == "panic" {
				return false
			}
		case *ast.BinaryExpr:
			if text := r.text(n); n.Op == token.ADD && strings.Contains(text, " ") && counts {
				found[text] = true
				counts := found
				visit([]ast.Node{n.X, n.Y}, false)
				found = counts
				return false
			}
			if n.Op == token.EQL || n.Op == token.NEQ {
				visit([]ast.Node{n.X, n.Y}, false)
				return false
			}
		case *ast.CompositeLit:
			if t := r.info.Types[n].Type; t != nil && strings.HasSuffix(t.String(), "kv.Result") {
				switch keys := fmt.Sprint(keysOf(n)); {
				case strings.Contains(keys, "OK"):
					found["done"] = true
				case keys == "[]":
					found["no"] = true
				case keys == "[Fence]":
					found["no, fence"] = true
				}
			}
		case *ast.BasicLit:
			if text := r.text(n); strings.Contains(text, " ") && counts {
				found[text] = true
			}
		case *ast.Ident:
			switch used := r.info.Uses[n].(type) {
			case *types.Var:
				if used.IsField() && used.Name() == "Place" {
					found["queued"] = true
				}
			case *types.Func:
				called = append(called, used)
			case *types.Const:
				if strings.HasSuffix(used.Type().String(), "registry.Outcome") && counts {
					found[used.Name()] = true
				} else if text := r.text(n); strings.Contains(text, " ") && counts {
					found[text] = true
				}
			}
		}
		return true
	})
	return called
}

// keysOf returns the names of the fields that a literal sets.
func keysOf(lit *ast.CompositeLit) (keys []string) {
	for _, e := range lit.Elts {
		if pair, ok := e.(*ast.KeyValueExpr); ok {
			keys = append(keys, fmt.Sprint(pair.Key))
		}
	}
	return keys
}

// text returns the pattern of a text in the source, with %v for what is not written out; "" if it is not a text.
func (r *stateRules) text(e ast.Expr) string {
	if v := r.info.Types[e].Value; v != nil && v.Kind() == constant.String {
		return constant.StringVal(v)
	}
	if sum, ok := e.(*ast.BinaryExpr); ok && sum.Op == token.ADD {
		if a, b := r.text(sum.X), r.text(sum.Y); a+b != "" {
			return cmp.Or(a, "%v") + cmp.Or(b, "%v")
		}
	}
	return ""
}

// stateVerb matches a verb of a format.
var stateVerb = regexp.MustCompile(`%[.0-9]*[a-z]`)

// writtenAs returns which of the written patterns matches a text that was returned.
func writtenAs(text string, written map[string]bool) (pattern string) {
	for _, w := range slices.Sorted(maps.Keys(written)) {
		expression := stateVerb.ReplaceAllString(regexp.QuoteMeta(strings.ReplaceAll(w, "%%", "%")), "(?s:.*)")
		if (pattern == "" || statesNever[pattern] || len(w) > len(pattern) && !statesNever[w]) && regexp.MustCompile("^"+expression+"$").MatchString(text) {
			pattern = w
		}
	}
	return pattern
}

// checkStatesSeen prints the outcomes of each operation, and fails for those that are possible and never occurred.
func checkStatesSeen(t *testing.T, seen map[string]map[string]int) {
	t.Helper()
	rules := readStateRules(t)
	var text strings.Builder
	for _, row := range stateRows() {
		can, must := rules.of(row, false), rules.of(row, true)
		counts := map[string]int{}
		for outcome, n := range seen[row.name] {
			if _, why, refused := strings.Cut(outcome, ": "); refused {
				outcome = cmp.Or(writtenAs(why, must), writtenAs(why, can))
				expect.That(t, outcome != "", "%s was refused, and its rule does not name the reason: %s", row.name, why)
			}
			counts[outcome] += n
			if outcome == "done, no change" {
				delete(must, "done")
			}
		}
		fmt.Fprintf(&text, "%s:\n", row.name)
		for _, outcome := range slices.Sorted(maps.Keys(counts)) {
			fmt.Fprintf(&text, "    %7d %s\n", counts[outcome], outcome)
		}
		for _, outcome := range slices.Sorted(maps.Keys(must)) {
			expect.That(t, counts[outcome] != 0, "%s can be, and never was: %s", row.name, outcome)
		}
	}
	t.Log("\n" + text.String())
}

// keysSayNot matches reasons that only transactions give: they say that an operation was not done.
var keysSayNot = regexp.MustCompile(`^(failed|key) `)

// statesNever has texts that are no refusals, or that belong to bounds a small state does not reach, which
// fsm/applybounds_test.go tests.
var statesNever = map[string]bool{
	"check %q of node %q": true, "node %q": true, "check %q on node %q": true, "service %q on node %q": true, "%q %q": true, "%w: %w": true,
	"The status is %v": true, "operation of coordination of unknown kind %d": true,
	"%q does not begin with a CIDR such as 10.0.0.0/8 or [fd00::/8]": true,
	"%q has no port from 1 to 65535, or * for any":                   true,
	"%q has no port; write 10.0.0.0/8:8080, or 10.0.0.0/8:* for any": true,
	"TooMany": true, "failed to set %s, %s": true, "failed to set %s, a service may have %d checks and a node itself %d": true,
	"%s has %d sessions and what these hold, and may have no more: they would all end at once":                                                true,
	"session %q has %d keys, locks, semaphores and places in queues, and may have no more: release some, or use a further session":            true,
	"%d sessions wait for %q, and no more may: try again when there are fewer":                                                                true,
	"a transaction may delete %d keys by prefixes and by the ends of sessions; delete some before it":                                         true,
	"the operations of a transaction may have %d alias checks follow, or take %d steps to count them; use several":                            true,
	"a transaction may make %d changes of nodes and services, all services of a node whose status or address it changes counted; use several": true,
	"failed to delete %s, it has more than %d services and checks of them, the most that go in one transaction; delete some before it":        true,
}

// stateOutcomes names the outcomes.
var stateOutcomes = map[registry.Outcome]string{
	registry.Done: "Done", registry.NotFound: "NotFound", registry.Newer: "Newer", registry.Older: "Older", registry.KeptExisting: "KeptExisting",
	registry.DeadHandle: "DeadHandle", registry.Refused: "Refused", registry.UnknownService: "UnknownService", registry.NameTaken: "NameTaken",
	registry.NoTTL: "NoTTL", registry.TooManyChecks: "TooManyChecks", registry.AddressTaken: "AddressTaken", registry.CheckTaken: "CheckTaken",
	registry.Revoked: "Revoked", registry.TooMany: "TooMany", registry.Held: "Held",
}

// outcomeOf names the outcome of an operation.
func outcomeOf(it fsm.Item, r registry.Result, c kv.Result) string {
	if it.KV == nil {
		return stateOutcomes[r.Outcome]
	}
	switch {
	case c.Revoked:
		return "Revoked"
	case c.Refusal != "":
		return "refused: " + c.Refusal
	case len(c.Errors) > 0:
		return "failed: " + c.Errors[0].What
	case c.Excess != kv.NoExcess:
		return "excess"
	case c.OK && c.Index != 0:
		return "done"
	case c.OK:
		return "done, no change"
	case c.Place > 0:
		return "queued"
	case c.Fence != 0:
		return "no, fence"
	}
	return "no"
}

// changesNothing reports whether an operation with an outcome must have no effect. A refused restore is dropped, a
// result that is kept is kept also for a refusal, and whoever asks for a permit or leaves a queue moves it on.
func changesNothing(it fsm.Item, outcome string) bool {
	switch it.KV.(type) {
	case nil:
		switch _, cancel := it.Op.(registry.Cancel); outcome {
		case "NotFound":
			return !cancel // which is recorded all the same
		case "DeadHandle", "Refused", "UnknownService", "NameTaken", "NoTTL", "TooManyChecks", "AddressTaken", "CheckTaken", "Revoked", "TooMany":
			return true
		}
		return false
	case kv.Restore, kv.Once:
		return outcome == "Revoked"
	case kv.AcquirePermit, kv.LeaveQueue:
		return outcome == "Revoked" || strings.HasPrefix(outcome, "refused")
	}
	return !strings.HasPrefix(outcome, "done")
}
