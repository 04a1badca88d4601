package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// checked is the directory of a release that was made; make release-check names it, and without it these tests are skipped.
func checked(t *testing.T, tools ...string) string {
	t.Helper()
	dir := os.Getenv("ROLLCALL_RELEASE")
	if dir == "" {
		t.Skip("ROLLCALL_RELEASE names no release; make release-check does")
	}
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			lacking(t, tool+" is not installed")
		}
	}
	return dir
}

// lacking skips a test, unless all are wanted.
func lacking(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("ROLLCALL_TEST_ALL") != "" {
		t.Fatal(what)
	}
	t.Skip(what)
}

func asRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		lacking(t, "only root can change the root directory")
	}
}

// one is the only file of a release that a pattern fits.
func one(t *testing.T, dir, pattern string) string {
	t.Helper()
	found := need.Got(filepath.Glob(filepath.Join(dir, pattern)))(t)
	need.That(t, len(found) == 1, "%s: %d files, want one", pattern, len(found))
	return found[0]
}

// output is what a program says, which must end well.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	need.That(t, err == nil, "%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	return string(out)
}

func TestChecksumsAreThoseOfTheFiles(t *testing.T) {
	dir := checked(t)
	sums := string(need.Got(os.ReadFile(filepath.Join(dir, "SHA256SUMS")))(t))
	for _, e := range need.Got(os.ReadDir(dir))(t) {
		if e.Name() == "SHA256SUMS" {
			continue
		}
		line := fmt.Sprintf("%x  %s\n", sha256.Sum256(need.Got(os.ReadFile(filepath.Join(dir, e.Name())))(t)), e.Name())
		expect.That(t, strings.Contains(sums, line), "SHA256SUMS lacks %q", line)
	}
}

func TestReleaseIsTheSameAgain(t *testing.T) {
	dir, again := checked(t), t.TempDir()
	need.OK(t, makeRelease(t.Context(), "..", again, os.Getenv("ROLLCALL_RELEASE_VERSION"), allTargets))
	first, second := need.Got(os.ReadFile(filepath.Join(dir, "SHA256SUMS")))(t), need.Got(os.ReadFile(filepath.Join(again, "SHA256SUMS")))(t)
	expect.Equal(t, string(second), string(first), "checksums of the second release")
}

func TestBinaryAndImageAreAtMost24MB(t *testing.T) {
	dir := checked(t)
	const most = 24 << 20
	root := t.TempDir()
	output(t, "tar", "-xzf", one(t, dir, "*_linux_amd64.tar.gz"), "-C", root, "--strip-components=1")
	size := need.Got(os.Stat(filepath.Join(root, "rollcall")))(t).Size()
	expect.That(t, size <= most, "the binary has %d bytes", size)
	image := need.Got(imageOf(t, dir).Size())(t)
	for _, layer := range need.Got(imageOf(t, dir).Layers())(t) {
		image += need.Got(layer.Size())(t)
	}
	expect.That(t, image <= most, "the image has %d bytes", image)
	t.Logf("binary %d bytes, image %d bytes", size, image)
}

// The table is of an earlier commit; it may be off by a fifth of a megabyte.
func TestCostsInTheDocumentsAreThoseOfTheBinary(t *testing.T) {
	checked(t)
	r := need.Got(newRelease(t.Context(), "..", "", t.TempDir(), ""))(t)
	table := costTable(need.Got(r.costs(t.Context()))(t))
	text := string(need.Got(os.ReadFile("../docs/dependencies.md"))(t))
	row := regexp.MustCompile(`(?m)^\| (.*) \| \**([0-9.]+)\** \|$`)
	for _, m := range row.FindAllStringSubmatch(table, -1) {
		var now, then float64
		fmt.Sscan(m[2], &now)
		for _, old := range row.FindAllStringSubmatch(text, -1) {
			if old[1] == m[1] {
				fmt.Sscan(old[2], &then)
			}
		}
		expect.That(t, math.Abs(now-then) <= 0.2 || strings.Contains(m[1], "smaller modules"), "%s: %.2f MB, and %.2f in docs/dependencies.md; run make costs", m[1], now, then)
	}
}

func TestDebHasNoFaultsForLintian(t *testing.T) {
	dir := checked(t, "lintian")
	for _, arch := range []string{"amd64", "arm64"} {
		output(t, "lintian", "--fail-on", "error", "--allow-root", "--tag-display-limit", "0", one(t, dir, "*_"+arch+".deb"))
	}
}

func TestRPMIsWhole(t *testing.T) {
	dir := checked(t, "rpm")
	for _, arch := range []string{"x86_64", "aarch64"} {
		path := one(t, dir, "*."+arch+".rpm")
		output(t, "rpm", "-K", "--nosignature", path)
		list := output(t, "rpm", "-qpl", "--nosignature", path)
		for _, name := range []string{"/usr/bin/rollcall", settingsFile, "/usr/lib/systemd/system/rollcall.service", "/usr/lib/sysusers.d/rollcall.conf",
			"/usr/share/man/man1/rollcall-server.1.gz", "/usr/share/bash-completion/completions/rollcall"} {
			expect.That(t, strings.Contains(list, name+"\n"), "%s lacks %s", path, name)
		}
		expect.That(t, strings.TrimSpace(output(t, "rpm", "-qpc", "--nosignature", path)) == settingsFile, "the files of settings are not %s alone", settingsFile)
		expect.That(t, strings.TrimSpace(output(t, "rpm", "-qp", "--nosignature", "--qf", "%{BUILDHOST}", path)) == "localhost", "it names the machine that built it")
	}
}

// The life of a package on a machine without Go: installed, started as its unit says, upgraded while the node runs, removed,
// installed again, and purged. No data are lost before the purge.
func TestDebInAChroot(t *testing.T) {
	dir := checked(t, "mmdebstrap", "chroot")
	asRoot(t)
	older := one(t, dir, "*_amd64.deb")
	newer := t.TempDir()
	need.OK(t, makeRelease(t.Context(), "..", newer, "v999.0.0", []string{"linux/amd64"}))
	root := filepath.Join(t.TempDir(), "root")
	sources := "/etc/apt/sources.list.d/debian.sources"
	if _, err := os.Stat(sources); err != nil {
		sources = "/etc/apt/sources.list"
	}
	output(t, "mmdebstrap", "--variant=minbase", "--include=adduser", "bookworm", root, sources)
	t.Cleanup(func() { os.RemoveAll(root) }) // of other users
	m := &machine{root: root, port: freePort(t)}

	said := m.dpkg(t, "-i", older)
	expect.That(t, strings.Contains(said, "installed and not started"), "the installation said\n%s", said)
	expect.Equal(t, strings.TrimSpace(m.in(t, "stat", "-c", "%U:%G %a", settingsFile, "/var/lib/rollcall")), "root:rollcall 640\nrollcall:rollcall 700", "owners and modes")
	stop := m.start(t)
	m.in(t, "rollcall", "status", "--addr", m.address())
	m.in(t, "rollcall", "kv", "put", "--addr", m.address(), "kept", "yes")
	settings := filepath.Join(root, settingsFile)
	edited := append(need.Got(os.ReadFile(settings))(t), "# mine\n"...)
	need.OK(t, os.WriteFile(settings, edited, 0o640))

	m.dpkg(t, "-i", one(t, newer, "*_amd64.deb"))
	m.in(t, "rollcall", "status", "--addr", m.address()) // the node of before the upgrade runs on, until systemd starts it again
	stop()
	expect.That(t, bytes.Equal(need.Got(os.ReadFile(settings))(t), edited), "the upgrade changed %s", settingsFile)
	expect.That(t, strings.Contains(m.in(t, "rollcall", "version"), "v999.0.0"), "the upgrade left the old program")
	stop = m.start(t)
	m.keeps(t)
	stop()

	said = m.dpkg(t, "-r", "rollcall")
	expect.That(t, strings.Contains(said, "data stays in /var/lib/rollcall"), "the removal said\n%s", said)
	_, err := os.Stat(filepath.Join(root, "usr/bin/rollcall"))
	expect.That(t, errors.Is(err, os.ErrNotExist), "the program is still there: %v", err)
	m.dpkg(t, "-i", one(t, newer, "*_amd64.deb"))
	stop = m.start(t)
	m.keeps(t)
	stop()

	said = m.dpkg(t, "-P", "rollcall")
	for _, gone := range []string{"/var/lib/rollcall", "/etc/rollcall"} {
		_, err := os.Stat(filepath.Join(root, gone))
		expect.That(t, errors.Is(err, os.ErrNotExist) && strings.Contains(said, "Removed "+gone), "%s after the purge: %v; it said\n%s", gone, err, said)
	}
}

// machine is a chroot with one node.
type machine struct {
	root string
	port int
}

func (m *machine) address() string { return fmt.Sprintf("http://127.0.0.1:%d", m.port) }

// in runs a program of the machine.
func (m *machine) in(t *testing.T, args ...string) string {
	t.Helper()
	return output(t, "chroot", append([]string{m.root}, args...)...)
}

// dpkg installs a package file, or does something else with a package.
func (m *machine) dpkg(t *testing.T, act, what string) string {
	t.Helper()
	if act == "-i" {
		need.OK(t, os.WriteFile(filepath.Join(m.root, "tmp", "p.deb"), need.Got(os.ReadFile(what))(t), 0o644))
		what = "/tmp/p.deb"
	}
	return m.in(t, "dpkg", "--force-confold", act, what)
}

// start runs the command of the unit as its user, until stop is called or the test ends, and waits until the node is ready.
func (m *machine) start(t *testing.T) (stop func()) {
	t.Helper()
	unit := string(need.Got(os.ReadFile(filepath.Join(m.root, "usr/lib/systemd/system/rollcall.service")))(t))
	setting := func(key string) string {
		value := regexp.MustCompile(`(?m)^` + key + `=(.*)$`).FindStringSubmatch(unit)
		need.That(t, value != nil, "the unit has no %s", key)
		return value[1]
	}
	args := append([]string{"--userspec=" + setting("User") + ":" + setting("Group"), m.root}, strings.Fields(setting("ExecStart"))...)
	return run(t, m.address(), exec.Command("chroot", args...), fmt.Sprintf("ROLLCALL_HTTP_ADDR=127.0.0.1:%d", m.port))
}

// keeps says whether the key is there that was put before.
func (m *machine) keeps(t *testing.T) {
	t.Helper()
	got := m.in(t, "rollcall", "kv", "get", "--addr", m.address(), "kept")
	expect.That(t, strings.Contains(got, "yes"), "the key is %q", got)
}

// run starts a node and waits until it is ready. stop ends it, and wants exit code 0.
func run(t *testing.T, address string, cmd *exec.Cmd, env ...string) (stop func()) {
	t.Helper()
	var log bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), env...), &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	need.OK(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	ready := exec.CommandContext(ctx, "curl", "-sf", "--retry", "1000", "--retry-delay", "1", "--retry-all-errors", "-o", os.DevNull, address+"/readyz")
	if out, err := ready.CombinedOutput(); err != nil {
		cmd.Process.Kill()
		t.Fatalf("the node is not ready: %v %s; it ended with %v and said\n%s", err, out, <-ended, log.Bytes())
	}
	return func() {
		t.Helper()
		need.OK(t, cmd.Process.Signal(syscall.SIGTERM))
		need.OK(t, <-ended)
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	l := need.Got(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// imageOf is the image for linux/amd64 of a release.
func imageOf(t *testing.T, dir string) v1.Image {
	t.Helper()
	unpacked := t.TempDir()
	output(t, "tar", "-xf", one(t, dir, "*_image.tar"), "-C", unpacked)
	outer := need.Got(layout.ImageIndexFromPath(unpacked))(t)
	inner := need.Got(outer.ImageIndex(need.Got(outer.IndexManifest())(t).Manifests[0].Digest))(t)
	for _, m := range need.Got(inner.IndexManifest())(t).Manifests {
		if m.Platform.Architecture == "amd64" {
			return need.Got(inner.Image(m.Digest))(t)
		}
	}
	t.Fatal("the image lacks amd64")
	return nil
}

func TestImageRunsAsItsUserOnAReadOnlyRoot(t *testing.T) {
	dir := checked(t, "unshare", "chroot", "tar", "curl")
	asRoot(t)
	image := imageOf(t, dir)
	config := need.Got(image.ConfigFile())(t).Config
	expect.Equal(t, config.User, "65532:65532", "user")
	expect.That(t, !strings.Contains(strings.Join(config.Env, " "), "ROLLCALL_"), "the image sets %q, which would count before a mounted file", config.Env)
	root := t.TempDir()
	unpack := exec.Command("tar", "-xp", "--numeric-owner", "-C", root)
	unpack.Stdin = mutate.Extract(image)
	out, err := unpack.CombinedOutput()
	need.That(t, err == nil, "%v: %s", err, out)
	roots := need.Got(os.ReadFile(filepath.Join(root, "etc/ssl/certs/ca-certificates.crt")))(t)
	expect.That(t, bytes.Count(roots, []byte("BEGIN CERTIFICATE")) > 50, "the image trusts few authorities")

	data, port := t.TempDir(), freePort(t)
	need.OK(t, os.Chown(data, imageUser, imageUser))
	inside := func(args ...string) *exec.Cmd {
		script := `mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && mount --bind "$2" "$1/var/lib/rollcall" && r="$1" && shift 2 && exec chroot --userspec=` +
			config.User + ` "$r" "$@"`
		args = append([]string{"--mount", "sh", "-c", script, "sh", root, data}, append(config.Entrypoint, args...)...)
		cmd := exec.Command("unshare", args...)
		cmd.Env = config.Env
		return cmd
	}
	refused, err := inside("config", "init", "/tmp.yaml").CombinedOutput()
	expect.That(t, err != nil && strings.Contains(string(refused), "read-only file system"), "it could write: %v %s", err, refused)
	address := fmt.Sprintf("127.0.0.1:%d", port)
	stop := run(t, "http://"+address, inside(append(config.Cmd, "--http-addr", address)...), config.Env...)
	status, err := inside("status", "--addr", "http://"+address).CombinedOutput()
	expect.That(t, err == nil, "status: %v\n%s", err, status)
	stop()
	expect.That(t, len(need.Got(os.ReadDir(data))(t)) > 0, "the node left no data in its volume")
}

// Programs for other machines cannot be run here; what they are is read from their headers.
func TestArchivesHaveProgramsForTheirPlatforms(t *testing.T) {
	dir := checked(t)
	for platform, magic := range map[string]string{"linux_amd64": "\x7fELF", "linux_arm64": "\x7fELF", "darwin_amd64": "\xcf\xfa\xed\xfe", "darwin_arm64": "\xcf\xfa\xed\xfe"} {
		f := need.Got(os.Open(one(t, dir, "*_"+platform+".tar.gz")))(t)
		defer f.Close()
		names := map[string]bool{}
		for r := tar.NewReader(need.Got(gzip.NewReader(f))(t)); ; {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			need.OK(t, err)
			base := h.Name[strings.Index(h.Name, "/")+1:]
			names[base] = true
			if base == "rollcall" || base == "rollcall-bench" {
				head := make([]byte, 4)
				need.Got(io.ReadFull(r, head))(t)
				expect.That(t, string(head) == magic && h.Mode == 0o755, "%s: %s begins with %q, mode %o", platform, base, head, h.Mode)
			}
		}
		for _, name := range []string{"rollcall", "rollcall-bench", "LICENSE", "README.md", "THIRD-PARTY.txt", "completions/_rollcall", "man/rollcall.1", "deploy/systemd/rollcall.service"} {
			expect.That(t, names[name], "%s: no %s", platform, name)
		}
	}
	one(t, dir, "*_windows_amd64.zip")
}
