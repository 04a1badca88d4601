// Command refac renames declarations and splits packages over the whole module, other build tags included.
// refac rename < tsv   lines: pkg<TAB>Old|Type.Old<TAB>New   (pkg relative to the module)
// refac split PKG NEWPKG NEWNAME FILE...   moves files of PKG into package NEWPKG (relative path), exporting what crosses
package main

import (
	"bufio"
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
	"golang.org/x/tools/imports"
)

var module = "github.com/seed-20419f34/rollcall"

type edit struct {
	from, to int
	text     string
}

var edits = map[string]map[[2]int]string{}      // file -> range -> text
var newImports = map[string]map[string]string{} // file -> path -> name

func put(file string, from, to int, text string) {
	if edits[file] == nil {
		edits[file] = map[[2]int]string{}
	}
	edits[file][[2]int{from, to}] = text
}

type view struct {
	fset *token.FileSet
	pkgs []*packages.Package
}

func load() []view {
	var out []view
	for _, c := range []struct{ env, flags []string }{{nil, nil}, {nil, []string{"-tags=planted"}}, {[]string{"GOOS=darwin", "CGO_ENABLED=0"}, nil}} {
		fset := token.NewFileSet()
		ps, err := packages.Load(&packages.Config{Mode: packages.LoadSyntax | packages.NeedModule, Tests: true, Fset: fset, Env: append(os.Environ(), c.env...), BuildFlags: c.flags}, "./...")
		if err != nil {
			panic(err)
		}
		for _, p := range ps {
			for _, e := range p.Errors {
				fmt.Println("load:", e)
			}
		}
		out = append(out, view{fset, ps})
		if os.Getenv("ONE") != "" {
			break
		}
	}
	return out
}

func (v view) key(o types.Object) string {
	if o == nil || !o.Pos().IsValid() {
		return ""
	}
	p := v.fset.Position(o.Pos())
	return fmt.Sprintf("%s:%d:%d", p.Filename, p.Line, p.Column)
}

// full names an object: "T", "T.m" for package-level objects, methods and fields.
func decls(v view, p *packages.Package, f func(name string, o types.Object)) {
	sc := p.Types.Scope()
	for _, n := range sc.Names() {
		o := sc.Lookup(n)
		f(n, o)
		if tn, ok := o.(*types.TypeName); ok {
			if named, ok := tn.Type().(*types.Named); ok && !tn.IsAlias() {
				for i := range named.NumMethods() {
					f(n+"."+named.Method(i).Name(), named.Method(i))
				}
				if it, ok := named.Underlying().(*types.Interface); ok {
					for i := range it.NumExplicitMethods() {
						f(n+"."+it.ExplicitMethod(i).Name(), it.ExplicitMethod(i))
					}
				}
				members(n, named.Underlying(), f)
			}
		}
	}
}

func members(n string, t types.Type, f func(string, types.Object)) {
	switch t := t.(type) {
	case *types.Struct:
		for i := range t.NumFields() {
			f(n+"."+t.Field(i).Name(), t.Field(i))
			if !t.Field(i).Embedded() {
				members(n+"."+t.Field(i).Name(), t.Field(i).Type(), f)
			}
		}
	case *types.Slice:
		members(n, t.Elem(), f)
	case *types.Array:
		members(n, t.Elem(), f)
	case *types.Pointer:
		members(n, t.Elem(), f)
	case *types.Map:
		members(n, t.Elem(), f)
	}
}

func rel(p *packages.Package) string {
	path, _, _ := strings.Cut(p.PkgPath, " ")
	return strings.TrimPrefix(path, module+"/")
}

// renameKeys gives each ident whose object has a key in names a new name.
func renameKeys(vs []view, names map[string]string) {
	for _, v := range vs {
		embedded := map[string]string{} // field key -> new name
		for _, p := range v.pkgs {
			for id, o := range p.TypesInfo.Defs {
				if f, ok := o.(*types.Var); ok && f.IsField() && f.Embedded() {
					if u := p.TypesInfo.Uses[id]; u != nil {
						if n := names[v.key(u)]; n != "" {
							embedded[v.key(f)] = n
						}
					}
				}
			}
		}
		for _, p := range v.pkgs {
			do := func(id *ast.Ident, o types.Object) {
				n := names[v.key(origin(o))]
				if n == "" {
					n = embedded[v.key(origin(o))]
				}
				if n == "" || id.Name == "_" || id.Name == n {
					return
				}
				pos := v.fset.Position(id.Pos())
				if o.Name() != id.Name {
					return
				}
				put(pos.Filename, pos.Offset, pos.Offset+len(id.Name), n)
			}
			for id, o := range p.TypesInfo.Defs {
				if o != nil {
					do(id, o)
				}
			}
			for id, o := range p.TypesInfo.Uses {
				do(id, o)
			}
			for _, f := range p.Syntax { // doc comments
				for _, d := range f.Decls {
					docs(v, p, d, names)
				}
			}
		}
	}
}

func docs(v view, p *packages.Package, d ast.Decl, names map[string]string) {
	one := func(g *ast.CommentGroup, id *ast.Ident) {
		if g == nil {
			return
		}
		n := names[v.key(p.TypesInfo.Defs[id])]
		if n == "" {
			return
		}
		c := g.List[0]
		for _, prefix := range []string{"// ", "// A ", "// An ", "// The "} {
			if strings.HasPrefix(c.Text, prefix+id.Name+" ") || strings.HasPrefix(c.Text, prefix+id.Name+"'") || strings.HasPrefix(c.Text, prefix+id.Name+",") {
				pos := v.fset.Position(c.Pos())
				put(pos.Filename, pos.Offset+len(prefix), pos.Offset+len(prefix)+len(id.Name), n)
				return
			}
		}
	}
	switch d := d.(type) {
	case *ast.FuncDecl:
		one(d.Doc, d.Name)
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				one(d.Doc, s.Name)
				one(s.Doc, s.Name)
			case *ast.ValueSpec:
				one(d.Doc, s.Names[0])
				one(s.Doc, s.Names[0])
			}
		}
	}
}

func origin(o types.Object) types.Object {
	switch o := o.(type) {
	case *types.Func:
		return o.Origin()
	case *types.Var:
		return o.Origin()
	}
	return o
}

func export(n string) string { return strings.ToUpper(n[:1]) + n[1:] }

func apply(skip func(string) string) {
	for file, es := range edits {
		src, err := os.ReadFile(file)
		if err != nil {
			panic(err)
		}
		keys := make([][2]int, 0, len(es))
		for k := range es {
			keys = append(keys, k)
		}
		slices.SortFunc(keys, func(a, b [2]int) int {
			if a[0] != b[0] {
				return b[0] - a[0]
			}
			return b[1] - a[1]
		})
		for _, k := range keys {
			src = append(src[:k[0]:k[0]], append([]byte(es[k]), src[k[1]:]...)...)
		}
		if os.WriteFile(file, src, 0o644) != nil {
			panic(file)
		}
	}
}

func finish(files []string) {
	imports.LocalPrefix = module
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if add := newImports[file]; len(add) > 0 {
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, file, src, parser.ImportsOnly)
			if err != nil {
				fmt.Println(err)
				continue
			}
			end := fset.Position(f.Name.End()).Offset
			var b bytes.Buffer
			b.Write(src[:end])
			for path, name := range add {
				if name == filepath.Base(path) {
					fmt.Fprintf(&b, "\nimport %q", path)
				} else {
					fmt.Fprintf(&b, "\nimport %s %q", name, path)
				}
			}
			b.WriteString("\n")
			b.Write(src[end:])
			src = b.Bytes()
		}
		out, err := imports.Process(file, src, &imports.Options{Comments: true, TabIndent: true, TabWidth: 8})
		if err != nil {
			fmt.Println(err)
			out = src
		} else if o, err := format.Source(out); err == nil {
			out = o
		}
		os.WriteFile(file, out, 0o644)
	}
}

func rename() {
	want := map[string]string{}
	sc := bufio.NewScanner(os.Stdin)
	for sc.Scan() {
		f := strings.Fields(sc.Text())
		if len(f) == 3 && !strings.HasPrefix(f[0], "#") {
			want[f[0]+"\t"+f[1]] = f[2]
		}
	}
	vs := load()
	names := map[string]string{}
	found := map[string]bool{}
	for _, v := range vs {
		for _, p := range v.pkgs {
			decls(v, p, func(n string, o types.Object) {
				k := rel(p) + "\t" + n
				if to := want[k]; to != "" {
					names[v.key(o)] = to
					found[k] = true
					if !strings.Contains(n, ".") {
						if c := p.Types.Scope().Lookup(to); c != nil {
							fmt.Println("collision:", k, to)
						}
					}
				}
			})
		}
	}
	for k := range want {
		if !found[k] {
			fmt.Println("not found:", k)
		}
	}
	renameKeys(vs, names)
	apply(nil)
	var files []string
	for f := range edits {
		files = append(files, f)
	}
	finish(files)
	fmt.Println(len(files), "files changed")
}

func split(pkg, newPkg, newName string, list []string) {
	vs := load()
	cwd, _ := os.Getwd()
	moved := map[string]bool{}
	for _, f := range list {
		moved[filepath.Join(cwd, pkg, f)] = true
	}
	newPath := module + "/" + newPkg
	oldPath := module + "/" + pkg
	names := map[string]string{}
	crossing := map[string]bool{}
	oldName := ""
	type ref struct {
		v    view
		p    *packages.Package
		f    *ast.File
		id   *ast.Ident
		o    types.Object
		file string
		sel  bool
	}
	for _, v := range vs {
		for _, p := range v.pkgs {
			if strings.HasSuffix(p.ID, ".test") {
				continue
			}
			if rel(p) == pkg {
				oldName = p.Name
			}
			for _, f := range p.Syntax {
				file := v.fset.Position(f.FileStart).Filename
				inPkg := rel(p) == pkg // not the external test package
				inQ := moved[file]
				sels := map[*ast.Ident]*ast.SelectorExpr{}
				fieldKeys := map[*ast.Ident]bool{}
				ast.Inspect(f, func(n ast.Node) bool {
					if s, ok := n.(*ast.SelectorExpr); ok {
						sels[s.Sel] = s
					}
					if c, ok := n.(*ast.CompositeLit); ok {
						t := p.TypesInfo.TypeOf(c)
						if t != nil {
							if st, ok := t.Underlying().(*types.Struct); ok && len(c.Elts) > 0 {
								if _, kv := c.Elts[0].(*ast.KeyValueExpr); !kv && inPkg {
									for i := range st.NumFields() {
										fd := st.Field(i).Origin()
										at := v.fset.Position(fd.Pos()).Filename
										if filepath.Dir(at) == filepath.Join(cwd, pkg) && moved[at] != inQ && !fd.Exported() {
											names[v.key(fd)] = export(fd.Name())
											crossing["."+fd.Name()] = true
										}
									}
								}
							}
						}
					}
					return true
				})
				_ = fieldKeys
				ast.Inspect(f, func(n ast.Node) bool {
					id, ok := n.(*ast.Ident)
					if !ok {
						return true
					}
					o := p.TypesInfo.Uses[id]
					if o == nil {
						return true
					}
					o = origin(o)
					if o.Pkg() == nil {
						return true
					}
					if strings.TrimSuffix(o.Pkg().Path(), "_test") != oldPath && o.Pkg().Path() != oldPath {
						return true
					}
					at := v.fset.Position(o.Pos()).Filename
					if filepath.Dir(at) != filepath.Join(cwd, pkg) {
						return true
					}
					level := o.Parent() == o.Pkg().Scope()
					member := o.Parent() == nil
					if !level && !member {
						return true
					}
					if _, isPkg := o.(*types.PkgName); isPkg {
						return true
					}
					defQ := moved[at]
					name := o.Name()
					pos := v.fset.Position(id.Pos())
					if inPkg {
						if defQ == inQ {
							return true
						}
						if !o.Exported() {
							names[v.key(o)] = export(name)
							crossing[name] = true
							name = export(name)
						}
						if level {
							if s := sels[id]; s == nil {
								q := newName
								path := newPath
								if inQ {
									q = oldName
									path = oldPath
								}
								inner := p.Types.Scope().Innermost(id.Pos())
								if inner != nil {
									if _, c := inner.LookupParent(q, id.Pos()); c != nil {
										if _, ok := c.(*types.PkgName); !ok {
											fmt.Printf("shadowed: %s:%d: %s is %v\n", pos.Filename, pos.Line, q, c)
										}
									}
								}
								put(pos.Filename, pos.Offset, pos.Offset+len(id.Name), q+"."+name)
								if newImports[file] == nil {
									newImports[file] = map[string]string{}
								}
								newImports[file][path] = q
								if inQ {
									fmt.Printf("uses old: %s:%d %s\n", filepath.Base(file), pos.Line, o.Name())
								}
							}
						}
						return true
					}
					if defQ && level { // another package: p.X -> q.X
						if s := sels[id]; s != nil {
							x := s.X.(*ast.Ident)
							xp := v.fset.Position(x.Pos())
							if inner := p.Types.Scope().Innermost(id.Pos()); inner != nil {
								if _, c := inner.LookupParent(newName, id.Pos()); c != nil {
									if pn, ok := c.(*types.PkgName); !ok || pn.Imported().Path() != newPath {
										fmt.Printf("shadowed: %s:%d: %s is %v\n", xp.Filename, xp.Line, newName, c)
									}
								}
							}
							put(xp.Filename, xp.Offset, xp.Offset+len(x.Name), newName)
							if newImports[file] == nil {
								newImports[file] = map[string]string{}
							}
							newImports[file][newPath] = newName
						}
					}
					return true
				})
			}
		}
	}
	// methods of moved types in files that stay, and the other way round
	for _, v := range vs {
		for _, p := range v.pkgs {
			if rel(p) != pkg {
				continue
			}
			for _, f := range p.Syntax {
				file := v.fset.Position(f.FileStart).Filename
				for _, d := range f.Decls {
					fd, ok := d.(*ast.FuncDecl)
					if !ok || fd.Recv == nil {
						continue
					}
					fn, _ := p.TypesInfo.Defs[fd.Name].(*types.Func)
					if fn == nil {
						continue
					}
					t := fn.Type().(*types.Signature).Recv().Type()
					if pt, ok := t.(*types.Pointer); ok {
						t = pt.Elem()
					}
					if n, ok := t.(*types.Named); ok {
						if moved[v.fset.Position(n.Obj().Pos()).Filename] != moved[file] {
							fmt.Printf("METHOD APART: %s.%s in %s\n", n.Obj().Name(), fd.Name.Name, filepath.Base(file))
						}
					}
				}
			}
		}
	}
	fmt.Println("exported:", len(crossing), keysOf(crossing))
	if os.Getenv("DRY") != "" {
		return
	}
	quals := map[string]map[[2]int]string{}
	for f, es := range edits {
		quals[f] = es
	}
	edits = map[string]map[[2]int]string{}
	renameKeys(vs, names)
	for f, es := range quals {
		if edits[f] == nil {
			edits[f] = map[[2]int]string{}
		}
		for k, t := range es {
			edits[f][k] = t
		}
	}
	apply(nil)
	var files []string
	re := regexp.MustCompile(`(?m)^package ` + oldName + `\b`)
	os.MkdirAll(newPkg, 0o755)
	all := map[string]bool{}
	for f := range edits {
		all[f] = true
	}
	for f := range newImports {
		all[f] = true
	}
	for f := range moved {
		all[f] = true
	}
	for f := range all {
		if moved[f] {
			src, err := os.ReadFile(f)
			if err != nil {
				fmt.Println(err)
				continue
			}
			to := filepath.Join(cwd, newPkg, filepath.Base(f))
			os.WriteFile(f, re.ReplaceAll(src, []byte("package "+newName)), 0o644)
			if err := os.Rename(f, to); err != nil {
				panic(err)
			}
			newImports[to] = newImports[f]
			f = to
		}
		files = append(files, f)
	}
	finish(files)
	fmt.Println(len(files), "files changed")
}

func keysOf(m map[string]bool) (out []string) {
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return
}

func main() {
	if len(os.Args) < 2 {
		fmt.Println("refac rename < tsv (pkg, Old|Type.Old, New); refac split PKG NEWPKG NEWNAME FILE... (DRY=1 only says what would be exported; list test files too); ONE=1 skips other build tags")
		return
	}
	switch os.Args[1] {
	case "rename":
		rename()
	case "split":
		split(os.Args[2], os.Args[3], os.Args[4], os.Args[5:])
	}
}
