package main

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"debug/macho"
	"debug/pe"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// checked returns the directory of a finished release; make release-check names it, and without it these tests are
// skipped.
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

// lacking skips a test, unless all are required.
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

// one returns the only file of a release that matches a pattern.
func one(t *testing.T, dir, pattern string) string {
	t.Helper()
	found := need.Got(filepath.Glob(filepath.Join(dir, pattern)))(t)
	need.That(t, len(found) == 1, "%s: %d files, want one", pattern, len(found))
	return found[0]
}

func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	need.That(t, err == nil, "%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	return string(out)
}

func TestChecksumsMatchTheFiles(t *testing.T) {
	dir := checked(t)
	sums := string(need.Got(os.ReadFile(filepath.Join(dir, "SHA256SUMS")))(t))
	for _, e := range need.Got(os.ReadDir(dir))(t) {
		if strings.HasPrefix(e.Name(), sumsFile) { // and its signature
			continue
		}
		line := fmt.Sprintf("%x  %s\n", sha256.Sum256(need.Got(os.ReadFile(filepath.Join(dir, e.Name())))(t)), e.Name())
		expect.That(t, strings.Contains(sums, line), "SHA256SUMS lacks %q", line)
	}
}

// TestMain is the program itself when TestReleaseIsTheSameAgain starts it.
func TestMain(m *testing.M) {
	if os.Getenv("ROLLCALL_RELEASE_AGAIN") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// The second release is made with other settings of the go command, another time zone and other permissions for new
// files.
func TestReleaseIsTheSameAgain(t *testing.T) {
	dir, again := checked(t), t.TempDir()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `umask 077 && exec "$@"`, "sh", need.Got(os.Executable())(t),
		"-root", "..", "-out", again, "-version", os.Getenv("ROLLCALL_RELEASE_VERSION"), "-targets", strings.Join(platforms(t, dir), ","))
	cmd.Env = append(os.Environ(), "ROLLCALL_RELEASE_AGAIN=1", "GOFLAGS=-tags=x", "GOAMD64=v3", "GOFIPS140=latest", "TZ=Asia/Kathmandu", "ROLLCALL_LOG_LEVEL=debug")
	out, err := cmd.CombinedOutput()
	need.That(t, err == nil, "%v: %s", err, out)
	first, second := need.Got(os.ReadFile(filepath.Join(dir, "SHA256SUMS")))(t), need.Got(os.ReadFile(filepath.Join(again, "SHA256SUMS")))(t)
	expect.Equal(t, string(second), string(first), "checksums of the second release")
}

// platforms returns those that a release has archives for. TestArchivesHaveProgramsForTheirPlatforms requires all.
func platforms(t *testing.T, dir string) []string {
	t.Helper()
	return slices.DeleteFunc(slices.Clone(allTargets), func(platform string) bool {
		return len(need.Got(filepath.Glob(filepath.Join(dir, "*_"+strings.Replace(platform, "/", "_", 1)+".[tz]*")))(t)) == 0
	})
}

// filesOf returns the files of the archive for a platform, by name, without the folder that they are all in.
func filesOf(t *testing.T, dir, platform string) map[string]file {
	t.Helper()
	base, files := "*_"+strings.Replace(platform, "/", "_", 1), map[string]file{}
	add := func(name string, mode os.FileMode, r io.Reader) {
		_, name, _ = strings.Cut(name, "/")
		files[name] = file{name: name, mode: mode, data: need.Got(io.ReadAll(r))(t)}
	}
	if strings.HasPrefix(platform, "windows/") {
		z := need.Got(zip.OpenReader(one(t, dir, base+".zip")))(t)
		defer z.Close()
		for _, f := range z.File {
			r := need.Got(f.Open())(t)
			add(f.Name, f.Mode(), r)
			need.OK(t, r.Close())
		}
		return files
	}
	f := need.Got(os.Open(one(t, dir, base+".tar.gz")))(t)
	defer f.Close()
	for r := tar.NewReader(need.Got(gzip.NewReader(f))(t)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		need.OK(t, err)
		add(h.Name, h.FileInfo().Mode(), r)
	}
}

// programsOf returns the programs among the files of an archive.
func programsOf(files map[string]file) (programs []file) {
	for _, name := range []string{"rollcall", "rollcall-bench", "rollcall.exe"} {
		if f, ok := files[name]; ok {
			programs = append(programs, f)
		}
	}
	return programs
}

func TestBinaryAndImageAreAtMost24MB(t *testing.T) {
	dir := checked(t)
	const most = 24_000_000
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

// The table comes from an earlier commit; it may be off by a fifth of a megabyte.
func TestCostsInTheDocumentsMatchTheBinary(t *testing.T) {
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
			"/usr/share/man/man1/rollcall-server.1.gz", "/usr/share/bash-completion/completions/rollcall", "/usr/share/zsh/site-functions/_rollcall"} {
			expect.That(t, strings.Contains(list, name+"\n"), "%s lacks %s", path, name)
		}
		expect.That(t, strings.TrimSpace(output(t, "rpm", "-qpc", "--nosignature", path)) == settingsFile, "the files of settings are not %s alone", settingsFile)
		expect.That(t, strings.TrimSpace(output(t, "rpm", "-qp", "--nosignature", "--qf", "%{BUILDHOST}", path)) == "localhost", "it names the machine that built it")
	}
}

// A package on a machine without Go.
func TestDebInAChroot(t *testing.T) {
	dir := checked(t, "mmdebstrap", "chroot", "unshare", "rpm", "curl")
	asRoot(t)
	made := t.TempDir()
	need.OK(t, makeRelease(t.Context(), "..", made, "v999.0.0-rc.1", []string{"linux/amd64"}, "", ""))
	root := filepath.Join(t.TempDir(), "root")
	sources := "/etc/apt/sources.list.d/debian.sources"
	if _, err := os.Stat(sources); err != nil {
		sources = "/etc/apt/sources.list"
	}
	output(t, "mmdebstrap", "--variant=minbase", "--include=adduser", "bookworm", root, sources)
	t.Cleanup(func() { os.RemoveAll(root) }) // of other users
	m := &machine{root: root, port: freePort(t)}
	m.copy(t, one(t, dir, "*_amd64.deb"), older)
	m.copy(t, one(t, made, "*_amd64.deb"), newer)

	t.Run("life", m.life)
	t.Run("edited and deleted settings", m.settings)
	t.Run("purge of a volume", m.purge)
	t.Run("systemd", m.systemd)
	t.Run("rpm", func(t *testing.T) { m.rpm(t, one(t, dir, "*.x86_64.rpm"), one(t, made, "*.x86_64.rpm")) })
}

// The packages of the two builds, as the machine has them.
const older, newer = "/tmp/older.deb", "/tmp/newer.deb"

// life takes a package through its life: installed, started as its unit says, upgraded while the node runs, removed,
// installed again, and purged. No data are lost before the purge.
func (m *machine) life(t *testing.T) {
	said := m.dpkg(t, "-i", older)
	expect.That(t, strings.Contains(said, "installed and not started"), "the installation said\n%s", said)
	expect.Equal(t, strings.TrimSpace(m.in(t, "stat", "-c", "%U:%G %a", settingsFile, "/var/lib/rollcall")), "root:rollcall 640\nrollcall:rollcall 700", "owners and modes")
	stop := m.start(t)
	m.in(t, "rollcall", "status", "--addr", m.address())
	m.in(t, "rollcall", "kv", "put", "--addr", m.address(), "kept", "yes")
	edited := m.edit(t)

	m.dpkg(t, "-i", newer)
	m.in(t, "rollcall", "status", "--addr", m.address()) // the old node keeps running until systemd restarts it
	stop()
	expect.Equal(t, m.read(t, settingsFile), edited, "settings after the upgrade")
	expect.That(t, strings.Contains(m.in(t, "rollcall", "version"), "v999.0.0"), "the upgrade left the old program")
	stop = m.start(t)
	m.keeps(t)
	stop()

	said = m.dpkg(t, "-r", "rollcall")
	expect.That(t, strings.Contains(said, "data stays in /var/lib/rollcall") && strings.Contains(said, "settings stay in "+settingsFile), "the removal said\n%s", said)
	expect.That(t, !m.has("/usr/bin/rollcall"), "the program is still there")
	m.dpkg(t, "-i", newer)
	stop = m.start(t)
	m.keeps(t)
	stop()

	said = m.dpkg(t, "-P", "rollcall")
	for _, gone := range []string{"/var/lib/rollcall", "/etc/rollcall"} {
		expect.That(t, !m.has(gone) && strings.Contains(said, "Removed "+gone), "%s is still there, or nothing said that it went:\n%s", gone, said)
	}
}

// settings checks that settings are kept as their administrator left them: edited, even if the package has others,
// and deleted.
func (m *machine) settings(t *testing.T) {
	m.in(t, "dpkg-deb", "-R", newer, "/tmp/other")
	need.OK(t, os.WriteFile(filepath.Join(m.root, "tmp/other", settingsFile), []byte("# other defaults\n"), 0o640))
	m.in(t, "dpkg-deb", "-Znone", "-b", "/tmp/other", "/tmp/other.deb")
	m.dpkg(t, "-i", older)
	edited := m.edit(t)
	m.dpkg(t, "-i", "/tmp/other.deb")
	expect.Equal(t, m.read(t, settingsFile), edited, "settings after an upgrade with other defaults")
	expect.Equal(t, m.read(t, settingsFile+".dpkg-dist"), "# other defaults\n", "defaults beside them")
	m.dpkg(t, "-P", "rollcall")

	m.dpkg(t, "-i", older)
	need.OK(t, os.Remove(filepath.Join(m.root, settingsFile)))
	m.dpkg(t, "-i", newer)
	expect.That(t, !m.has(settingsFile), "deleted settings came back")
	m.dpkg(t, "-P", "rollcall")
}

// purge empties a volume that is mounted where the data are, and the target of a symbolic link there.
func (m *machine) purge(t *testing.T) {
	volume := filepath.Join(m.root, "srv/volume")
	fill := func() { need.OK(t, os.MkdirAll(filepath.Join(volume, "data", "raft"), 0o700)) }
	empty := func(said, says string) {
		t.Helper()
		expect.That(t, len(need.Got(os.ReadDir(volume))(t)) == 0 && !m.has("/etc/rollcall"), "data or settings stay")
		expect.That(t, strings.Contains(said, says), "the purge does not say %q:\n%s", says, said)
	}
	m.dpkg(t, "-i", older)
	fill()
	empty(output(t, "unshare", "--mount", "sh", "-c", `mount --bind "$1/srv/volume" "$1/var/lib/rollcall" && exec chroot "$1" dpkg -P rollcall`, "sh", m.root),
		"Removed all that was in /var/lib/rollcall. The folder stays")

	m.in(t, "rm", "-rf", "/var/lib/rollcall")
	fill()
	m.in(t, "ln", "-s", "/srv/volume", "/var/lib/rollcall")
	m.dpkg(t, "-i", older)
	empty(m.dpkg(t, "-P", "rollcall"), "Removed /var/lib/rollcall")
	expect.That(t, !m.has("/var/lib/rollcall"), "the link stays")
}

// systemd is asked to restart what runs and to end what goes; whatever the result, the package is installed, or gone.
func (m *machine) systemd(t *testing.T) {
	need.OK(t, os.MkdirAll(filepath.Join(m.root, "run/systemd/system"), 0o755))
	timeout := filepath.Join(m.root, "usr/bin/timeout")
	need.OK(t, os.Rename(timeout, timeout+".real"))
	m.script(t, "timeout", `shift; exec timeout.real 2 "$@"`)
	for _, c := range []struct{ name, script, says string }{
		{name: "works", script: "exit 0"},
		{name: "fails", script: "exit 1", says: "Rollcall is not ready yet, or did not start"},
		{name: "waits for a leader", script: `case "$*" in *try-restart*) sleep 100; echo "waited" >>/tmp/asked ;; esac`, says: "Rollcall is not ready yet, or did not start"},
	} {
		m.script(t, "systemctl", `echo "$*" >>/tmp/asked; `+c.script)
		asked := func(want ...string) {
			t.Helper()
			expect.Slice(t, strings.Split(strings.TrimSpace(m.read(t, "/tmp/asked")), "\n"), want, "%s: what systemctl was asked", c.name)
			need.OK(t, os.Remove(filepath.Join(m.root, "tmp/asked")))
		}
		m.dpkg(t, "-i", older)
		asked("daemon-reload")
		said := m.dpkg(t, "-i", newer)
		asked("daemon-reload", "try-restart rollcall.service")
		expect.That(t, strings.Contains(said, "Rollcall is not") == (c.says != "") && strings.Contains(said, c.says), "%s: the upgrade said\n%s", c.name, said)
		expect.Equal(t, m.in(t, "dpkg-query", "-W", "-f", "${Status}", "rollcall"), "install ok installed", "%s: the package", c.name)
		m.dpkg(t, "-r", "rollcall")
		asked("--no-reload disable --now rollcall.service", "daemon-reload")
		expect.Equal(t, m.in(t, "dpkg-query", "-W", "-f", "${Status}", "rollcall"), "deinstall ok config-files", "%s: the package", c.name)
		m.dpkg(t, "-P", "rollcall")
	}
	need.OK(t, os.RemoveAll(filepath.Join(m.root, "run/systemd")))
}

// rpm does what dpkg does elsewhere. Its removal says where settings are.
func (m *machine) rpm(t *testing.T, older, newer string) {
	does := func(args ...string) string {
		t.Helper()
		return output(t, "rpm", append([]string{"--root", m.root, "--force-debian", "--nodeps", "--nosignature"}, args...)...)
	}
	const stay = "settings stay in " + settingsFile
	said := does("-i", older)
	expect.That(t, strings.Contains(said, "installed and not started"), "the installation said\n%s", said)
	said = does("-e", "rollcall")
	expect.That(t, strings.Contains(said, "data stays in /var/lib/rollcall") && !strings.Contains(said, stay) && !m.has(settingsFile), "the removal said\n%s", said)
	does("-i", older)
	edited := m.edit(t)
	does("-U", newer)
	expect.Equal(t, m.read(t, settingsFile), edited, "settings after the upgrade")
	said = does("-e", "rollcall")
	expect.That(t, strings.Contains(said, stay+".rpmsave") && m.read(t, settingsFile+".rpmsave") == edited, "the removal said\n%s", said)
}

// machine is a chroot with one node.
type machine struct {
	root string
	port int
}

func (m *machine) address() string { return fmt.Sprintf("http://127.0.0.1:%d", m.port) }

func (m *machine) in(t *testing.T, args ...string) string {
	t.Helper()
	return output(t, "chroot", append([]string{m.root}, args...)...)
}

// dpkg does something with a package or a package file, and keeps settings that were edited.
func (m *machine) dpkg(t *testing.T, act, what string) string {
	t.Helper()
	return m.in(t, "dpkg", "--force-confold", act, what)
}

func (m *machine) copy(t *testing.T, from, to string) {
	t.Helper()
	need.OK(t, os.WriteFile(filepath.Join(m.root, to), need.Got(os.ReadFile(from))(t), 0o644))
}

func (m *machine) script(t *testing.T, name, text string) {
	t.Helper()
	need.OK(t, os.WriteFile(filepath.Join(m.root, "usr/bin", name), []byte("#!/bin/sh\n"+text+"\n"), 0o755))
}

func (m *machine) read(t *testing.T, name string) string {
	t.Helper()
	return string(need.Got(os.ReadFile(filepath.Join(m.root, name)))(t))
}

func (m *machine) has(name string) bool {
	_, err := os.Lstat(filepath.Join(m.root, name))
	return err == nil
}

func (m *machine) edit(t *testing.T) string {
	t.Helper()
	edited := m.read(t, settingsFile) + "# mine\n"
	need.OK(t, os.WriteFile(filepath.Join(m.root, settingsFile), []byte(edited), 0o640))
	return edited
}

// start runs the command of the unit as its user, until stop is called or the test ends, and waits until the node is
// ready.
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

// keeps checks that the key that was put before is there.
func (m *machine) keeps(t *testing.T) {
	t.Helper()
	got := m.in(t, "rollcall", "kv", "get", "--addr", m.address(), "kept")
	expect.That(t, strings.Contains(got, "yes"), "the key is %q", got)
}

// run starts a node and waits until it is ready. stop ends it, and checks for exit code 0.
func run(t *testing.T, address string, cmd *exec.Cmd, env ...string) (stop func()) {
	t.Helper()
	var log bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), env...), &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	need.OK(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill() }) // a change of the user forgets Pdeathsig
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

// imageOf returns the image for linux/amd64 of a release.
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
	dir := checked(t, "unshare", "ip", "tar", "curl")
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

	listed := need.Got(os.ReadFile(filepath.Join(root, "usr/share/doc/rollcall/THIRD-PARTY.txt")))(t)
	expect.That(t, regexp.MustCompile(`(?m)^`+authorities+` .* MPL-2\.0$`).Match(listed), "THIRD-PARTY.txt lacks the authorities")

	need.OK(t, os.Mkdir(filepath.Join(root, "proc"), 0o755)) // as whatever runs containers does
	user, group, _ := strings.Cut(config.User, ":")
	inside := func(net, volume string, args ...string) *exec.Cmd {
		need.OK(t, os.Chown(volume, imageUser, imageUser))
		script := `ip link set lo up && mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && mount --bind /proc "$1/proc" && mount --bind "$2" "$1/var/lib/rollcall" && r="$1" && shift 2 && exec unshare --root "$r" --wd ` +
			config.WorkingDir + ` --setgid ` + group + ` --setuid ` + user + ` "$@"`
		args = append([]string{"--mount", net, "sh", "-c", script, "sh", root, volume}, append(config.Entrypoint, args...)...)
		cmd := exec.Command("unshare", slices.DeleteFunc(args, func(arg string) bool { return arg == "" })...)
		cmd.Env = config.Env
		return cmd
	}
	data, address := t.TempDir(), fmt.Sprintf("127.0.0.1:%d", freePort(t))
	refused, err := inside("", data, "config", "init", "/tmp.yaml").CombinedOutput()
	expect.That(t, err != nil && strings.Contains(string(refused), "read-only file system"), "it could write: %v %s", err, refused)
	stop := run(t, "http://"+address, inside("", data, append(config.Cmd, "--http-addr", address)...), config.Env...)
	status, err := inside("", data, "status", "--addr", "http://"+address).CombinedOutput()
	expect.That(t, err == nil, "status: %v\n%s", err, status)
	stop()
	expect.That(t, len(need.Got(os.ReadDir(data))(t)) > 0, "the node left no data in its volume")

	// docs/run/docker.md's first look, whose ports nothing else uses.
	dev := inside("--net", t.TempDir(), "dev", "--demo", "--listen", "0.0.0.0")
	said := need.Got(dev.StdoutPipe())(t)
	var wrong bytes.Buffer
	dev.Stderr = &wrong
	need.OK(t, dev.Start())
	timer := time.AfterFunc(2*time.Minute, func() { dev.Process.Kill() })
	defer timer.Stop()
	lines := bufio.NewScanner(said)
	for lines.Scan() && lines.Text() != "ready" {
		t.Log(lines.Text())
	}
	expect.Equal(t, lines.Text(), "ready", "the last line of dev")
	dev.Process.Signal(syscall.SIGTERM)
	need.Got(io.Copy(io.Discard, said))(t)
	err = dev.Wait()
	expect.That(t, err == nil, "dev: %v\n%s", err, wrong.Bytes())
}

// Programs for other machines cannot be run here; their headers say what they are.
func TestArchivesHaveProgramsForTheirPlatforms(t *testing.T) {
	dir := checked(t)
	for platform, want := range map[string]string{
		"linux/amd64": "EM_X86_64", "linux/arm64": "EM_AARCH64", "darwin/amd64": "CpuAmd64", "darwin/arm64": "CpuArm64", "windows/amd64": "0x8664",
	} {
		files := filesOf(t, dir, platform)
		names := []string{"rollcall", "rollcall-bench"}
		if platform == "windows/amd64" {
			names = []string{"rollcall.exe"}
		}
		for _, name := range append(names, "LICENSE", "README.md", "THIRD-PARTY.txt", "completions/_rollcall", "man/rollcall.1", "deploy/systemd/rollcall.service") {
			_, ok := files[name]
			expect.That(t, ok, "%s: no %s", platform, name)
		}
		for _, program := range programsOf(files) {
			machine, err := machineOf(platform, program.data)
			expect.That(t, err == nil && machine == want && program.mode == 0o755, "%s: %s is for %s, mode %o, %v", platform, program.name, machine, program.mode, err)
			info := need.Got(buildinfo.Read(bytes.NewReader(program.data)))(t)
			expect.Equal(t, path.Base(info.Path), strings.TrimSuffix(program.name, ".exe"), "%s: the program", platform)
		}
	}
}

// machineOf returns the processor that a program is for.
func machineOf(platform string, program []byte) (string, error) {
	r := bytes.NewReader(program)
	switch goos, _, _ := strings.Cut(platform, "/"); goos {
	case "linux":
		f, err := elf.NewFile(r)
		if err != nil {
			return "", err
		}
		return f.Machine.String(), nil
	case "darwin":
		f, err := macho.NewFile(r)
		if err != nil {
			return "", err
		}
		return f.Cpu.String(), nil
	default:
		f, err := pe.NewFile(r)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%#x", f.Machine), nil
	}
}

// The lists of components and licences have what the programs themselves say that they were built from.
func TestComponentsAndLicencesMatchThePrograms(t *testing.T) {
	dir := checked(t)
	for _, platform := range platforms(t, dir) {
		files, want := filesOf(t, dir, platform), map[string]bool{"idiomorph 0.8.0": true}
		for _, program := range programsOf(files) {
			info := need.Got(buildinfo.Read(bytes.NewReader(program.data)))(t)
			want["std "+info.GoVersion] = true
			for _, m := range info.Deps {
				want[m.Path+" "+m.Version] = true
			}
			if program.name == "rollcall-bench" {
				want["echarts 6.1.0"] = true
			}
		}
		var bom cdx.BOM
		list := need.Got(os.ReadFile(one(t, dir, "*_"+strings.Replace(platform, "/", "_", 1)+".cdx.json")))(t)
		need.OK(t, cdx.NewBOMDecoder(bytes.NewReader(list), cdx.BOMFileFormatJSON).Decode(&bom))
		got, texts := map[string]bool{}, string(files["THIRD-PARTY.txt"].data)
		for _, c := range *bom.Components {
			got[c.Name+" "+c.Version] = true
			row := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(c.Name) + ` +` + regexp.QuoteMeta(c.Version) + ` +(.+)$`).FindStringSubmatch(texts)
			expect.That(t, row != nil && row[1] == (*c.Licenses)[0].Expression, "%s: %s has the licence %v in the list and %q in THIRD-PARTY.txt", platform, c.Name, *c.Licenses, row)
		}
		expect.Deep(t, got, want, "%s: components", platform)
		for _, copied := range []string{": internal/github.com/golang/gddo/LICENSE\n", ": zstd/internal/xxhash/LICENSE.txt\n"} {
			expect.That(t, strings.Contains(texts, copied), "%s: THIRD-PARTY.txt lacks %s", platform, copied)
		}
	}
}

func TestLinksOfTheArchivesPagesLeadIntoTheArchive(t *testing.T) {
	dir := checked(t)
	files := filesOf(t, dir, "linux/amd64")
	there, relative := map[string]bool{}, 0
	for name := range files {
		for ; name != "."; name = path.Dir(name) {
			there[name] = true
		}
	}
	code := regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	link := regexp.MustCompile(`(?:\]\(|(?:src|srcset|href)=")([^)#"\s]+)`)
	for page, f := range files {
		if path.Ext(page) != ".md" {
			continue
		}
		for _, found := range link.FindAllSubmatch(code.ReplaceAll(f.data, nil), -1) {
			name := string(found[1])
			if strings.Contains(name, "://") {
				continue
			}
			relative++
			expect.That(t, there[path.Join(path.Dir(page), name)], "%s links to %s, which is not in the archive", page, name)
		}
	}
	expect.That(t, relative > 500, "the pages have %d links to files, want more than 500", relative)
}
