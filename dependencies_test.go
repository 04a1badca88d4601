package rollcall_test

import (
	"os"
	"os/exec"
	"path/filepath"
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
