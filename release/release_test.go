package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"aead.dev/minisign"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

var commitTime = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

func TestVersionsAreNumberedAsPackagesOrderThem(t *testing.T) {
	for version, want := range map[string]string{
		"v0.1.0":                   "0.1.0",
		"v0.1.0-rc.1":              "0.1.0~rc.1",
		"v0.1.0-dirty":             "0.1.0.dirty",
		"v0.1.0-5-g3876fce4":       "0.1.0+5.g3876fce4",
		"v0.1.0-rc.1-5-g3876fce4":  "0.1.0~rc.1+5.g3876fce4",
		"3876fce4":                 "0.0.0+20261127120000.g3876fce4",
		"v0.1.0-5-g3876fce4-dirty": "0.1.0+5.g3876fce4.dirty",
		"":                         "",
		"the newest":               "",
		"v0.1.0 -o /etc/passwd":    "",
	} {
		got, err := numbered(version, commitTime)
		expect.That(t, got == want && (err == nil) == (want != ""), "%q: %q, %v; want %q", version, got, err, want)
		expect.That(t, want == "" || regexp.MustCompile(`^\w[\w.-]{0,127}$`).MatchString(imageTag(want)), "%q is no tag of an image", imageTag(want))
	}
}

func TestWrongVersionIsFoundBeforeAnythingIsRemoved(t *testing.T) {
	for version, says := range map[string][]string{
		"the newest": {`version "the newest"`},
		"v998.0.0":   {"Chart.yaml does not say \"appVersion: 998.0.0\"", "compose.yaml does not say \"image: ${ROLLCALL_IMAGE:-rollcall:998.0.0}\""},
	} {
		out := t.TempDir()
		before := filepath.Join(out, "of-before")
		need.OK(t, os.WriteFile(before, nil, 0o600))
		err := makeRelease(t.Context(), "..", out, version, []string{"none"}, "", "")
		for _, words := range says {
			expect.ErrorSays(t, err, words, "%s:", version)
		}
		_, err = os.Stat(before)
		expect.OK(t, err)
	}
}

func TestReleaseIsWithoutExperiments(t *testing.T) {
	file := filepath.Join(t.TempDir(), "env")
	need.OK(t, os.WriteFile(file, []byte("GOEXPERIMENT=jsonv2\n"), 0o600))
	t.Setenv("GOENV", file)
	_, err := newRelease(t.Context(), "..", "", "", "v0.1.0")
	expect.ErrorSays(t, err, `GOEXPERIMENT is "jsonv2"`, "with go env -w:")
}

func TestModuleWithoutAKnownLicenceIsAnError(t *testing.T) {
	dir := t.TempDir()
	read := func() (licence, error) {
		return readLicence("example.org/m", "v1.0.0", dir, need.Got(licenceFiles(dir))(t))
	}
	_, err := read()
	expect.ErrorSays(t, err, "example.org/m v1.0.0", "without a file:")
	ours := need.Got(os.ReadFile("../LICENSE"))(t)
	quoting := slices.Concat(ours, bytes.Repeat([]byte("All rights are reserved, and what is above is not for you. "), 100))
	for _, text := range [][]byte{[]byte("All rights reserved."), quoting} {
		need.OK(t, os.WriteFile(filepath.Join(dir, "LICENSE"), text, 0o600))
		_, err = read()
		expect.That(t, err != nil, "a text that is no licence was one: %.50s", text)
	}
	need.OK(t, os.WriteFile(filepath.Join(dir, "LICENSE"), ours, 0o600))
	l, err := read()
	expect.That(t, err == nil && l.expression() == "Apache-2.0", "%q, %v", l.expression(), err)
	text := licences{"example.org/m": l}.text()
	expect.That(t, bytes.Contains(text, []byte("example.org/m  v1.0.0  Apache-2.0\n")) && bytes.Contains(text, bytes.TrimSpace(ours)), "the text is\n%.300s", text)
}

func TestLicencesOfCopiedCodeThatIsUsedAreFound(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"LICENSE", "internal/a/LICENSE.txt", "internal/a/b/a.go", "internal/a/b/c/LICENSE", "cmd/NOTICE"} {
		path := filepath.Join(root, name)
		need.OK(t, os.MkdirAll(filepath.Dir(path), 0o700))
		need.OK(t, os.WriteFile(path, nil, 0o600))
	}
	expect.Slice(t, need.Got(licenceFiles(root, root, filepath.Join(root, "internal/a/b")))(t), []string{"LICENSE", "internal/a/LICENSE.txt"}, "files")
}

func TestComponentsMatchThePlatform(t *testing.T) {
	names := func(programs ...string) (all []string) {
		for _, c := range new(release).components(target{programs: programs, modules: []*debug.Module{{Path: "example.org/m", Version: "v2.0.0+incompatible"}}, goVersion: "go1.26.0"}) {
			all = append(all, c.PackageURL)
		}
		return all
	}
	expect.Slice(t, names("d/rollcall.exe"), []string{"pkg:golang/std@1.26.0", "pkg:golang/example.org/m@v2.0.0%2Bincompatible", "pkg:npm/idiomorph@0.8.0"}, "on Windows")
	expect.That(t, slices.Contains(names("d/rollcall", "d/rollcall-bench"), "pkg:npm/echarts@6.1.0"), "the benchmarks come without their plots")
}

func TestArchivesOfTheSameFilesHaveTheSameBytes(t *testing.T) {
	files := []file{plain("a/b", []byte("1")), plain("a/c", []byte("2")), {name: "a/", mode: 0o700, owner: imageUser}}
	turned := slices.Clone(files)
	slices.Reverse(turned)
	for name, pack := range map[string]func([]file, time.Time) ([]byte, error){"tar": tarred, "zip": zipped} {
		one, other := need.Got(pack(files, commitTime))(t), need.Got(pack(turned, commitTime))(t)
		expect.That(t, bytes.Equal(gzipped(one), gzipped(other)), "%s: other bytes in another order", name)
	}
}

func TestManPagesHaveEveryCommandAndFlag(t *testing.T) {
	tree := `{"use":"rollcall","short":"A registry","commands":[{"use":"ls [APP]","short":"List","long":"Lists all.",
		"example":"  rollcall ls","flags":[{"name":"output","shorthand":"o","type":"string","default":"table","usage":"form of the output"}]}]}`
	pages := need.Got(manPages([]byte(tree), commitTime, "v0.1.0"))(t)
	need.That(t, len(pages) == 3 && pages[0].name == "man/rollcall.1" && pages[2].name == "man/rollcall-ls.1", "%d pages, want those of rollcall, help and ls", len(pages))
	for _, part := range []string{"Lists all.", "--output", `"table"`, "form of the output", "Nov 2026", "v0.1.0"} {
		expect.That(t, bytes.Contains(pages[2].data, []byte(part)), "no %q in\n%s", part, pages[2].data)
	}
}

func TestCostsSumUpToTheFile(t *testing.T) {
	symbols := []symbol{{"github.com/a/b.F", 1000}, {"github.com/a/b/c.(*T).m", 500}, {"github.com/a/bc.F", 70}, {"gopkg%2ein/x.G[...]", 200},
		{"runtime.main", 300}, {"runtime.pclntab", 40}}
	modules := []*debug.Module{{Path: "github.com/a/b"}, {Path: "github.com/a/bc"}, {Path: "gopkg.in/x"}, {Path: "github.com/main"}}
	all := costsOf(symbols, modules, 5000)
	var sum int64
	got := map[string]int64{}
	for _, c := range all {
		sum += c.bytes
		got[c.part] = c.bytes
	}
	expect.Equal(t, sum, 5000, "bytes in all")
	for part, want := range map[string]int64{"github.com/a/b": 1500, "github.com/a/bc": 70, "gopkg.in/x": 200, costOfStd: 300, costOfRest: 2930} {
		expect.Equal(t, got[part], want, part)
	}
}

// A program has memory that is not in its file.
func TestSymbolsMatchTheFile(t *testing.T) {
	dir := t.TempDir()
	source, program := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
	need.OK(t, os.WriteFile(source, []byte("package main\n\nvar zeroed [64 << 20]byte\n\nfunc main() { zeroed[1]++; println(zeroed[0]) }\n"), 0o600))
	cmd := exec.Command("go", "build", "-o", program, source)
	cmd.Env = append(os.Environ(), "GOOS=linux")
	out, err := cmd.CombinedOutput()
	need.That(t, err == nil, "%v\n%s", err, out)
	var sum int64
	for _, s := range need.Got(symbolsOf(program))(t) {
		sum += s.bytes
	}
	size := need.Got(os.Stat(program))(t).Size()
	expect.That(t, sum > size/10 && sum < size, "symbols of %d bytes in a file of %d", sum, size)
}

func TestScriptsOfPackagesAreOfAShell(t *testing.T) {
	for _, name := range []string{"postinst", "prerm", "postrm"} {
		text := need.Got(os.ReadFile(filepath.Join("package", name)))(t)
		expect.That(t, bytes.HasPrefix(text, []byte("#!/bin/sh\n")), "%s begins with %.20q", name, text)
		expect.That(t, bytes.Contains(text, []byte("\nset -e\n")), "%s goes on after errors", name)
		out, err := exec.Command("sh", "-n", filepath.Join("package", name)).CombinedOutput()
		expect.That(t, err == nil, "%v: %s", err, out)
	}
}

// expectOpen reads the licence of a version of a module in a directory, and checks that it is an open one.
func expectOpen(t *testing.T, module, version, dir string) licence {
	t.Helper()
	l, err := readLicence(module, version, dir, need.Got(licenceFiles(dir))(t))
	expect.That(t, err == nil, "%v", err)
	t.Logf("%s %s: %s", module, version, l.expression())
	return l
}

// It reads the licences of what programs, tests and tools of the four modules are built from.
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

// sentences come from files that also hold the licences of what was delivered with a module: they say which one is
// the module's.
var sentences = map[string]string{
	"github.com/hashicorp/vic": "This product is licensed to you under the Apache License version 2.0 (the License).",
}

// It reads the licences of the programs that integration/clients/wild has built, as listed in docs/dependencies.md,
// and of every module in them.
func TestProgramsThatWeTestAgainstAreUnderOpenLicences(t *testing.T) {
	if os.Getenv("ROLLCALL_WILD") == "" {
		t.Skip("integration/clients/wild/Makefile runs it, after it has built them")
	}
	const wild = "../integration/clients/wild"
	page := string(need.Got(os.ReadFile("../docs/dependencies.md"))(t))
	cache := strings.TrimSpace(output(t, "go", "env", "GOMODCACHE"))
	// where the build has put it: an upper-case letter is a mark and the lower-case one
	downloaded := func(module, version string) string {
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
			if !seen[m.Path+m.Version] && m.Path != module { // that a driver is built from
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
		{"an unknown one beside an open one", map[string]string{"LICENSE": "Business Source License 1.1", "LICENSE-before-v1": apache}, "example.org/m v1.0.0: LICENSE is not a known licence"},
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

// keys writes a new pair of keys: the public one where users find it below root, the private one elsewhere.
func keys(t *testing.T, root string) (signer minisign.PrivateKey, file string) {
	t.Helper()
	public, private, err := minisign.GenerateKey(nil)
	need.OK(t, err)
	need.OK(t, os.MkdirAll(filepath.Join(root, "release"), 0o755))
	need.OK(t, os.WriteFile(filepath.Join(root, publicKeyFile), need.Got(public.MarshalText())(t), 0o600))
	file = filepath.Join(t.TempDir(), "key")
	need.OK(t, os.WriteFile(file, need.Got(private.MarshalText())(t), 0o600))
	return private, file
}

// The command of docs/release.md, with a minisign in the path, says of each file whether it belongs to the release.
func TestCommandOfThePageVerifiesSignatureAndFiles(t *testing.T) {
	page := string(need.Got(os.ReadFile("../docs/release.md"))(t))
	_, command, _ := strings.Cut(page, "```sh\n")
	command, _, _ = strings.Cut(command, "```")
	bin := t.TempDir()
	output(t, "go", "build", "-o", filepath.Join(bin, "minisign"), "aead.dev/minisign/cmd/minisign")
	r := &release{root: t.TempDir(), out: t.TempDir(), version: "v9.9.9", number: "9.9.9", commit: commitTime, commitID: strings.Repeat("ab", 20)}
	_, file := keys(t, r.root)
	key := need.Got(readKey(r.root, file, ""))(t)
	write := func(name string, text []byte) {
		need.OK(t, os.WriteFile(filepath.Join(r.out, name), text, 0o600))
	}
	read := func(name string) []byte { return need.Got(os.ReadFile(filepath.Join(r.out, name)))(t) }
	write("rollcall_9.9.9_linux_amd64.tar.gz", []byte("an archive"))
	need.OK(t, r.writeProvenance([]target{{os: "linux", arch: "amd64", goVersion: "go1.26.0"}}))
	need.OK(t, writeSums(r.out))
	need.OK(t, r.sign(key))
	before := read("SHA256SUMS.minisig")
	need.OK(t, r.sign(key))
	expect.Equal(t, string(read("SHA256SUMS.minisig")), string(before), "the second signature")
	write("minisign.pub", need.Got(os.ReadFile(filepath.Join(r.root, publicKeyFile)))(t))

	verify := func() error {
		cmd := exec.CommandContext(t.Context(), "sh", "-ec", command)
		cmd.Dir, cmd.Env = r.out, append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		t.Logf("%v: %s", err, out)
		return err
	}
	expect.OK(t, verify())
	var s statement
	need.OK(t, json.Unmarshal(read("rollcall_9.9.9_provenance.json"), &s))
	expect.That(t, len(s.Subject) == 1 && s.Subject[0].Name == "rollcall_9.9.9_linux_amd64.tar.gz" && len(s.Subject[0].Digest["sha256"]) == 64 &&
		s.Predicate.BuildDefinition.ResolvedDependencies[0].Digest["gitCommit"] == r.commitID, "provenance: %+v", s)
	for _, name := range []string{"rollcall_9.9.9_linux_amd64.tar.gz", "rollcall_9.9.9_provenance.json", "SHA256SUMS", "SHA256SUMS.minisig"} {
		whole := read(name)
		tampered := []byte(strings.Replace(string(whole), "9.9.9", "9.9.8", 1))
		if strings.HasSuffix(name, ".gz") {
			tampered = []byte("another archive")
		}
		write(name, tampered)
		expect.That(t, string(tampered) != string(whole) && verify() != nil, "%s was changed, and the command found nothing", name)
		write(name, whole)
	}
	_, other := keys(t, t.TempDir())
	_, err := readKey(r.root, other, "")
	expect.ErrorSays(t, err, "belongs to the public key", "the key of somebody else:")
}

func TestKeyOfAReleaseMayHaveAPassword(t *testing.T) {
	root, password := t.TempDir(), filepath.Join(t.TempDir(), "password")
	need.OK(t, os.WriteFile(password, []byte("correct horse\n"), 0o600))
	private, file := keys(t, root)
	need.OK(t, os.WriteFile(file, need.Got(minisign.EncryptKey("correct horse", private))(t), 0o600))
	key, err := readKey(root, file, password)
	expect.That(t, err == nil && key.Equal(private), "read with its password: %v", err)
}
