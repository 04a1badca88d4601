package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

const (
	home        = "https://github.com/seed-20419f34/rollcall"
	maintainer  = "Rollcall maintainers <maintainers@users.noreply.a-seed-20419f34.example>"
	summary     = "service registry that speaks Eureka's and Consul's protocols"
	description = summary + `
A node keeps which instances of which services live, with leases, and tells
clients of Eureka and of Consul. Nodes of one cluster agree by Raft, or
replicate to each other without consensus.`
)

// packageFormats has the formats, and the dependency that gets each a program to create a user with.
var packageFormats = map[string]string{"deb": "systemd | systemd-standalone-sysusers | adduser", "rpm": "systemd"}

// writePackages writes the packages for a Linux.
func (r *release) writePackages(t target) error {
	if t.os != "linux" {
		return nil
	}
	for format, depends := range packageFormats {
		contents, err := r.contents(t, format)
		if err != nil {
			return err
		}
		changes, err := r.changes()
		if err != nil {
			return err
		}
		script := func(name string) string { return filepath.Join(r.root, "release", "package", name) }
		info := nfpm.WithDefaults(&nfpm.Info{
			Name: "rollcall", Arch: t.arch, Platform: "linux", Version: r.number, VersionSchema: "none", Release: "1",
			Section: "net", Priority: "optional", Maintainer: maintainer, Vendor: "Rollcall", Homepage: home, License: "Apache-2.0",
			Description: description, MTime: r.commit, DisableGlobbing: true, Changelog: changes,
			Overridables: nfpm.Overridables{
				Depends: []string{depends}, Contents: contents,
				Scripts: nfpm.Scripts{PostInstall: script("postinst"), PreRemove: script("prerm"), PostRemove: script("postrm")},
				Deb:     nfpm.Deb{Compression: "xz"},
				RPM:     nfpm.RPM{BuildHost: "localhost", Group: "System Environment/Daemons", Summary: summary, Compression: "xz"},
			},
		})
		packager, err := nfpm.Get(format)
		if err != nil {
			return err
		}
		if err := nfpm.PrepareForPackager(info, format); err != nil {
			return err
		}
		var b bytes.Buffer
		if err := packager.Package(info, &b); err != nil {
			return fmt.Errorf("%s: %w", format, err)
		}
		if err := os.WriteFile(filepath.Join(r.out, packager.ConventionalFileName(info)), b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// changes returns the path of a changelog with the one entry that Debian asks for: it points to what people read.
func (r *release) changes() (string, error) {
	name := filepath.Join(r.work, "changes.yaml")
	text := fmt.Sprintf("- semver: %q\n  date: %s\n  packager: %q\n  changes:\n    - note: see /usr/share/doc/rollcall/changelog.gz\n",
		r.number, r.commit.Format(time.RFC3339), maintainer)
	return name, os.WriteFile(name, []byte(text), 0o600)
}

// installed returns the files of a package, with their locations.
func (r *release) installed(t target, format string) (all []file, _ error) {
	add := func(name string, data []byte) { all = append(all, plain(name, data)) }
	for _, f := range r.shared {
		base := path.Base(f.name)
		switch {
		case f.name == "LICENSE":
			text := string(f.data)
			if format == "deb" { // which has the text once for all packages
				text = "Copyright: the authors of Rollcall\nLicense: Apache-2.0, whose text is in /usr/share/common-licenses/Apache-2.0\n"
			}
			add("/usr/share/doc/rollcall/copyright", []byte("Rollcall, "+home+"\nTHIRD-PARTY.txt names the parts that others made.\n\n"+text))
		case f.name == "CHANGELOG.md":
			add("/usr/share/doc/rollcall/changelog.gz", gzipped(f.data))
		case f.name == "README.md", f.name == "THIRD-PARTY.txt":
			add("/usr/share/doc/rollcall/"+base, f.data)
		case strings.HasPrefix(f.name, "man/"):
			add("/usr/share/man/man1/"+base+".gz", gzipped(f.data))
		case f.name == "deploy/systemd/rollcall.service":
			add("/usr/lib/systemd/system/"+base, f.data)
		case f.name == "deploy/systemd/rollcall.sysusers":
			add("/usr/lib/sysusers.d/rollcall.conf", f.data)
		case strings.HasPrefix(f.name, "deploy/prometheus/"), strings.HasPrefix(f.name, "deploy/grafana/"):
			add("/usr/share/rollcall/"+strings.TrimPrefix(f.name, "deploy/"), f.data)
		case strings.HasPrefix(f.name, "completions/") && completionDirs[base] != "":
			add(path.Join(completionDirs[base], base), f.data)
		case f.name == "completions/_rollcall":
			add(path.Join(zshDirs[format], base), f.data)
		}
	}
	if format == "deb" {
		overrides, err := os.ReadFile(filepath.Join(r.root, "release", "package", "lintian-overrides"))
		if err != nil {
			return nil, err
		}
		add("/usr/share/lintian/overrides/rollcall", overrides)
	}
	for _, program := range t.programs {
		data, err := os.ReadFile(program)
		if err != nil {
			return nil, err
		}
		all = append(all, file{name: "/usr/bin/" + filepath.Base(program), mode: 0o755, data: data})
	}
	return append(all, file{name: settingsFile, mode: 0o640, data: r.config}), nil
}

// settingsFile is the file that its administrator changes, and that no upgrade overwrites.
const settingsFile = "/etc/rollcall/rollcall.yaml"

var completionDirs = map[string]string{
	"rollcall": "/usr/share/bash-completion/completions", "rollcall.fish": "/usr/share/fish/vendor_completions.d",
}

// zshDirs are where zsh looks: Debian reserves site-functions for the administrator.
var zshDirs = map[string]string{"deb": "/usr/share/zsh/vendor-completions", "rpm": "/usr/share/zsh/site-functions"}

// contents writes what a package has into the working directory, and lists it.
func (r *release) contents(t target, format string) (files.Contents, error) {
	all, err := r.installed(t, format)
	if err != nil {
		return nil, err
	}
	var list files.Contents
	for _, f := range sorted(all) {
		source := filepath.Join(r.work, format+"_"+t.arch, f.name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(source), 0o755), os.WriteFile(source, f.data, 0o600)); err != nil {
			return nil, err
		}
		one := &files.Content{Source: source, Destination: f.name, FileInfo: &files.ContentFileInfo{Mode: f.mode, MTime: r.commit}}
		if f.name == settingsFile {
			one.Type = files.TypeConfigNoReplace
		}
		list = append(list, one)
	}
	return append(list, &files.Content{Destination: "/etc/rollcall", Type: files.TypeDir, FileInfo: &files.ContentFileInfo{Mode: 0o755, MTime: r.commit}}), nil
}
