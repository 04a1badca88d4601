package fsm

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/need"
)

// Replicas compare bytes, so nothing that differs between two runs may decide anything in the states: no
// clock, no goroutine, no float, and no range over a map unless a comment on the line before says why its
// order does not matter. Who waits for changes is no part of the registry's state: Await may select.
func TestNothingInTheStatesDiffersBetweenReplicas(t *testing.T) {
	for _, name := range []string{"registry", "kv", "order"} {
		t.Run(name, func(t *testing.T) { testNothingDiffers(t, name) })
	}
}

func testNothingDiffers(t *testing.T, name string) {
	fset := token.NewFileSet()
	files := parsePackage(t, fset, name)
	info := &types.Info{Types: make(map[ast.Expr]types.TypeAndValue)}
	config := types.Config{Importer: importer.ForCompiler(fset, "source", nil)}
	need.Got(config.Check(name, fset, files, info))(t)
	for _, file := range files {
		commented := linesAfterComments(fset, file)
		ast.Inspect(file, func(n ast.Node) bool {
			if n == nil {
				return false
			}
			at := fset.Position(n.Pos())
			if why := differs(n, info); why != "" && (why != selects || at.Filename != filepath.Join("registry", "watchers.go")) {
				t.Errorf("%s: %s", at, why)
			}
			if rangesOverMap(n, info) && !commented[at.Line] {
				t.Errorf("%s: ranges over a map without a comment that says why its order does not matter", at)
			}
			return true
		})
	}
}

func parsePackage(t *testing.T, fset *token.FileSet, dir string) []*ast.File {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	need.That(t, err == nil && len(names) != 0, "the files of %s: %v", dir, err)
	names = slices.DeleteFunc(names, func(name string) bool { return strings.HasSuffix(name, "_test.go") })
	var files []*ast.File
	for _, name := range names {
		file := need.Got(parser.ParseFile(fset, name, nil, parser.ParseComments))(t)
		files = append(files, file)
	}
	return files
}

const selects = "selects"

// differs says what is wrong with a node, "" if nothing is.
func differs(n ast.Node, info *types.Info) string {
	switch n := n.(type) {
	case *ast.GoStmt:
		return "starts a goroutine"
	case *ast.SelectStmt:
		return selects
	case *ast.SelectorExpr:
		if pkg, ok := n.X.(*ast.Ident); ok && pkg.Name == "time" && slices.Contains([]string{"Now", "Since", "Until"}, n.Sel.Name) {
			return "reads the clock"
		}
	case ast.Expr:
		if basic, ok := info.TypeOf(n).(*types.Basic); ok && basic.Info()&types.IsFloat != 0 {
			return "computes with a float"
		}
	}
	return ""
}

func rangesOverMap(n ast.Node, info *types.Info) bool {
	loop, ok := n.(*ast.RangeStmt)
	if !ok {
		return false
	}
	_, ok = info.TypeOf(loop.X).Underlying().(*types.Map)
	return ok
}

func linesAfterComments(fset *token.FileSet, file *ast.File) map[int]bool {
	lines := make(map[int]bool)
	for _, c := range file.Comments {
		lines[fset.Position(c.End()).Line+1] = true
	}
	return lines
}
