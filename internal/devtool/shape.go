package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/doc"
	"go/token"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

func report(w io.Writer, shapes []*shape, verbose string, docs bool) error {
	i := slices.IndexFunc(shapes, func(s *shape) bool { return s.path == verbose })
	switch {
	case docs:
		for _, s := range shapes {
			fmt.Fprintf(w, "%-26s %s\n", s.path, s.doc)
		}
	case verbose == "":
		printRows(w, shapes)
		printTotals(w, shapes)
	case i < 0:
		return fmt.Errorf("no package %s in this module", verbose)
	default:
		printRows(w, shapes[i:i+1])
		shapes[i].print(w)
	}
	return nil
}

// The limits that the project keeps to.
const (
	maxFiles   = 45
	maxAgainst = 10 // percent of a package's uses
	maxLayers  = 8
	maxMedian  = 12 // lines of a function
	maxLongest = 60
)

func overLimits(shapes []*shape) (over []error) {
	var functions []function
	for _, s := range shapes {
		functions = append(functions, s.functions...)
		if len(s.files) > maxFiles {
			over = append(over, fmt.Errorf("%s has %d files; a folder has at most %d", s.path, len(s.files), maxFiles))
		}
		if s.share() > maxAgainst {
			over = append(over, fmt.Errorf("in %s %.0f %% of the uses between files run against the order; at most %d %% may (-v %s shows them)", s.path, s.share(), maxAgainst, s.path))
		}
		if s.layers() > maxLayers {
			over = append(over, fmt.Errorf("%s has %d layers of files; a package has at most %d (-v %s shows them)", s.path, s.layers(), maxLayers, s.path))
		}
		if s.doc == "" {
			over = append(over, fmt.Errorf("package %s has no doc", s.path))
		}
		for _, f := range s.functions {
			if f.lines > maxLongest {
				over = append(over, fmt.Errorf("%s of %s has %d lines; a function has at most %d", f.name, s.path, f.lines, maxLongest))
			}
		}
	}
	if m := median(functions); m.lines > maxMedian {
		over = append(over, fmt.Errorf("the median function has %d lines; at most %d are meant", m.lines, maxMedian))
	}
	return over
}

// load measures the packages below the working directory.
func load() (shapes []*shape, err error) {
	read, err := packages.Load(&packages.Config{Mode: packages.LoadSyntax | packages.NeedModule}, "./...")
	if err != nil {
		return nil, fmt.Errorf("load packages: %w", err)
	}
	for _, p := range read {
		if len(p.Errors) > 0 {
			return nil, fmt.Errorf("package %s: %w", p.PkgPath, p.Errors[0])
		}
		path := strings.TrimPrefix(p.PkgPath, p.Module.Path+"/")
		if len(p.Syntax) > 0 && !strings.HasPrefix(path, "docs/examples/") {
			shapes = append(shapes, measure(path, p))
		}
	}
	slices.SortFunc(shapes, func(a, b *shape) int { return cmp.Compare(a.path, b.path) })
	return shapes, nil
}

// shape is the inner order of one package. Files go by their index in files.
type shape struct {
	path, doc string
	files     []string
	functions []function
	names     map[pair][]string // names by which a pair's user uses the other file: one for each use
	order     []int
	layer     []int  // of each file; the lowest is 1
	against   []pair // pairs that run against the order
}

type pair struct{ user, used int }

type function struct {
	lines      int
	name, path string
}

func (f function) String() string {
	return fmt.Sprintf("%4d lines, such as %s of %s", f.lines, f.name, f.path)
}

func byLines(a, b function) int {
	return cmp.Or(cmp.Compare(a.lines, b.lines), cmp.Compare(a.path, b.path))
}

func median(functions []function) function {
	sorted := slices.SortedFunc(slices.Values(functions), byLines)
	return sorted[len(sorted)/2]
}

func measure(path string, p *packages.Package) *shape {
	s := &shape{path: path, names: map[pair][]string{}}
	where := map[*token.File]int{}
	for _, syntax := range p.Syntax {
		if file := p.Fset.File(syntax.FileStart); !ast.IsGenerated(syntax) {
			where[file] = len(s.files)
			s.files = append(s.files, filepath.Base(file.Name()))
			s.doc = cmp.Or(s.doc, new(doc.Package).Synopsis(syntax.Doc.Text()))
			s.addFunctions(file, syntax.Decls)
		}
	}
	for name, object := range p.TypesInfo.Uses {
		user, ours := where[p.Fset.File(name.Pos())]
		used, theirs := where[p.Fset.File(object.Pos())]
		if ours && theirs && user != used {
			s.names[pair{user, used}] = append(s.names[pair{user, used}], name.Name)
		}
	}
	s.arrange()
	return s
}

func (s *shape) addFunctions(file *token.File, declared []ast.Decl) {
	for _, d := range declared {
		if f, ok := d.(*ast.FuncDecl); ok {
			s.functions = append(s.functions, function{file.Line(f.End()) - file.Line(f.Pos()) + 1, f.Name.Name, s.path})
		}
	}
}

// cost returns the cost of placing a file before one that it uses.
func (s *shape) cost(user, used int) int { return len(s.names[pair{user, used}]) }

// arrange puts first the files that reach few others: a file's component reaches as many as the file, and what it
// uses outside of it reaches fewer.
func (s *shape) arrange() {
	groups := make([][]int, len(s.files)+1)
	for f := range s.files {
		reached := map[int]bool{}
		s.reach(f, reached)
		groups[len(reached)] = append(groups[len(reached)], f)
	}
	for _, group := range groups {
		s.order = append(s.order, s.greedy(group)...)
	}
	for s.improve() {
	}
	s.layer = make([]int, len(s.files))
	for i, f := range s.order {
		for j, used := range s.order {
			switch {
			case s.cost(f, used) == 0:
			case j < i:
				s.layer[f] = max(s.layer[f], s.layer[used])
			default:
				s.against = append(s.against, pair{f, used})
			}
		}
		s.layer[f]++
	}
}

// reach adds a file and those that it uses, directly or not.
func (s *shape) reach(f int, reached map[int]bool) {
	reached[f] = true
	for used := range s.files {
		if !reached[used] && s.cost(f, used) > 0 {
			s.reach(used, reached)
		}
	}
}

// greedy puts first a file that uses none of the rest, last one that none of them uses, or otherwise first the one
// whose uses by the rest most exceed its own.
func (s *shape) greedy(rest []int) []int {
	if len(rest) == 0 {
		return nil
	}
	next, most := 0, math.MinInt
	for i, f := range rest {
		uses, used := 0, 0
		for _, other := range rest {
			uses, used = uses+s.cost(f, other), used+s.cost(other, f)
		}
		if used == 0 && uses > 0 {
			return append(s.greedy(slices.Delete(rest, i, i+1)), f)
		}
		if uses == 0 {
			used = math.MaxInt
		}
		if used-uses > most {
			next, most = i, used-uses
		}
	}
	f := rest[next]
	return append([]int{f}, s.greedy(slices.Delete(rest, next, next+1))...)
}

// improve moves each file once to where it costs least, and reports whether any moved.
func (s *shape) improve() (moved bool) {
	for i, f := range s.order {
		best, least := i, 0
		for _, step := range []int{-1, 1} {
			for j, cost := i+step, 0; j >= 0 && j < len(s.order); j += step {
				cost += step * (s.cost(s.order[j], f) - s.cost(f, s.order[j]))
				if cost < least {
					best, least = j, cost
				}
			}
		}
		s.order = slices.Insert(slices.Delete(s.order, i, i+1), best, f)
		moved = moved || best != i
	}
	return moved
}

func (s *shape) layers() int { return slices.Max(append(s.layer, 0)) }

// uses counts the uses between the package's files.
func (s *shape) uses() (uses int) {
	for _, names := range s.names {
		uses += len(names)
	}
	return uses
}

// share returns the percentage of the uses that run against the order.
func (s *shape) share() float64 {
	against := 0
	for _, p := range s.against {
		against += len(s.names[p])
	}
	return 100 * float64(against) / float64(max(1, s.uses()))
}

func printRows(w io.Writer, shapes []*shape) {
	fmt.Fprintln(w, "package                    files  pairs    uses  against  layers")
	for _, s := range shapes {
		fmt.Fprintf(w, "%-26s %5d  %5d  %6d  %5.0f %%  %6d\n", s.path, len(s.files), len(s.names), s.uses(), s.share(), s.layers())
	}
}

func printTotals(w io.Writer, shapes []*shape) {
	var functions []function
	var silent []string
	for _, s := range shapes {
		functions = append(functions, s.functions...)
		if s.doc == "" {
			silent = append(silent, s.path)
		}
	}
	largest := slices.MaxFunc(shapes, func(a, b *shape) int { return cmp.Compare(len(a.files), len(b.files)) })
	worst := slices.MaxFunc(shapes, func(a, b *shape) int { return cmp.Compare(a.share(), b.share()) })
	highest := slices.MaxFunc(shapes, func(a, b *shape) int { return cmp.Compare(a.layers(), b.layers()) })
	fmt.Fprintf(w, "\nlargest folder    %4d files, %s\n", len(largest.files), largest.path)
	fmt.Fprintf(w, "most against      %4.0f %% of uses, %s\n", worst.share(), worst.path)
	fmt.Fprintf(w, "most layers       %4d, %s\n", highest.layers(), highest.path)
	fmt.Fprintf(w, "median function   %s\n", median(functions))
	fmt.Fprintf(w, "longest function  %s\n", slices.MaxFunc(functions, byLines))
	fmt.Fprintf(w, "without a doc     %4d packages %s\n", len(silent), strings.Join(silent, " "))
}

func (s *shape) print(w io.Writer) {
	for layer := 1; layer <= s.layers(); layer++ {
		fmt.Fprintf(w, "\nlayer %d:", layer)
		for _, f := range s.order {
			if s.layer[f] == layer {
				fmt.Fprintf(w, " %s", s.files[f])
			}
		}
	}
	fmt.Fprintf(w, "\n\nagainst the order:\n")
	for _, p := range s.against {
		slices.Sort(s.names[p])
		fmt.Fprintf(w, "%s (%d) uses %s (%d) %d times: %s\n", s.files[p.user], s.layer[p.user], s.files[p.used], s.layer[p.used],
			len(s.names[p]), strings.Join(slices.Compact(s.names[p]), " "))
	}
}
