package main

import (
	"debug/buildinfo"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// expectOpen reads the licence of a version of a module, which lies in a directory, and expects it to be an open one.
func expectOpen(t *testing.T, module, version, dir string) licence {
	t.Helper()
	l, err := readLicence(module, version, dir, need.Got(licenceFiles(dir))(t))
	expect.That(t, err == nil, "%v", err)
	t.Logf("%s %s: %s", module, version, l.expression())
	return l
}

// TestEveryModuleIsUnderAnOpenLicence reads the licences of what programs, tests and tools of the four modules are built from.
func TestEveryModuleIsUnderAnOpenLicence(t *testing.T) {
	for _, dir := range []string{"..", "../client/grpcresolver", "../deploy/check", "."} {
		seen := map[string]bool{}
		for _, packages := range []string{"./...", "tool"} {
			for line := range strings.Lines(output(t, "go", "-C", dir, "list", "-deps", "-test", "-f", "{{with .Module}}{{.Path}}\t{{.Version}}\t{{.Dir}}{{end}}", packages)) {
				parts := strings.Split(strings.TrimSpace(line), "\t") // or a warning: no packages of tools
				if len(parts) < 3 || seen[parts[0]] || strings.HasPrefix(parts[0], "github.com/seed-20419f34/rollcall") {
					continue
				}
				seen[parts[0]] = true
				expectOpen(t, parts[0], parts[1], parts[2])
			}
		}
		need.That(t, len(seen) > 10, "%s: go list named %d modules", dir, len(seen))
	}
}

// sentences are of files that hold the licences of whatever was delivered with a module, too: they say which one is the module's.
var sentences = map[string]string{
	"github.com/hashicorp/vic": "This product is licensed to you under the Apache License version 2.0 (the License).",
}

// TestProgramsThatWeTestAgainstAreUnderOpenLicences reads the licences of the programs that integration/clients/wild has built, as
// docs/dependencies.md says them, and of every module that is in one of them.
func TestProgramsThatWeTestAgainstAreUnderOpenLicences(t *testing.T) {
	if os.Getenv("ROLLCALL_WILD") == "" {
		t.Skip("integration/clients/wild/Makefile runs it, after it has built them")
	}
	const wild = "../integration/clients/wild"
	page := string(need.Got(os.ReadFile("../docs/dependencies.md"))(t))
	cache := strings.TrimSpace(output(t, "go", "env", "GOMODCACHE"))
	downloaded := func(module, version string) string { // where the build has put it: an upper-case letter is a mark and the lower-case one
		return filepath.Join(cache, regexp.MustCompile(`[A-Z]`).ReplaceAllStringFunc(module+"@"+version, func(s string) string { return "!" + strings.ToLower(s) }))
	}
	seen, built := map[string]bool{}, 0
	for _, rule := range regexp.MustCompile(`(bin/\S+) (\S+)@(v\S+)`).FindAllStringSubmatch(output(t, "make", "-nB", "-C", wild, "all", "peers"), -1) {
		info, err := buildinfo.ReadFile(filepath.Join(wild, rule[1]))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		need.OK(t, err)
		built++
		module, version, dir := rule[2], rule[3], os.Getenv("ESM")
		if dir == "" || module != "github.com/hashicorp/consul-esm" {
			dir = downloaded(module, version)
		}
		_, err = os.Stat(dir)
		need.That(t, err == nil, "%s was built from %s, which is no longer there: build it again (make clean), or name the checkout of consul-esm by ESM=folder: %v", rule[1], dir, err)
		l := expectOpen(t, module, version, dir)
		row := "| `" + module + "` " + version + " | " + l.expression() + " |"
		expect.That(t, strings.Contains(page, row), "docs/dependencies.md has no row that begins with %s", row)
		for _, m := range info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			if !seen[m.Path+m.Version] && m.Path != module { // of which a driver is built
				seen[m.Path+m.Version] = true
				if sentence := sentences[m.Path]; sentence != "" {
					text := string(need.Got(os.ReadFile(filepath.Join(downloaded(m.Path, m.Version), "LICENSE")))(t))
					expect.That(t, strings.Contains(text, sentence), "the LICENSE of %s %s does not say: %s", m.Path, m.Version, sentence)
					continue
				}
				expectOpen(t, m.Path, m.Version, downloaded(m.Path, m.Version))
			}
		}
	}
	need.That(t, built > 0, "no program is in %s/bin", wild)
	t.Logf("%d programs, %d modules in them", built, len(seen))
}

func TestLicenceThatIsNotOpenIsAnError(t *testing.T) {
	const notForSale = "\nThe Software is provided to you by the Licensor under the License, as defined below, subject to the following condition. " +
		"Without limiting other conditions in the License, the grant of rights under the License will not include, and the License does " +
		"not grant to you, the right to Sell the Software. For purposes of the foregoing, “Sell” means practicing any or all of the rights " +
		"granted to you under the License to provide to third parties, for a fee or other consideration, a product or service that " +
		"consists, entirely or substantially, of the Software or the functionality of the Software. Any license notice or attribution " +
		"required by the License must also include this Commons Cause License Condition notice.\n"
	apache := string(need.Got(os.ReadFile("../LICENSE"))(t))
	for _, row := range []struct {
		name  string
		files map[string]string
		says  string // in the error; empty if it is accepted
	}{
		{"an open one, with files that are no licences", map[string]string{"LICENSE": apache, "NOTICE": "Made by us.", "license.go": "package m"}, ""},
		{"an open one with a condition", map[string]string{"LICENSE": apache + notForSale}, "example.org/m v1.0.0 is under CommonsClause, which is not one of the open licences"},
		{"an unknown one beside an open one", map[string]string{"LICENSE": "Business Source License 1.1", "LICENSE-before-v1": apache}, "example.org/m v1.0.0: LICENSE is no licence that is known"},
	} {
		dir := t.TempDir()
		for name, text := range row.files {
			need.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
		_, err := readLicence("example.org/m", "v1.0.0", dir, need.Got(licenceFiles(dir))(t))
		if row.says == "" {
			expect.That(t, err == nil, "%s: %v", row.name, err)
			continue
		}
		expect.ErrorSays(t, err, row.says, "%s:", row.name)
	}
}
