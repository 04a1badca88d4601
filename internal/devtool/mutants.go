package main

import (
	"bufio"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// mutant is one operator of a function, changed.
type mutant struct {
	file, function string // where it is
	number         int    // of the operator in the function, from 0
	from, to       token.Token
}

func (m mutant) String() string {
	return fmt.Sprintf("%s %s %d %s %s", m.file, m.function, m.number, m.from, m.to)
}

// others is what each operator becomes.
var others = map[token.Token]token.Token{
	token.EQL: token.NEQ, token.NEQ: token.EQL,
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL,
	token.LAND: token.LOR, token.LOR: token.LAND,
	token.INC: token.DEC, token.DEC: token.INC, token.ADD_ASSIGN: token.SUB_ASSIGN, token.SUB_ASSIGN: token.ADD_ASSIGN,
	token.NOT: token.NOT, // it is left out: see changed
}

// operator is a place in a file.
type operator struct {
	mutant
	at token.Pos
}

// operators returns those of a file that can be changed.
func operators(set *token.FileSet, path string) (all []operator, err error) {
	f, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, d := range f.Decls {
		function, is := d.(*ast.FuncDecl)
		if !is || function.Body == nil {
			continue
		}
		name, number := function.Name.Name, 0
		if function.Recv != nil {
			name = receiver(function.Recv.List[0].Type) + "." + name
		}
		add := func(t token.Token, at token.Pos) {
			if to, changes := others[t]; changes {
				all = append(all, operator{mutant{path, name, number, t, to}, at})
				number++
			}
		}
		ast.Inspect(function.Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BinaryExpr:
				add(n.Op, n.OpPos)
			case *ast.UnaryExpr:
				add(n.Op, n.OpPos)
			case *ast.IncDecStmt:
				add(n.Tok, n.TokPos)
			case *ast.AssignStmt:
				add(n.Tok, n.TokPos)
			}
			return true
		})
	}
	return all, nil
}

func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return "?"
}

// drawMutants returns all mutants of the code below directories, in an order drawn from a seed.
func drawMutants(seed uint64, directories []string) (all []mutant, err error) {
	if len(directories) == 0 {
		return nil, fmt.Errorf("mutants needs directories, such as store replication httpd")
	}
	set := token.NewFileSet()
	for _, d := range directories {
		err = filepath.WalkDir(d, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") || onlyTests.MatchString(path) {
				return err
			}
			found, err := operators(set, path)
			for _, o := range found {
				all = append(all, o.mutant)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	r := rand.New(rand.NewPCG(seed, 60))
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all, nil
}

// onlyTests matches what only tests use.
var onlyTests = regexp.MustCompile(`_test\.go$|/(httpdtest|peertest|testdata)/`)

// readMutants reads the lines of a file that runMutants has printed.
func readMutants(name string) (all []mutant, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	tokens := map[string]token.Token{}
	for t := range others {
		tokens[t.String()] = t
	}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		var m mutant
		var from string
		if _, err := fmt.Sscan(lines.Text(), &m.file, &m.function, &m.number, &from); err != nil {
			return nil, fmt.Errorf("%q: want FILE FUNCTION NUMBER OPERATOR: %w", lines.Text(), err)
		}
		m.from = tokens[from]
		m.to = others[m.from]
		all = append(all, m)
	}
	return all, nil
}

// changed returns the mutant's file with the operator changed.
func (m mutant) changed() ([]byte, error) {
	text, err := os.ReadFile(m.file)
	if err != nil {
		return nil, err
	}
	set := token.NewFileSet()
	all, err := operators(set, m.file)
	if err != nil {
		return nil, err
	}
	for _, o := range all {
		if o.mutant != m {
			continue
		}
		at := set.Position(o.at).Offset
		to := m.to.String()
		if m.from == token.NOT {
			to = "" // what was denied is asserted
		}
		return append(append(append([]byte{}, text[:at]...), to...), text[at+len(m.from.String()):]...), nil
	}
	return nil, fmt.Errorf("there is no %v", m)
}

// runMutants runs commands for each mutant, until one fails, for as many as compile.
func runMutants(all []mutant, n int, by []string) error {
	killed, ran := 0, 0
	for _, m := range all {
		if ran == n {
			break
		}
		text, err := m.changed()
		if err != nil {
			fmt.Println(m, "absent:", err)
			continue
		}
		verdict, err := m.run(text, by)
		if err != nil {
			return err
		}
		if verdict == "" {
			continue
		}
		ran++
		if verdict != survived {
			killed++
		}
		fmt.Println(m, verdict)
	}
	fmt.Printf("# %d of %d killed\n", killed, ran)
	return nil
}

const survived = "survived"

// run returns the outcome of a mutant, or "" if it does not compile.
func (m mutant) run(text []byte, by []string) (string, error) {
	o, err := plant(map[string][]byte{m.file: text})
	if err != nil {
		return "", err
	}
	defer o.remove()
	if _, err := o.run("go build ./" + filepath.Dir(m.file)); err != nil {
		return "", nil
	}
	for _, command := range by {
		if says, err := o.run(strings.ReplaceAll(command, "{}", "./"+filepath.Dir(m.file))); err != nil {
			return "killed by " + firstFailure(says), nil
		}
	}
	return survived, nil
}

var failure = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)|^(panic: .*|FAIL\s.*)$`)

// firstFailure returns the name of the first test that failed.
func firstFailure(says string) string {
	m := failure.FindStringSubmatch(says)
	if m == nil {
		return "?"
	}
	return strings.TrimSpace(m[1] + m[2])
}
