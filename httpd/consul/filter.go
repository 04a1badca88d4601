package consul

import (
	"maps"
	"regexp/syntax"
	"strings"
	"time"

	"github.com/hashicorp/go-bexpr"
)

// Bounds of an expression. Its parser tries each group in parentheses several times, the groups inside it several
// times each of these times, and so on: Consul's takes minutes for eleven levels. A regular expression of few
// characters may mean many thousand steps for each character that it looks at.
const (
	maxNesting  = 7
	maxParsing  = 2_000_000 // tries of grammar rules: the library's own bound since its version 0.1.15
	maxPatterns = 10_000    // total instructions of all regular expressions
)

// evaluatorOf parses an expression of Consul's filter language over values of the type that of points to, or returns
// nil for "". Error: a refusal, in Consul's words. The library has the version that Consul uses: later versions name
// the elements of lists differently.
func evaluatorOf(expression string, of any) (*bexpr.Evaluator, error) {
	if expression == "" {
		return nil, nil
	}
	const failed = "Failed to create boolean expression evaluator: "
	if depth := nesting(expression); depth > maxNesting {
		return nil, malformed(failed+"the parentheses nest %d deep, and may nest %d deep", depth, maxNesting)
	}
	tree, err := bexpr.Parse("", []byte(expression), bexpr.MaxExpressions(maxParsing))
	if err != nil {
		return nil, malformed(failed+"%v", err)
	}
	if size := patterns(tree); size > maxPatterns {
		return nil, malformed(failed+"the regular expressions take %d instructions, and may take %d: repeat less", size, maxPatterns)
	}
	evaluator, err := bexpr.CreateEvaluatorForType(expression, nil, of)
	if err != nil {
		return nil, malformed(failed+"%v", err)
	}
	return evaluator, nil
}

// nesting returns how deep the parentheses of an expression nest, ignoring those in its strings.
func nesting(expression string) (deepest int) {
	depth := 0
	for i := 0; i < len(expression); i++ {
		switch b := expression[i]; b {
		case '(':
			depth++
			deepest = max(deepest, depth)
		case ')':
			depth--
		case '"', '`':
			end := strings.IndexByte(expression[i+1:], b)
			if end < 0 {
				return deepest
			}
			i += 1 + end
		}
	}
	return deepest
}

// patterns returns how many instructions the regular expressions of a parsed expression take. An invalid one counts
// nothing: the evaluator refuses it.
func patterns(tree any) int {
	switch node := tree.(type) {
	case *bexpr.UnaryExpression:
		return patterns(node.Operand)
	case *bexpr.BinaryExpression:
		return patterns(node.Left) + patterns(node.Right)
	case *bexpr.MatchExpression:
		if node.Operator != bexpr.MatchMatches && node.Operator != bexpr.MatchNotMatches {
			return 0
		}
		pattern, err := syntax.Parse(node.Value.Raw, syntax.Perl)
		if err != nil {
			return 0
		}
		program, err := syntax.Compile(pattern.Simplify())
		if err != nil {
			return 0
		}
		return len(program.Inst)
	}
	return 0
}

// filterLimit bounds the time that a filter takes for one response: a long filter over a large registry has no other
// bound.
const filterLimit = 10 * time.Second

// errFilterTooSlow is the response to a filter that takes longer.
var errFilterTooSlow = rejected("the filter takes longer than %v for what it selects from: ask for less at once, or by a shorter filter", filterLimit)

// filter selects what the response to a call shows, by the call's parameter filter.
type filter[T any] struct {
	by  call
	is  *bexpr.Evaluator // nil if everything is wanted
	end time.Time        // deadline; zero before it begins
}

// filterOf reads the filter of a call whose response lists values of a type.
func filterOf[T any](c call) *filter[T] {
	is, err := evaluatorOf(c.Text("filter"), (*T)(nil))
	if c.Err == nil {
		c.Err = err
	}
	return &filter[T]{by: c, is: is}
}

// wants reports whether a value is selected. If that cannot be decided, the call's Err says why, and nothing more is
// selected.
func (f *filter[T]) wants(value *T) bool {
	switch {
	case f.is == nil:
		return true
	case f.by.Err != nil:
		return false
	}
	now := time.Now()
	if f.end.IsZero() {
		f.end = now.Add(filterLimit)
	}
	if now.After(f.end) || f.by.R.Context().Err() != nil {
		f.by.Err = errFilterTooSlow
		return false
	}
	var wanted bool
	wanted, f.by.Err = f.is.Evaluate(value)
	return wanted
}

// of keeps the selected elements of a list.
func (f *filter[T]) of(list []T) []T {
	if f.is == nil {
		return list
	}
	kept := list[:0] // not slices.DeleteFunc: it copies each of the large values that we only look at
	for i := range list {
		if f.wants(&list[i]) {
			kept = append(kept, list[i])
		}
	}
	return kept
}

// ofMap keeps the selected entries of a map.
func (f *filter[T]) ofMap(values map[string]T) {
	maps.DeleteFunc(values, func(_ string, value T) bool { return !f.wants(&value) })
}
