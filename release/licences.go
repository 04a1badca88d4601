package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/licensecheck"
)

// licence is what one part of the programs is under.
type licence struct {
	part, version string
	ids           []string // of SPDX, sorted
	texts         []file
}

func (l licence) expression() string { return strings.Join(l.ids, " AND ") }

// licences are those of all parts, by module path. Parts that are no modules have names without a dot before their first slash.
type licences map[string]licence

// embedded are the parts that are files in this repository and stand in no list of modules: their directory, and the files
// that hold licences. A licence that stands only in the first line of the part has its id here.
var embedded = []struct {
	part, version, dir string
	files              []string
	id                 string
}{
	{part: "echarts", version: "6.1.0", dir: "cmd/bench/report/assets", files: []string{"LICENSE", "LICENSE-d3", "NOTICE"}},
	{part: "idiomorph", version: "0.8.0", dir: "httpd/dashboard/assets", id: "0BSD"},
}

// findLicences finds the licence of every module in the programs, of Go's standard library, and of what is embedded.
func (r *release) findLicences(ctx context.Context, targets []target) (licences, error) {
	found, versions := licences{}, map[string]string{}
	for _, t := range targets {
		for _, m := range t.modules {
			versions[m.Path] = m.Version
		}
	}
	args := []string{"mod", "download", "-json"}
	for _, path := range slices.Sorted(maps.Keys(versions)) {
		args = append(args, path+"@"+versions[path])
	}
	out, err := r.run(ctx, nil, "go", args...)
	if err != nil {
		return nil, err
	}
	var errs []error
	add := func(part, version, dir string, names []string) {
		l, err := readLicence(part, version, dir, names)
		errs = append(errs, err)
		found[part] = l
	}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var m struct{ Path, Version, Dir string }
		err := decoder.Decode(&m)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		add(m.Path, m.Version, m.Dir, nil)
	}
	goroot, err := r.run(ctx, nil, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	add("std", targets[0].goVersion, strings.TrimSpace(string(goroot)), nil)
	for _, e := range embedded {
		if e.id != "" {
			found[e.part] = licence{part: e.part, version: e.version, ids: []string{e.id}}
			continue
		}
		add(e.part, e.version, filepath.Join(r.root, e.dir), e.files)
	}
	return found, errors.Join(errs...)
}

// licenceFile is the name of a file that holds a licence, or what it demands to be passed on.
var licenceFile = regexp.MustCompile(`(?i)^(un)?(licen[cs]e|copying|notice|patents)([-.].*)?$`)

// readLicence reads the named files of a directory, or those that look like licences. None that is known is an error.
func readLicence(part, version, dir string, names []string) (licence, error) {
	l := licence{part: part, version: version}
	if names == nil {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return l, err
		}
		for _, e := range entries {
			if e.Type().IsRegular() && licenceFile.MatchString(e.Name()) {
				names = append(names, e.Name())
			}
		}
	}
	for _, name := range names {
		text, err := fs.ReadFile(os.DirFS(dir), name)
		if err != nil {
			return l, err
		}
		l.texts = append(l.texts, file{name: name, data: text})
		for _, match := range licensecheck.Scan(text).Match {
			if !match.IsURL {
				l.ids = append(l.ids, match.ID)
			}
		}
	}
	slices.Sort(l.ids)
	l.ids = slices.Compact(l.ids)
	if len(l.ids) == 0 {
		return l, fmt.Errorf("%s %s: no licence that is known is in %s (files looked at: %q)", part, version, filepath.Base(dir), names)
	}
	return l, nil
}

// text is a table of all parts, and then the texts of their licences.
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

// writeComponents lists what the programs for a platform consist of, as their own build information says, by CycloneDX.
func (r *release) writeComponents(t target) error {
	path, err := r.name(t.os + "_" + t.arch + ".cdx.json")
	if err != nil {
		return err
	}
	subject := component("rollcall", r.version, "pkg:golang/github.com/seed-20419f34/rollcall@"+r.version, "Apache-2.0")
	subject.Type = cdx.ComponentTypeApplication
	components := []cdx.Component{component("std", t.goVersion, "pkg:golang/std@"+strings.TrimPrefix(t.goVersion, "go"), r.licences["std"].expression())}
	for _, m := range t.modules {
		c := component(m.Path, m.Version, "pkg:golang/"+m.Path+"@"+m.Version, r.licences[m.Path].expression())
		c.Properties = &[]cdx.Property{{Name: "go:sum", Value: m.Sum}}
		components = append(components, c)
	}
	for _, e := range embedded {
		components = append(components, component(e.part, e.version, "pkg:npm/"+e.part+"@"+e.version, r.licences[e.part].expression()))
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Timestamp: r.commit.Format("2006-01-02T15:04:05Z"), Component: &subject}
	bom.Components = &components
	var b bytes.Buffer
	if err := cdx.NewBOMEncoder(&b, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}

func component(name, version, url, expression string) cdx.Component {
	return cdx.Component{BOMRef: url, Type: cdx.ComponentTypeLibrary, Name: name, Version: version, PackageURL: url,
		Licenses: &cdx.Licenses{{Expression: expression}}}
}
