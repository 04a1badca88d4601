package rollcall_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// clientModules are what a program of another module downloads for package client; docs/dependencies.md says why each.
var clientModules = []string{
	"github.com/beorn7/perks", "github.com/cespare/xxhash/v2", "github.com/klauspost/compress", "github.com/munnerz/goautoneg",
	"github.com/prometheus/client_golang", "github.com/prometheus/client_model", "github.com/prometheus/common", "github.com/prometheus/procfs",
	"github.com/tidwall/btree", "golang.org/x/sys", "google.golang.org/protobuf",
}

// A module with an empty cache gets and builds the client; what lies in the cache then is what its author downloads.
func TestGettingTheClientDownloadsOnlyWhatItNeeds(t *testing.T) {
	here, dir, cache := need.Got(os.Getwd())(t), t.TempDir(), t.TempDir()
	known := strings.TrimSpace(output(t, "go", "env", "GOMODCACHE"))
	need.OK(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte("package main\n\nimport _ \""+module+"/client/balance\"\n\nfunc main() {}\n"), 0o600))
	need.OK(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module example.org/user\n\ngo 1.26.0\n\nreplace "+module+" => "+here+"\n"), 0o600))
	need.OK(t, os.WriteFile(filepath.Join(dir, "go.sum"), need.Got(os.ReadFile("go.sum"))(t), 0o600))
	for _, args := range [][]string{{"get", module + "/client@v0.0.0-00010101000000-000000000000"}, {"build", "-o", os.DevNull, "."}} {
		cmd := exec.Command("go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOMODCACHE="+cache, "GOPROXY=file://"+filepath.Join(known, "cache", "download"), "GOFLAGS=-mod=mod -modcacherw -trimpath", "GONOSUMDB=*", "GOWORK=off")
		out, err := cmd.CombinedOutput()
		need.That(t, err == nil, "go %v: %v\n%s", args, err, out)
	}
	var got []string
	root := filepath.Join(cache, "cache", "download")
	need.OK(t, filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		if strings.HasSuffix(path, ".zip") {
			got = append(got, strings.TrimPrefix(filepath.Dir(filepath.Dir(path)), root+"/"))
		}
		return err
	}))
	slices.Sort(got)
	expect.That(t, slices.Equal(got, clientModules), "downloaded are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(clientModules, "\n"))
}

// openLicences are those under which a program may be that we build for tests.
var openLicences = []string{"Apache-2.0", "BSD-3-Clause", "MIT", "MPL-2.0"}

// TestProgramsThatWeTestAgainstHaveARowWithAnOpenLicence compares what integration/clients/wild builds with docs/dependencies.md.
// Whether the licences are as the page says is for a test of the release, which reads them, after each build.
func TestProgramsThatWeTestAgainstHaveARowWithAnOpenLicence(t *testing.T) {
	const page = "docs/dependencies.md"
	text := string(need.Got(os.ReadFile(page))(t))
	built := regexp.MustCompile(`bin/(\S+) (\S+)@(v\S+)`).FindAllStringSubmatch(output(t, "make", "-nB", "-C", "integration/clients/wild", "all", "peers"), -1)
	need.That(t, len(built) > 5, "make builds %q", built)
	for _, b := range built {
		row := regexp.MustCompile("(?m)^\\| `" + regexp.QuoteMeta(b[2]) + "` " + regexp.QuoteMeta(b[3]) + ` \| (\S+) \|`).FindStringSubmatch(text)
		if row == nil {
			t.Errorf("%s is built from %s@%s, and %s has no row of that version with its licence", b[1], b[2], b[3], page)
			continue
		}
		expect.That(t, slices.Contains(openLicences, row[1]), "%s: %s %s is under %s; programs that we test against are under one of %v", page, b[2], b[3], row[1], openLicences)
	}
}
