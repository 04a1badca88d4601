package main

import (
	"cmp"
	"context"
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
)

const (
	costsStart = "<!-- costs: made by make costs -->\n"
	costsEnd   = "<!-- end of costs -->\n"
	costsShown = 15 // modules with rows of their own
)

// cost is the size of one part of the server's binary.
type cost struct {
	part  string
	bytes int64
}

// rewriteCosts regenerates the table of docs/dependencies.md.
func rewriteCosts(ctx context.Context, root string) error {
	work, err := os.MkdirTemp("", "rollcall-costs-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	r, err := newRelease(ctx, root, "", work, "")
	if err != nil {
		return err
	}
	all, err := r.costs(ctx)
	if err != nil {
		return err
	}
	path := filepath.Join(root, "docs", "dependencies.md")
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(text), costsStart)
	_, after, ok2 := strings.Cut(rest, costsEnd)
	if !ok || !ok2 {
		return fmt.Errorf("%s has no %q and %q", path, costsStart, costsEnd)
	}
	return os.WriteFile(path, []byte(before+costsStart+costTable(all)+costsEnd+after), 0o644)
}

// costs returns the parts of the server's binary for linux/amd64, the largest first, which sum up to the size of the
// released file. The linker writes types, line numbers and relocations of all packages together, which no symbol
// divides.
func (r *release) costs(ctx context.Context) ([]cost, error) {
	t := target{os: "linux", arch: "amd64"}
	whole, released := filepath.Join(r.work, "with-symbols"), filepath.Join(r.work, "stripped")
	if err := errors.Join(r.compile(ctx, t, "rollcall", whole, ""), r.compile(ctx, t, "rollcall", released, "-s -w")); err != nil {
		return nil, err
	}
	symbols, err := symbolsOf(whole)
	if err != nil {
		return nil, err
	}
	info, err := buildinfo.ReadFile(released)
	if err != nil {
		return nil, err
	}
	stat, err := os.Stat(released)
	if err != nil {
		return nil, err
	}
	return costsOf(symbols, append(info.Deps, &info.Main), stat.Size()), nil
}

const (
	costOfStd  = "Go's runtime and standard library"
	costOfRest = "types, line numbers and constants of all of them, which the linker writes together"
)

// symbol is a function or a variable of a program.
type symbol struct {
	name  string
	bytes int64 // in the file
}

// symbolsOf returns the symbols of a program for Linux, except memory that is zero when the program starts, because
// the file does not hold it.
func symbolsOf(program string) ([]symbol, error) {
	f, err := elf.Open(program)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all, err := f.Symbols()
	if err != nil {
		return nil, err
	}
	var kept []symbol
	for _, s := range all {
		if int(s.Section) < len(f.Sections) && f.Sections[s.Section].Type == elf.SHT_PROGBITS {
			kept = append(kept, symbol{s.Name, int64(s.Size)})
		}
	}
	return kept, nil
}

// costsOf adds up the symbols by module.
func costsOf(symbols []symbol, modules []*debug.Module, size int64) []cost {
	sums := map[string]int64{costOfRest: size}
	for _, s := range symbols {
		part := partOf(s.name, modules)
		sums[part] += s.bytes
		sums[costOfRest] -= s.bytes
	}
	all := make([]cost, 0, len(sums))
	for _, part := range slices.Sorted(maps.Keys(sums)) {
		all = append(all, cost{part, sums[part]})
	}
	slices.SortStableFunc(all, func(a, b cost) int { return cmp.Compare(b.bytes, a.bytes) })
	return all
}

// tables matches symbols of the linker, which belong to no package.
var tables = regexp.MustCompile(`^(runtime\.(pclntab|findfunctab|types|etypes|rodata|gcbits|epclntab|itablink|symtab|typelink)|type:|gcargs|go:func|go:string|gclocals|\$f|symtab)`)

// partOf returns the module that a symbol belongs to.
func partOf(symbol string, modules []*debug.Module) string {
	if tables.MatchString(symbol) {
		return costOfRest
	}
	name, _, _ := strings.Cut(symbol, "[") // type arguments
	name = strings.TrimPrefix(name, "go:itab.*")
	name = strings.TrimPrefix(name, "go:itab.")
	if unescaped, err := url.PathUnescape(name); err == nil {
		name = unescaped // a dot in the last element of a path
	}
	part := costOfStd
	longest := 0
	for _, m := range modules {
		if rest, ok := strings.CutPrefix(name, m.Path); ok && len(m.Path) > longest && (rest == "" || rest[0] == '.' || rest[0] == '/') {
			part, longest = m.Path, len(m.Path)
		}
	}
	if strings.HasPrefix(name, "main.") {
		return modules[len(modules)-1].Path
	}
	return part
}

// costTable returns the table of the document.
func costTable(all []cost) string {
	var b strings.Builder
	var total, small int64
	var smallParts, shown int
	b.WriteString("| Part | MB |\n|---|---|\n")
	for _, c := range all {
		total += c.bytes
		module := c.part != costOfStd && c.part != costOfRest
		if module {
			shown++
		}
		if module && shown > costsShown {
			small += c.bytes
			smallParts++
			continue
		}
		name := c.part
		if module {
			name = "`" + name + "`"
		}
		fmt.Fprintf(&b, "| %s | %.2f |\n", name, float64(c.bytes)/1e6)
	}
	if smallParts > 0 {
		fmt.Fprintf(&b, "| %d smaller modules | %.2f |\n", smallParts, float64(small)/1e6)
	}
	fmt.Fprintf(&b, "| **the binary**, stripped, for linux/amd64 | **%.1f** |\n", float64(total)/1e6)
	return b.String()
}
