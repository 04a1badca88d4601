package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
)

// allTargets lists the platforms of a release. On Windows the commands are supported; the server is untested there.
var allTargets = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64"}

// release holds what all parts of a release share.
type release struct {
	root, out, work string
	version         string    // from git describe, with its v
	number          string    // version as packages order it
	commit          time.Time // time of every file
	commitID        string
	licence         []byte   // Rollcall's own
	shared          []file   // of all archives and packages: texts, man pages, completions, files of deploy and docs
	licences        licences // of the programs
	ofImage         licences
	config          []byte // of the packages
}

// file is a file of an archive, a package or an image.
type file struct {
	name  string // with slashes
	mode  os.FileMode
	data  []byte
	owner int // user and group
}

// plain returns a file that everybody may read.
func plain(name string, data []byte) file { return file{name: name, mode: 0o644, data: data} }

// target is what was built for one platform.
type target struct {
	os, arch  string
	programs  []string        // their paths on this machine
	modules   []*debug.Module // in any of them, sorted
	folders   []folder        // of the packages in any of them
	goVersion string
}

// folder is where a package of a module is.
type folder struct {
	module, root, path string // the module's import path and directory; the package's directory
}

func newRelease(ctx context.Context, root, out, work, version string) (*release, error) {
	r := &release{root: root, out: out, work: work, version: version}
	head, err := r.run(ctx, nil, "git", "log", "-1", "--format=%ct %H")
	if err != nil {
		return nil, err
	}
	seconds, id, _ := strings.Cut(strings.TrimSpace(string(head)), " ")
	r.commitID = id
	at, err := strconv.ParseInt(cmp.Or(os.Getenv("SOURCE_DATE_EPOCH"), seconds), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	r.commit = time.Unix(at, 0).UTC()
	if r.version == "" {
		// The twelve digits do not depend on how many commits this clone has.
		described, err := r.run(ctx, nil, "git", "describe", "--tags", "--always", "--dirty", "--abbrev=12", "--match", "v*")
		if err != nil {
			return nil, err
		}
		r.version = strings.TrimSpace(string(described))
	}
	experiment, err := r.run(ctx, settings, "go", "env", "GOEXPERIMENT")
	if err == nil && len(bytes.TrimSpace(experiment)) > 0 {
		err = fmt.Errorf("GOEXPERIMENT is %q by go env -w or by the toolchain: a release is without experiments", bytes.TrimSpace(experiment))
	}
	if err != nil {
		return nil, err
	}
	r.number, err = numbered(r.version, r.commit)
	return r, err
}

// run returns the output of a program that runs in the main module.
func (r *release) run(ctx context.Context, env []string, name string, args ...string) ([]byte, error) {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env, cmd.Stderr = r.root, append(os.Environ(), env...), &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, stderr.Bytes())
	}
	return out, nil
}

// described matches a version that git made from a tag, the number of commits since, and a commit; only the commit is
// always there.
var described = regexp.MustCompile(`^(?:v(\d[^-]*)(?:-((?:alpha|beta|rc)[^-]*))?)?(?:-?(?:(\d+)-g)?([0-9a-f]{7,40}))?(-dirty)?$`)

// numbered returns a version in the form that archives, Debian and RPM order correctly: digits first, ~ before what
// precedes a version, + before what follows it, no hyphen.
func numbered(version string, at time.Time) (string, error) {
	m := described.FindStringSubmatch(version)
	if m == nil || m[0] == "" {
		return "", fmt.Errorf("version %q: want v1.2.3, v1.2.3-rc.1, or what git describe makes of a commit", version)
	}
	number, before, commits, commit, dirty := m[1], m[2], m[3], m[4], m[5]
	if number == "" {
		number, commits = "0.0.0", at.Format("20060102150405")
	}
	if before != "" {
		number += "~" + before
	}
	if commit != "" {
		number += "+" + commits + ".g" + commit
	}
	return number + strings.Replace(dirty, "-", ".", 1), nil
}

// name returns the name of a file of the release.
func (r *release) name(rest string) string {
	return filepath.Join(r.out, "rollcall_"+r.number+"_"+rest)
}

// deployed has the files that name the version of the image to deploy, and how they do so.
var deployed = map[string]string{
	"deploy/helm/rollcall/Chart.yaml": "\nappVersion: %s\n",
	"deploy/compose/compose.yaml":     "\n  image: ${ROLLCALL_IMAGE:-rollcall:%s}\n",
}

// checkDeployed returns an error that names the files with a version other than the tag's, if that has no suffix.
// Other versions are not for users.
func (r *release) checkDeployed() error {
	if !regexp.MustCompile(`^v\d+\.\d+\.\d+$`).MatchString(r.version) {
		return nil
	}
	var errs []error
	for name, line := range deployed {
		text, err := os.ReadFile(filepath.Join(r.root, name))
		errs = append(errs, err)
		if want := fmt.Sprintf(line, r.number); err == nil && !strings.Contains(string(text), want) {
			errs = append(errs, fmt.Errorf("%s does not say %q", name, strings.TrimSpace(want)))
		}
	}
	return errors.Join(errs...)
}

// build builds the programs for a platform, stripped. The benchmarks run where their clusters can.
func (r *release) build(ctx context.Context, platform string) (target, error) {
	goos, arch, ok := strings.Cut(platform, "/")
	if !ok {
		return target{}, errors.New("a platform is GOOS/GOARCH")
	}
	t := target{os: goos, arch: arch}
	commands, suffix := []string{"rollcall", "rollcall-bench"}, ""
	if goos == "windows" {
		commands, suffix = commands[:1], ".exe"
	}
	for _, command := range commands {
		program := filepath.Join(r.work, goos+"_"+arch, command+suffix)
		if err := r.compile(ctx, t, command, program, "-s -w"); err != nil {
			return target{}, err
		}
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			return target{}, err
		}
		list, err := r.goFor(ctx, t, "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}\t{{.Dir}}\t{{$.Dir}}{{end}}{{end}}", "./cmd/"+command)
		if err != nil {
			return target{}, err
		}
		for line := range strings.Lines(string(list)) {
			if fields := strings.Split(strings.TrimSpace(line), "\t"); len(fields) == 3 {
				t.folders = append(t.folders, folder{module: fields[0], root: fields[1], path: fields[2]})
			}
		}
		t.programs = append(t.programs, program)
		t.modules = append(t.modules, info.Deps...)
		t.goVersion = info.GoVersion
	}
	slices.SortFunc(t.modules, func(a, b *debug.Module) int { return cmp.Compare(a.Path, b.Path) })
	// all have the versions of one go.mod
	t.modules = slices.CompactFunc(t.modules, func(a, b *debug.Module) bool { return a.Path == b.Path })
	return t, nil
}

// settings are fixed for the go command, so that the release of a commit does not depend on the environment.
var settings = []string{"CGO_ENABLED=0", "GOFLAGS=-buildvcs=true", "GOWORK=off", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOFIPS140=off"}

// goFor runs the go command for a platform.
func (r *release) goFor(ctx context.Context, t target, args ...string) ([]byte, error) {
	return r.run(ctx, append(slices.Clip(settings), "GOOS="+t.os, "GOARCH="+t.arch), "go", args...)
}

// compile builds one program.
func (r *release) compile(ctx context.Context, t target, command, program, link string) error {
	_, err := r.goFor(ctx, t, "build", "-trimpath", "-ldflags", strings.TrimSpace(link+" -funcalign=16 -X main.version="+r.version), "-o", program, "./cmd/"+command)
	return err
}

// makeShared runs the program for this platform to make what is the same on all platforms.
func (r *release) makeShared(ctx context.Context, targets []target) error {
	at := slices.IndexFunc(targets, func(t target) bool { return t.os == runtime.GOOS && t.arch == runtime.GOARCH })
	if at < 0 {
		return fmt.Errorf("the targets lack %s/%s, whose program prints the texts of the release", runtime.GOOS, runtime.GOARCH)
	}
	program := targets[at].programs[0]
	var err error
	if r.config, err = r.run(ctx, nil, program, "config", "init", "--set", "data.dir=/var/lib/rollcall"); err != nil {
		return err
	}
	if r.licences, err = r.findLicences(ctx, targets); err != nil {
		return err
	}
	if r.ofImage, err = r.findImageLicences(ctx); err != nil {
		return err
	}
	r.shared = []file{plain("THIRD-PARTY.txt", r.licences.text())}
	for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md", "SECURITY.md"} {
		text, err := os.ReadFile(filepath.Join(r.root, name))
		if err != nil {
			return err
		}
		r.shared = append(r.shared, plain(name, text))
	}
	r.licence = r.shared[1].data
	for shell, name := range completions {
		text, err := r.run(ctx, nil, program, "completion", shell)
		if err != nil {
			return err
		}
		r.shared = append(r.shared, plain(path.Join("completions", name), text))
	}
	tree, err := r.run(ctx, nil, program, "tree")
	if err != nil {
		return err
	}
	pages, err := manPages(tree, r.commit, r.version)
	if err != nil {
		return err
	}
	r.shared = append(r.shared, pages...)
	// README links into docs, and docs to the scenarios. The data behind the report is larger than the programs.
	listed, err := r.run(ctx, nil, "git", "ls-files", "deploy", ":!deploy/check", "docs", ":!docs/benchmarks/report.[!m]*", "cmd/bench/scenario/scenarios")
	if err != nil {
		return err
	}
	for name := range strings.FieldsSeq(string(listed)) {
		text, err := os.ReadFile(filepath.Join(r.root, name))
		if err != nil {
			return err
		}
		r.shared = append(r.shared, plain(name, text))
	}
	return nil
}

// completions has the names that shells look for.
var completions = map[string]string{"bash": "rollcall", "fish": "rollcall.fish", "zsh": "_rollcall", "powershell": "rollcall.ps1"}

// describedCommand is a command as `rollcall tree` prints it.
type describedCommand struct {
	Use      string             `json:"use"`
	Short    string             `json:"short"`
	Long     string             `json:"long"`
	Example  string             `json:"example"`
	Flags    []describedFlag    `json:"flags"`
	Commands []describedCommand `json:"commands"`
}

// describedFlag is a flag of a command; it is also the value that cobra prints of it.
type describedFlag struct {
	Name      string `json:"name"`
	Shorthand string `json:"shorthand"`
	Kind      string `json:"type"`
	Default   string `json:"default"`
	NoValue   string `json:"no_value"`
	Usage     string `json:"usage"`
}

func (f describedFlag) String() string   { return f.Default }
func (f describedFlag) Set(string) error { return errors.ErrUnsupported }
func (f describedFlag) Type() string     { return f.Kind }

func (d describedCommand) command() *cobra.Command {
	cmd := &cobra.Command{Use: d.Use, Short: d.Short, Long: d.Long, Example: d.Example, Run: func(*cobra.Command, []string) {}, DisableAutoGenTag: true}
	for _, f := range d.Flags {
		cmd.Flags().AddFlag(&pflag.Flag{Name: f.Name, Shorthand: f.Shorthand, Usage: f.Usage, Value: f, DefValue: f.Default, NoOptDefVal: f.NoValue})
	}
	for _, sub := range d.Commands {
		cmd.AddCommand(sub.command())
	}
	return cmd
}

// manPages returns a page for each command.
func manPages(tree []byte, at time.Time, version string) (pages []file, _ error) {
	var root describedCommand
	if err := json.Unmarshal(tree, &root); err != nil {
		return nil, fmt.Errorf("rollcall tree: %w", err)
	}
	header := doc.GenManHeader{Section: "1", Date: &at, Source: "Rollcall " + version, Manual: "Rollcall"}
	var write func(*cobra.Command) error
	write = func(cmd *cobra.Command) error {
		var page bytes.Buffer
		one := header // GenMan fills in the title
		if err := doc.GenMan(cmd, &one, &page); err != nil {
			return err
		}
		pages = append(pages, plain("man/"+strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1", page.Bytes()))
		for _, sub := range cmd.Commands() {
			if err := write(sub); err != nil {
				return err
			}
		}
		return nil
	}
	return pages, write(root.command())
}

// gzipped compresses without a name or a time.
func gzipped(data []byte) []byte {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // the level is valid
	w.Write(data)                                         // a buffer refuses nothing
	w.Close()
	return b.Bytes()
}
