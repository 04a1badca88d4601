package fsm

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// Replicas compare bytes, so nothing that differs between two runs may decide anything in the states: no
// clock, no goroutine, no float, and no range over a map unless a comment on the line before says why its
// order does not matter. Waiting for changes is no part of the registry's state: Await may select.
func TestStateMachineHasNothingThatDiffersBetweenReplicas(t *testing.T) {
	for _, name := range []string{"registry", "kv", "order"} {
		t.Run(name, func(t *testing.T) { testNothingDiffers(t, name) })
	}
}

func testNothingDiffers(t *testing.T, name string) {
	read := need.Got(packages.Load(&packages.Config{Mode: packages.LoadSyntax}, "./"+name))(t)[0]
	need.That(t, len(read.Errors) == 0 && len(read.Syntax) > 0, "package %s: %v", name, read.Errors)
	fset, info := read.Fset, read.TypesInfo
	for _, file := range read.Syntax {
		commented := linesAfterComments(fset, file)
		ast.Inspect(file, func(n ast.Node) bool {
			if n == nil {
				return false
			}
			at := fset.Position(n.Pos())
			why := differs(n, info)
			expect.That(t, why == "" || why == selects && strings.HasSuffix(at.Filename, "/registry/watchers.go"), "%s: %s", at, why)
			expect.That(t, !rangesOverMap(n, info) || commented[at.Line],
				"%s: ranges over a map without a comment that says why its order does not matter", at)
			return true
		})
	}
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
