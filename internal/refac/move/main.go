// move DIR < tsv: each line "Decl|Type.*|Type.method<TAB>file.go" moves top-level declarations to a file of the package.
package main

import (
	"bufio"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"golang.org/x/tools/imports"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func names(d ast.Decl) (out []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			return []string{d.Name.Name}
		}
		t := d.Recv.List[0].Type
		for {
			switch x := t.(type) {
			case *ast.StarExpr:
				t = x.X
				continue
			case *ast.IndexExpr:
				t = x.X
				continue
			case *ast.IndexListExpr:
				t = x.X
				continue
			}
			break
		}
		n := t.(*ast.Ident).Name
		return []string{n + "." + d.Name.Name, n + ".*"}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				out = append(out, s.Name.Name, s.Name.Name+".*")
			case *ast.ValueSpec:
				for _, n := range s.Names {
					out = append(out, n.Name)
				}
			}
		}
	}
	return out
}

func main() {
	dir := os.Args[1]
	want := map[string]string{}
	sc := bufio.NewScanner(os.Stdin)
	for sc.Scan() {
		f := strings.Fields(sc.Text())
		if len(f) == 2 {
			want[f[0]] = f[1]
		}
	}
	found := map[string]bool{}
	files, _ := filepath.Glob(dir + "/*.go")
	type piece struct {
		text, pkg string
		imports   []string
	}
	add := map[string][]piece{}
	for _, file := range files {
		fset := token.NewFileSet()
		src, _ := os.ReadFile(file)
		f, err := parser.ParseFile(fset, file, src, parser.ParseComments)
		if err != nil {
			panic(err)
		}
		var imps []string
		for _, i := range f.Imports {
			imps = append(imps, string(src[fset.Position(i.Pos()).Offset:fset.Position(i.End()).Offset]))
		}
		type cut struct{ from, to int }
		var cuts []cut
		for _, d := range f.Decls {
			to := ""
			for _, n := range names(d) {
				if w, ok := want[n]; ok {
					found[n] = true
					if to == "" {
						to = w
					}
				}
			}
			if to == "" || to == filepath.Base(file) {
				continue
			}
			start := d.Pos()
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Doc != nil {
					start = d.Doc.Pos()
				}
			case *ast.GenDecl:
				if d.Doc != nil {
					start = d.Doc.Pos()
				}
			}
			a, b := fset.Position(start).Offset, fset.Position(d.End()).Offset
			for b < len(src) && src[b] != '\n' {
				b++
			}
			if b < len(src) {
				b++
			}
			cuts = append(cuts, cut{a, b})
			add[to] = append(add[to], piece{string(src[a:b]), f.Name.Name, imps})
		}
		slices.Reverse(cuts)
		for _, c := range cuts {
			src = append(src[:c.from:c.from], src[c.to:]...)
		}
		if len(cuts) > 0 {
			os.WriteFile(file, src, 0o644)
		}
	}
	for n := range want {
		if !found[n] {
			fmt.Println("not found:", n)
		}
	}
	for to, pieces := range add {
		path := filepath.Join(dir, to)
		src, err := os.ReadFile(path)
		if err != nil {
			src = []byte("package " + pieces[0].pkg + "\n")
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, path, src, parser.ParseComments|parser.ImportsOnly)
		if err != nil {
			panic(err)
		}
		have := map[string]bool{}
		for _, i := range f.Imports {
			have[string(src[fset.Position(i.Pos()).Offset:fset.Position(i.End()).Offset])] = true
		}
		var b strings.Builder
		end := fset.Position(f.Name.End()).Offset
		b.Write(src[:end])
		b.WriteString("\n")
		for _, p := range pieces {
			for _, i := range p.imports {
				if !have[i] {
					have[i] = true
					fmt.Fprintf(&b, "import %s\n", i)
				}
			}
		}
		b.Write(src[end:])
		for _, p := range pieces {
			b.WriteString("\n" + p.text)
		}
		os.WriteFile(path, []byte(b.String()), 0o644)
	}
	imports.LocalPrefix = "github.com/seed-20419f34/rollcall"
	files, _ = filepath.Glob(dir + "/*.go")
	for _, file := range files {
		src, _ := os.ReadFile(file)
		out, err := imports.Process(file, src, &imports.Options{Comments: true, TabIndent: true, TabWidth: 8})
		if err != nil {
			fmt.Println(err)
			continue
		}
		fset := token.NewFileSet()
		f, _ := parser.ParseFile(fset, file, out, parser.ParseComments)
		if len(f.Decls) == 0 && len(f.Comments) == 0 || len(f.Decls) == 0 && f.Doc == nil {
			fmt.Println("now empty, removed:", file)
			os.Remove(file)
			continue
		}
		if string(out) != string(src) {
			os.WriteFile(file, out, 0o644)
		}
	}
}
