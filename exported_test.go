package rollcall_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/need"
)

// TestGoClientHasASentenceForEveryExportedName: types, functions, methods, constants and variables. A
// group of constants may have one for all.
func TestGoClientHasASentenceForEveryExportedName(t *testing.T) {
	for _, dir := range []string{"client", "client/balance", "client/grpcresolver"} {
		names, err := filepath.Glob(dir + "/*.go")
		need.That(t, err == nil && len(names) != 0, "%s: %d files, %v", dir, len(names), err)
		positions := token.NewFileSet()
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file := need.Got(parser.ParseFile(positions, name, nil, parser.ParseComments))(t)
			for _, silent := range undocumented(file) {
				t.Errorf("%s: %s has no sentence", positions.Position(silent.Pos()), silent.Name)
			}
		}
	}
}

func undocumented(file *ast.File) (silent []*ast.Ident) {
	addSilent := func(name *ast.Ident, docs ...*ast.CommentGroup) {
		for _, d := range docs {
			if d != nil {
				return
			}
		}
		if name.IsExported() {
			silent = append(silent, name)
		}
	}
	for _, declared := range file.Decls {
		switch d := declared.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil || ast.IsExported(receiver(d)) {
				addSilent(d.Name, d.Doc)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					addSilent(s.Name, s.Doc, d.Doc)
				case *ast.ValueSpec:
					addSilent(s.Names[0], s.Doc, s.Comment, d.Doc)
				}
			}
		}
	}
	return silent
}

func receiver(f *ast.FuncDecl) string {
	kind := f.Recv.List[0].Type
	for {
		switch k := kind.(type) {
		case *ast.StarExpr:
			kind = k.X
		case *ast.IndexExpr: // of a type with a parameter
			kind = k.X
		case *ast.IndexListExpr:
			kind = k.X
		case *ast.Ident:
			return k.Name
		default:
			return ""
		}
	}
}
