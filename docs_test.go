package rollcall_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/golden"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// TestBehavioursNameTestsThatExist keeps docs/behaviours.md honest: whatever a row names as a proof must be a test,
// fuzz target or benchmark of the package before it, and a subtest must be a row of a table.
func TestBehavioursNameTestsThatExist(t *testing.T) {
	p := newProject(t)
	tests := map[string]bool{} // by folder and name
	for _, d := range p.declared {
		tests[path.Dir(d.file)+" "+d.name] = true
	}
	sources := need.Got(exec.Command("git", "grep", "-h", "--untracked", "-E", `"[A-Z]`, "--", "*.go").Output())(t)
	isTest := regexp.MustCompile(`^(Test|Fuzz|Benchmark)[A-Z]`)
	named := 0
	for line := range strings.Lines(string(need.Got(os.ReadFile("docs/behaviours.md"))(t))) {
		folder := "."
		for _, m := range codeWord.FindAllStringSubmatch(line, -1) {
			if p.folders[m[1]] {
				folder = m[1]
			}
			if !isTest.MatchString(m[1]) {
				continue
			}
			named++
			function, row, isRow := strings.Cut(m[1], "/")
			expect.That(t, tests[folder+" "+function], "docs/behaviours.md names %s of %s, and there is none", m[1], folder)
			expect.That(t, !isRow || bytes.Contains(sources, []byte(`"`+row+`"`)), "docs/behaviours.md names %s, but no table has a row %q", m[1], row)
		}
	}
	need.That(t, named != 0, "docs/behaviours.md names no test")
}

// TestGoClientCodeOfThePagesCompiles compares the code blocks of the client's pages, and of README.md, with the
// examples.
func TestGoClientCodeOfThePagesCompiles(t *testing.T) {
	read := func(file string) string {
		text := need.Got(os.ReadFile(file))(t)
		return string(text)
	}
	var examples strings.Builder
	for _, file := range []string{"client/example_test.go", "client/grpcresolver/example_test.go"} {
		examples.WriteString(shownCode(read(file)))
	}
	for _, page := range []string{"docs/reference/go-client.md", "docs/use/go.md", "README.md"} {
		blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(read(page), -1)
		expect.That(t, len(blocks) != 0, "%s shows no code", page)
		for _, b := range blocks {
			expect.That(t, strings.Contains(examples.String(), shownCode(b[1])), "%s shows what is in no example:\n%s", page, b[1])
		}
	}
}

// README.md is read in one go, by people who do not know yet whether they want Rollcall. Details belong in the pages
// below docs.
func TestReadmeStaysShort(t *testing.T) {
	const most = 1700
	words := len(strings.Fields(string(need.Got(os.ReadFile("README.md"))(t))))
	expect.That(t, words <= most, "README.md has %d words, want at most %d: move details to the pages below docs", words, most)
}

// shownCode returns code as the pages show it: without indentation, blank lines, and error exits of examples.
func shownCode(code string) string {
	var b strings.Builder
	for line := range strings.Lines(code) {
		if line = strings.TrimSpace(line); line != "" {
			b.WriteString(line + "\n")
		}
	}
	return strings.NewReplacer("if err != nil {\nlog.Fatal(err)\n}\n", "", "check(err)\n", "").Replace(b.String())
}

// project is what the pages may name: the files of the project, and the declarations of its Go files.
type project struct {
	files, folders map[string]bool
	names          map[string]bool // Name, Type.Name, package.Name, package.Type.Name; of files' base names too
	scopes         map[string]bool // the packages and types before a dot
	settings       map[string]bool // by key
	declared       []declaration
}

// declaration is a function, type or field of the project's Go files.
type declaration struct{ file, kind, name string }

// newProject reads the files that git knows, and those not committed yet.
func newProject(t *testing.T) *project {
	t.Helper()
	p := &project{files: map[string]bool{}, folders: map[string]bool{}, names: map[string]bool{}, scopes: map[string]bool{}, settings: map[string]bool{}}
	listed := need.Got(exec.Command("git", "ls-files", "-co", "--exclude-standard").Output())(t)
	for file := range strings.Lines(string(listed)) {
		file = strings.TrimSpace(file)
		if _, err := os.Stat(file); err != nil {
			continue // removed, but not committed yet
		}
		p.files[file], p.names[path.Base(file)] = true, true
		for dir := path.Dir(file); dir != "."; dir = path.Dir(dir) {
			p.folders[dir] = true
		}
		if strings.HasSuffix(file, ".go") {
			p.addFile(t, file)
		}
	}
	return p
}

func (p *project) addFile(t *testing.T, name string) {
	t.Helper()
	pkg := path.Base(path.Dir(name))
	p.scopes[pkg] = true
	for _, declared := range need.Got(parser.ParseFile(token.NewFileSet(), name, nil, 0))(t).Decls {
		switch d := declared.(type) {
		case *ast.FuncDecl:
			of := ""
			if d.Recv != nil {
				of = receiver(d)
			}
			p.add(name, pkg, of, "function", d.Name.Name)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				p.addSpec(name, pkg, spec)
			}
		}
	}
}

func (p *project) addSpec(file, pkg string, spec ast.Spec) {
	switch s := spec.(type) {
	case *ast.TypeSpec:
		p.add(file, pkg, "", "type", s.Name.Name)
		p.scopes[s.Name.Name] = true
		switch of := s.Type.(type) {
		case *ast.StructType:
			p.addFields(file, pkg, s.Name.Name, "field", of.Fields)
		case *ast.InterfaceType:
			p.addFields(file, pkg, s.Name.Name, "function", of.Methods)
		}
	case *ast.ValueSpec:
		for _, name := range s.Names {
			p.add(file, pkg, "", "value", name.Name)
		}
	}
}

func (p *project) addFields(file, pkg, of, kind string, fields *ast.FieldList) {
	for _, f := range fields.List {
		if f.Tag != nil {
			if key, ok := reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Lookup("key"); ok {
				p.settings[key] = true
			}
		}
		for _, name := range f.Names {
			p.add(file, pkg, of, kind, name.Name)
		}
	}
}

func (p *project) add(file, pkg, of, kind, name string) {
	p.declared = append(p.declared, declaration{file, kind, name})
	p.names[name], p.names[pkg+"."+name] = true, true
	if of != "" {
		p.names[of+"."+name], p.names[pkg+"."+of+"."+name] = true, true
	}
}

var (
	// codeWord matches the text between two backticks.
	codeWord = regexp.MustCompile("`([^`\n]+)`")
	// A file has a slash or one of these endings; a name is Go's, and contains a dot or begins like an exported one.
	fileName   = regexp.MustCompile(`^[\w./-]+\.(go|md|yaml|txtar|mod|html|css)$`)
	folderName = regexp.MustCompile(`^(client|cmd|docs|fsm|httpd|integration|internal|replication|store)(/[\w./-]+)?$`)
	dottedName = regexp.MustCompile(`^(\w+)(\.[A-Za-z]\w*)+$`)
	singleName = regexp.MustCompile(`^[A-Z][a-z]\w*$`)
)

// lacks says which part of a word in backticks does not exist, or returns "".
func (p *project) lacks(word string) string {
	switch m := dottedName.FindStringSubmatch(word); {
	case fileName.MatchString(word):
		if !p.files[word] && (strings.Contains(word, "/") || !p.names[word]) {
			return "file"
		}
	case folderName.MatchString(word):
		if word = strings.TrimSuffix(word, "/"); !p.folders[word] && !p.files[word] {
			return "folder"
		}
	case m != nil && p.scopes[m[1]] && !p.names[word] && !p.settings[word] && path.Ext(word) != ".db" && path.Ext(word) != ".json":
		return "name"
	case singleName.MatchString(word) && !p.names[word]:
		return "name"
	}
	return ""
}

// isPath reports whether a word looks like a path of the project: its first part is a folder.
func (p *project) isPath(word string) bool {
	top, _, ok := strings.Cut(word, "/")
	return ok && p.folders[top] && (fileName.MatchString(word) || folderName.MatchString(word))
}

// Pages about the code name files, functions and types; on the other pages only Go files and paths are looked up.
func TestPagesNameWhatIsThere(t *testing.T) {
	p := newProject(t)
	for _, page := range p.pages() {
		onCode := page == "docs/architecture.md" || page == "docs/changing.md"
		for _, m := range codeWord.FindAllStringSubmatch(string(need.Got(os.ReadFile(page))(t)), -1) {
			if onCode || path.Ext(m[1]) == ".go" || p.isPath(m[1]) {
				lack := p.lacks(m[1])
				expect.That(t, lack == "", "%s names `%s`, and there is no such %s", page, m[1], lack)
			}
		}
	}
}

var linkOfPage = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// A link leads to a file of the project, and to a headline of it.
func TestLinksOfThePagesLeadSomewhere(t *testing.T) {
	p := newProject(t)
	for _, page := range p.pages() {
		text := string(need.Got(os.ReadFile(page))(t))
		for _, m := range linkOfPage.FindAllStringSubmatch(text, -1) {
			target, headline, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, ":") {
				continue // another site's
			}
			file := path.Join(path.Dir(page), target)
			if target == "" {
				file = page
			}
			there := p.files[file] || p.folders[file]
			expect.That(t, there, "%s links to %s, and there is no %s", page, m[1], file)
			if there && headline != "" {
				expect.That(t, slices.Contains(headlines(t, file), headline), "%s links to %s, and %s has no such headline", page, m[1], file)
			}
		}
	}
}

// Every page below docs is in the index, or in its folder's list, which is in the index.
func TestIndexOfThePagesHasAll(t *testing.T) {
	p := newProject(t)
	linked := map[string]bool{} // by the index, and by the lists that it links to
	for lists := []string{"docs/README.md"}; len(lists) != 0; lists = lists[1:] {
		list := lists[0]
		for _, m := range linkOfPage.FindAllStringSubmatch(string(need.Got(os.ReadFile(list))(t)), -1) {
			target, _, _ := strings.Cut(m[1], "#")
			file := path.Join(path.Dir(list), target)
			if path.Base(file) == "README.md" && strings.HasPrefix(file, "docs/") && !linked[file] {
				lists = append(lists, file)
			}
			linked[file] = true
		}
	}
	for _, page := range p.pages() {
		expect.That(t, !strings.HasPrefix(page, "docs/") || page == "docs/README.md" || linked[page], "docs/README.md does not lead to %s", page)
	}
}

// pages returns the pages that people write.
func (p *project) pages() []string {
	var all []string
	for file := range p.files {
		if strings.HasSuffix(file, ".md") && (!strings.Contains(file, "/") || strings.HasPrefix(file, "docs/")) && file != "docs/benchmarks/report.md" {
			all = append(all, file)
		}
	}
	slices.Sort(all)
	return all
}

// headlines returns a page's headlines as links write them.
func headlines(t *testing.T, page string) (all []string) {
	t.Helper()
	dropped := regexp.MustCompile(`[^\w\- ]`)
	for line := range strings.Lines(string(need.Got(os.ReadFile(page))(t))) {
		if strings.HasPrefix(line, "#") {
			text := strings.ToLower(strings.TrimSpace(strings.TrimLeft(line, "#")))
			all = append(all, strings.ReplaceAll(dropped.ReplaceAllString(text, ""), " ", "-"))
		}
	}
	return all
}

// A sentence has a subject: it neither begins with who or what, nor speaks of nobody and everybody.
func TestSentencesOfThePagesHaveSubjects(t *testing.T) {
	headless := regexp.MustCompile(`\b([Ww]hoever|[Nn]obody|[Ee]verybody|[Ss]omebody)\b|\bthe own\b|(?:^|[.:;|] +|- )(Who|What|who)\b[^?\n]*`)
	for _, page := range newProject(t).pages() {
		number := 0
		for line := range strings.Lines(string(need.Got(os.ReadFile(page))(t))) {
			number++
			if strings.HasPrefix(line, "#") || strings.HasPrefix(line, "|") && strings.Contains(line, "| What") {
				continue // a headline, or the head of a table
			}
			for _, found := range headless.FindAllString(codeWord.ReplaceAllString(line, ""), -1) {
				t.Errorf("%s:%d: %q has no subject", page, number, strings.TrimSpace(found))
			}
		}
	}
}

// words are too vague to name anything in the code. most is how many files of a folder may have a function of that
// name, where the receiver beside it makes it unambiguous; but lists packages where the word means what it should.
var words = []struct {
	kind, word, instead string
	most                int
	but                 []string
}{
	{kind: "function", word: "take", instead: "what is done with the thing: reserve, remove, acquire, accept"},
	{kind: "function", word: "note", instead: "record, count, log, mark, with their object"},
	{kind: "function", word: "tell", instead: "send, report, notify, with their object"},
	{kind: "function", word: "begin", instead: "start, open, enter, with their object", most: 3},
	{kind: "function", word: "end", instead: "stop, close, finish, remove, with their object", most: 3},
	{kind: "type", word: "answer", instead: "reply (of a server of ours), response (by HTTP), result (of an operation)"},
	{kind: "type", word: "entry", instead: "pair, row, item, record: an entry is of the Raft log", but: []string{"fsm", "store/consensus", "client"}},
	{kind: "type", word: "session", instead: "feed, run, stream: a session is Consul's", but: []string{"fsm/kv", "httpd/consul", "httpd/api", "client", "cmd/rollcall"}},
	{kind: "type", word: "guard", instead: "the thing that is bounded or watched: the guard is the client's", but: []string{"client"}},
	{kind: "field", word: "told", instead: "acked, sent, or the index that was reached"},
	{kind: "field", word: "gone", instead: "removed, closed, ended"},
	{kind: "field", word: "maybe", instead: "possible"},
	{kind: "field", word: "looked", instead: "checkedAt, seenAt"},
	{kind: "every name", word: "settle", instead: "become steady, await, converge", but: []string{"docs/examples/orders"}},
}

func TestWordsThatSayTooLittleNameNothing(t *testing.T) {
	p := newProject(t)
	for _, w := range words {
		found := map[string][]string{} // by folder
		for _, d := range p.declared {
			same := d.kind == w.kind && (d.name == w.word || w.kind != "field" && w.most == 0 && strings.EqualFold(d.name, w.word))
			if w.kind == "every name" {
				same = strings.Contains(strings.ToLower(d.name), w.word)
			}
			if dir := path.Dir(d.file); same && !slices.Contains(w.but, dir) {
				top, _, _ := strings.Cut(dir, "/")
				if at := d.file + " (" + d.name + ")"; !slices.Contains(found[top], at) {
					found[top] = append(found[top], at)
				}
			}
		}
		for _, files := range found {
			expect.That(t, len(files) <= w.most, "%s %s says too little; write %s: %s", w.kind, w.word, w.instead, strings.Join(files, ", "))
		}
	}
	table := "| Not | But |\n|---|---|\n"
	for _, w := range words {
		table += fmt.Sprintf("| %s `%s` | %s |\n", w.kind, w.word, w.instead)
	}
	golden.Part(t, "docs/architecture.md", "<!-- words: made by go test -run Words -update . -->\n", "<!-- end of words -->\n", table)
}

// TestGoClientHasASentenceForEveryExportedName covers types, functions, methods, constants and variables. A group of
// constants may share one.
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
