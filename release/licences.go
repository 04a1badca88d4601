package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/licensecheck"
)

// licence is the licence of one part of the programs.
type licence struct {
	part, version string
	ids           []string // SPDX ids, sorted
	texts         []file
}

func (l licence) expression() string { return strings.Join(l.ids, " AND ") }

// licences has the licences of all parts, by module path. Parts that are not modules have names without a dot before
// their first slash.
type licences map[string]licence

// embedded has the parts that are files in this repository and are in no list of modules: the program that contains
// them, their directory, and the files that hold licences. If a part's licence is only in its first line, its id is
// here.
var embedded = []struct {
	part, version, program, dir string
	files                       []string
	id                          string
}{
	{part: "echarts", version: "6.1.0", program: "rollcall-bench", dir: "cmd/bench/report/assets", files: []string{"LICENSE", "LICENSE-d3", "NOTICE"}},
	{part: "idiomorph", version: "0.8.0", program: "rollcall", dir: "httpd/dashboard/assets", id: "0BSD"},
}

// findLicences finds the licence of every module in the programs, of Go's standard library, and of what is embedded.
func (r *release) findLicences(ctx context.Context, targets []target) (licences, error) {
	found, folders := licences{}, map[string][]string{}
	roots := map[string]string{}
	for _, t := range targets {
		for _, f := range t.folders {
			roots[f.module] = f.root
			folders[f.module] = append(folders[f.module], f.path)
		}
	}
	var errs []error
	add := func(part, version, dir string, names []string) {
		l, err := readLicence(part, version, dir, names)
		errs = append(errs, err)
		found[part] = l
	}
	for _, t := range targets {
		for _, m := range t.modules {
			if _, ok := found[m.Path]; ok {
				continue // all have the versions of one go.mod
			}
			names, err := licenceFiles(roots[m.Path], folders[m.Path]...)
			errs = append(errs, err)
			add(m.Path, m.Version, roots[m.Path], names)
		}
	}
	goroot, err := r.run(ctx, nil, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	std := strings.TrimSpace(string(goroot))
	names, err := licenceFiles(std)
	if err != nil {
		return nil, err
	}
	add("std", targets[0].goVersion, std, names)
	for _, e := range embedded {
		if e.id != "" {
			found[e.part] = licence{part: e.part, version: e.version, ids: []string{e.id}}
			continue
		}
		add(e.part, e.version, filepath.Join(r.root, e.dir), e.files)
	}
	return found, errors.Join(errs...)
}

// authorities is the module whose certificates are in the image.
const authorities = "golang.org/x/crypto/x509roots/fallback"

// findImageLicences adds to the licences of the programs that of the authorities that the image trusts.
func (r *release) findImageLicences(ctx context.Context) (licences, error) {
	out, err := r.run(ctx, settings, "go", "-C", "release", "list", "-m", "-f", "{{.Version}}\t{{.Dir}}", authorities)
	if err != nil {
		return nil, err
	}
	version, dir, _ := strings.Cut(strings.TrimSpace(string(out)), "\t")
	names, err := licenceFiles(dir)
	if err != nil {
		return nil, err
	}
	l, err := readLicence(authorities, version, dir, names)
	if err != nil {
		return nil, err
	}
	l.ids = append(l.ids, "MPL-2.0")
	l.texts = append(l.texts, plain("etc/ssl/certs/ca-certificates.crt", []byte(`The certificates are those of Mozilla's list, certdata.txt, which is under the Mozilla Public License 2.0:
https://mozilla.org/MPL/2.0/. The list is at
https://hg.mozilla.org/projects/nss/raw-file/tip/lib/ckfw/builtins/certdata.txt.`)))
	all := maps.Clone(r.licences)
	all[authorities] = l
	return all, nil
}

// licenceFile matches the name of a file that holds a licence, or what a licence demands to be passed on.
var licenceFile = regexp.MustCompile(`(?i)^(un)?(licen[cs]e|copying|notice|patents)([-.].*)?$`)

// licenceFiles returns the files of a directory that look like licences, and those in the folders between it and the
// used folders below it: there a module has what it copied from others.
func licenceFiles(root string, used ...string) ([]string, error) {
	folders := map[string]bool{".": true}
	for _, dir := range used {
		rel, err := filepath.Rel(root, dir)
		if err != nil {
			return nil, err
		}
		for rel = filepath.ToSlash(rel); rel != "."; rel = path.Dir(rel) {
			folders[rel] = true
		}
	}
	var names []string
	for _, dir := range slices.Sorted(maps.Keys(folders)) {
		entries, err := os.ReadDir(filepath.Join(root, dir))
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if e.Type().IsRegular() && licenceFile.MatchString(e.Name()) && path.Ext(e.Name()) != ".go" {
				names = append(names, path.Join(dir, e.Name()))
			}
		}
	}
	return names, nil
}

// covered is how much of a text, in percent, must be a known licence: a text that only quotes one does not count.
const covered = 75

// openLicences has the licences that a part may have: open-source licences, and two that come beside one, for
// documents and patents. licensecheck knows others, too, such as SSPL-1.0 and CommonsClause; it does not know the
// Business Source License.
var openLicences = []string{"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MPL-2.0", "Unicode-DFS-2016", "CC-BY-SA-4.0", "GooglePatentsFile"}

// decides matches the names of files that say which licence a part is under. Others, such as NOTICE, come beside one.
var decides = regexp.MustCompile(`(?i)^(un)?(licen[cs]e|copying)`)

// readLicence reads the named files of a directory. It rejects an unknown licence text, and a licence that is not open.
func readLicence(part, version, dir string, names []string) (licence, error) {
	l := licence{part: part, version: version}
	for _, name := range names {
		text, err := fs.ReadFile(os.DirFS(dir), name)
		if err != nil {
			return l, err
		}
		l.texts = append(l.texts, file{name: name, data: text})
		scanned := licensecheck.Scan(text)
		if scanned.Percent < covered {
			if name == path.Base(name) && decides.MatchString(name) {
				return l, fmt.Errorf("%s %s: %s is not a known licence", part, version, name)
			}
			continue
		}
		for _, match := range scanned.Match {
			if !match.IsURL {
				l.ids = append(l.ids, match.ID)
			}
		}
	}
	slices.Sort(l.ids)
	l.ids = slices.Compact(l.ids)
	if len(l.ids) == 0 {
		return l, fmt.Errorf("%s %s: no known licence is in %s (files looked at: %q)", part, version, filepath.Base(dir), names)
	}
	for _, id := range l.ids {
		if !slices.Contains(openLicences, id) {
			return l, fmt.Errorf("%s %s is under %s, which is not one of the open licences that a part may have: %s", part, version, id, strings.Join(openLicences, ", "))
		}
	}
	return l, nil
}

// text returns a table of all parts, and then the texts of their licences.
func (all licences) text() []byte {
	var b bytes.Buffer
	b.WriteString("What the programs of this release contain beside Rollcall itself, and the licence of each part.\n\n")
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	parts := slices.Sorted(maps.Keys(all))
	for _, part := range parts {
		fmt.Fprintf(table, "%s\t%s\t%s\n", part, all[part].version, all[part].expression())
	}
	table.Flush()
	for _, part := range parts {
		for _, text := range all[part].texts {
			fmt.Fprintf(&b, "\n%s\n%s %s: %s\n\n%s\n", strings.Repeat("=", 80), part, all[part].version, text.name, bytes.TrimSpace(text.data))
		}
	}
	return b.Bytes()
}

// writeComponents lists, in CycloneDX, what the programs for a platform consist of according to their own build
// information.
func (r *release) writeComponents(t target) error {
	subject := component("rollcall", r.version, purl("golang", "github.com/seed-20419f34/rollcall", r.version), "Apache-2.0")
	subject.Type = cdx.ComponentTypeApplication
	components := r.components(t)
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Timestamp: r.commit.Format("2006-01-02T15:04:05Z"), Component: &subject}
	bom.Components = &components
	var b bytes.Buffer
	if err := cdx.NewBOMEncoder(&b, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		return err
	}
	return os.WriteFile(r.name(t.os+"_"+t.arch+".cdx.json"), b.Bytes(), 0o644)
}

// components returns Go's standard library, the modules, and what is embedded in the programs of a platform.
func (r *release) components(t target) []cdx.Component {
	all := []cdx.Component{component("std", t.goVersion, purl("golang", "std", strings.TrimPrefix(t.goVersion, "go")), r.licences["std"].expression())}
	for _, m := range t.modules {
		c := component(m.Path, m.Version, purl("golang", m.Path, m.Version), r.licences[m.Path].expression())
		c.Properties = &[]cdx.Property{{Name: "go:sum", Value: m.Sum}}
		all = append(all, c)
	}
	for _, e := range embedded {
		if slices.ContainsFunc(t.programs, func(program string) bool { return strings.TrimSuffix(filepath.Base(program), ".exe") == e.program }) {
			all = append(all, component(e.part, e.version, purl("npm", e.part, e.version), r.licences[e.part].expression()))
		}
	}
	return all
}

// purl returns the address of a package, with each plus escaped.
func purl(kind, name, version string) string {
	return "pkg:" + kind + "/" + name + "@" + strings.ReplaceAll(version, "+", "%2B")
}

func component(name, version, url, expression string) cdx.Component {
	return cdx.Component{BOMRef: url, Type: cdx.ComponentTypeLibrary, Name: name, Version: version, PackageURL: url,
		Licenses: &cdx.Licenses{{Expression: expression}}}
}
