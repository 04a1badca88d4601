package consul

import (
	"fmt"
	"regexp/syntax"
	"strings"

	"github.com/hashicorp/go-bexpr"
)

// Filter is an expression of Consul's filter language over values that responses list. The library is the one that Consul
// has in the version that Consul has: its later versions name the elements of lists otherwise.
type Filter[T any] struct{ evaluator *bexpr.Evaluator }

// NewFilter reads an expression; "" gives nil. Error: Malformed, in Consul's words.
func NewFilter[T any](expression string) (*Filter[T], error) {
	if expression == "" {
		return nil, nil
	}
	evaluator, err := evaluatorOf(expression, (*T)(nil))
	if err != nil {
		return nil, malformed("Failed to create boolean expression evaluator: %v", err)
	}
	return &Filter[T]{evaluator}, nil
}

// Matches says whether the expression holds for a value.
func (f *Filter[T]) Matches(value *T) (bool, error) { return f.evaluator.Evaluate(value) }

// Bounds of an expression. Its parser tries each group in parentheses several times, those inside of it each of these
// times, and so on: Consul's takes minutes for eleven levels. A regular expression of few characters may mean many
// thousand steps for each character that it looks at.
const (
	maxNesting  = 7
	maxParsing  = 2_000_000 // tries of rules of the grammar: the library's own bound since its version 0.1.15
	maxPatterns = 10_000    // instructions of all regular expressions together
)

// evaluatorOf is the evaluator of an expression for the type of value.
func evaluatorOf(expression string, value any) (*bexpr.Evaluator, error) {
	if depth := nesting(expression); depth > maxNesting {
		return nil, fmt.Errorf("the parentheses nest %d deep, and may nest %d deep", depth, maxNesting)
	}
	tree, err := bexpr.Parse("", []byte(expression), bexpr.MaxExpressions(maxParsing))
	if err != nil {
		return nil, err
	}
	if size := patterns(tree); size > maxPatterns {
		return nil, fmt.Errorf("the regular expressions take %d instructions, and may take %d: repeat less", size, maxPatterns)
	}
	return bexpr.CreateEvaluatorForType(expression, nil, value)
}

// nesting is how deep the parentheses of an expression nest, without those in its strings.
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

// patterns is how many instructions the regular expressions of a parsed expression take. One that cannot be read takes
// none: the evaluator refuses it.
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
