package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/need"
)

// TestReadmeIsTrue runs the blocks of README.md in their order, as they stand, in a clone, and in what ROLLCALL_ARCHIVE names, the
// archive of a release. What a block prints stands right behind it, "…" standing for anything. The Go code of README.md is that of
// the package's examples.
func TestReadmeIsTrue(t *testing.T) {
	installed(t, "node/node_modules/.stamp", "run make clients")
	installed(t, "python/.venv/.stamp", "apt-get install -y python3-venv, then make clients")
	installed(t, "java/target/.stamp", "apt-get install -y default-jdk-headless maven, then make clients")
	t.Parallel()
	t.Run("clone", func(t *testing.T) {
		t.Parallel()
		readReadme(t, cloned(t), "clone", readmeBlocks(t))
	})
	t.Run("release", func(t *testing.T) {
		archive := os.Getenv("ROLLCALL_ARCHIVE")
		if archive == "" {
			t.Skip("ROLLCALL_ARCHIVE names no archive: make release-check does")
		}
		dir := t.TempDir()
		need.OK(t, os.Symlink(archive, filepath.Join(dir, filepath.Base(archive))))
		readReadme(t, dir, "release", readmeBlocks(t))
	})
}

// TestReadmeWithoutStockClientsIsTrue runs the commands of README.md in a clone, and none of its programs for stock clients.
func TestReadmeWithoutStockClientsIsTrue(t *testing.T) {
	t.Parallel()
	var commands []block
	isStock := false
	for _, b := range readmeBlocks(t) {
		isStock = slices.Contains([]string{"yaml", "python", "javascript"}, b.language) || isStock && b.isPrinted
		if !isStock {
			commands = append(commands, b)
		}
	}
	readReadme(t, cloned(t), "clone", commands)
}

func readmeBlocks(t *testing.T) []block {
	t.Helper()
	return blocksOf(t, "../README.md", "# Rollcall\n", "\n## Licence\n")
}

func readReadme(t *testing.T, dir, place string, blocks []block) {
	t.Helper()
	clients := need.Got(filepath.Abs("clients"))(t)
	r := newReader(t, dir, "NODE_PATH="+filepath.Join(clients, "node/node_modules"),
		"PATH="+filepath.Join(clients, "python/.venv/bin")+":"+os.Getenv("PATH"), "GOFLAGS=-trimpath -buildvcs=false")
	r.read(t, "README.md", blocks, place)
}

// cloned is a copy of the project: what git knows of, and what is not committed yet.
func cloned(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	out, err := exec.Command("sh", "-c", `cd .. && git ls-files -coz --exclude-standard | xargs -0 sh -c 'for f; do [ ! -e "$f" ] || printf "%s\0" "$f"; done' sh | xargs -0 cp --parents -t "$1"`, "sh", dir).CombinedOutput()
	need.That(t, err == nil, "copy the project: %v\n%s", err, out)
	return dir
}
