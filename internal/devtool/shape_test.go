package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func shapeOf(t *testing.T, sources ...string) *shape {
	t.Helper()
	p := &packages.Package{Fset: token.NewFileSet(), TypesInfo: &types.Info{Uses: map[*ast.Ident]types.Object{}}}
	for i, source := range sources {
		name := fmt.Sprintf("%c.go", 'a'+i)
		p.Syntax = append(p.Syntax, need.Got(parser.ParseFile(p.Fset, name, "package made\n"+source, parser.ParseComments))(t))
	}
	need.Got(new(types.Config).Check("made", p.Fset, p.Syntax, p.TypesInfo))(t)
	return measure("made", p)
}

func TestShapeCountsPairsAndLayers(t *testing.T) {
	for _, tt := range []struct {
		name    string
		sources []string
		pairs   int
		against []pair
		layers  []int // of a.go, b.go and so on
	}{
		{"one file", []string{`func A() { A() }`}, 0, nil, []int{1}},
		{"two that know nothing of each other", []string{`var A int`, `var B int`}, 0, nil, []int{1, 1}},
		{"a cycle of two: the fewer uses run against the order",
			[]string{`func A() { B(); B() }`, `func B() { A() }`}, 2, []pair{{1, 0}}, []int{2, 1}},
		{"a chain of three", []string{`func A() { B() }`, `func B() { C() }`, `func C() {}`}, 2, nil, []int{3, 2, 1}},
		{"a cycle of three", []string{`func A() { B(); B() }`, `func B() { C(); C() }`, `func C() { A() }`}, 3, []pair{{2, 0}}, []int{3, 2, 1}},
		{"a cycle of two above a cycle of two",
			[]string{`func A() { B(); B(); C() }`, `func B() { A(); C() }`, `func C() { D(); D() }`, `func D() { C() }`},
			6, []pair{{3, 2}, {1, 0}}, []int{4, 3, 2, 1}},
		{"one use of two pairs against the order, not three of one pair",
			[]string{`func A() { B(); C() }`, `func B() { A(); A(); A() }`, `func C() { B() }`}, 4, []pair{{0, 1}, {0, 2}}, []int{1, 2, 3}},
		{"a method and a field are used where they are declared",
			[]string{`var size = whole.size() + whole.width`, `func (b box[K]) size() int { return b.width }`,
				`type box[K any] struct{ width int }; var whole box[int]`}, 3, nil, []int{3, 2, 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := shapeOf(t, tt.sources...)
			expect.Equal(t, len(s.names), tt.pairs, "pairs are")
			expect.Slice(t, s.against, tt.against, "against the order run")
			expect.Slice(t, s.layer, tt.layers, "layers are")
		})
	}
}

func TestShapeReportsPackagesAndTotals(t *testing.T) {
	shapes := []*shape{shapeOf(t, "func A() { B(); B() }", "func B() {\n\tA()\n}")}
	for asked, want := range map[string]string{
		"":     "made                           2      2       3     33 %       2\n",
		"made": "\nlayer 1: b.go\nlayer 2: a.go\n\nagainst the order:\nb.go (1) uses a.go (2) 1 times: A\n",
	} {
		var out strings.Builder
		need.OK(t, report(&out, shapes, asked, false))
		expect.That(t, strings.Contains(out.String(), want), "-v %q prints\n%s\nwant in it\n%s", asked, out.String(), want)
	}
	expect.ErrorSays(t, report(nil, shapes, "unmade", false), "no package unmade", "the error is")
}

func TestShapeNamesLimitsThatAreBroken(t *testing.T) {
	long := "func Long() {\n" + strings.Repeat("\t_ = 0\n", 59) + "}"
	var chain []string
	for i := range 9 {
		chain = append(chain, fmt.Sprintf("func F%d() { F%d() }", i, i+1))
	}
	for want, sources := range map[string][]string{
		"50 % of the uses":                 {"func A() { B() }", "func B() { A() }"},
		"has 10 layers":                    append(chain, "func F9() {}"),
		"has 46 files":                     slices.Repeat([]string{""}, 45),
		"Long of made has 61 lines":        {long},
		"the median function has 61 lines": {long},
		"package made has no doc":          {"func A() {}"},
	} {
		expect.ErrorSays(t, errors.Join(overLimits([]*shape{shapeOf(t, append(sources, "func main() {}")...)})...), want, "over the limits is")
	}
	good := shapeOf(t, "func A() {}")
	good.doc = "Package made is within every limit."
	expect.OK(t, errors.Join(overLimits([]*shape{good})...))
}
