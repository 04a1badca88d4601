package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/need"
)

// newTokenFor runs rollcall auth hash, and returns the text of a new token and its line of auth.file.
func newTokenFor(t testing.TB, name, role string) (text, line string) {
	t.Helper()
	out := filepath.Join(t.TempDir(), name)
	line = string(runProgram(t, Binary(t), "auth", "hash", "--name", name, "--role", role, "--out", out))
	return strings.TrimSpace(string(need.Got(os.ReadFile(out))(t))), line
}

// writePrivate replaces a file at once, as programs do that hand out secrets.
func writePrivate(t testing.TB, path, text string) {
	t.Helper()
	need.OK(t, os.WriteFile(path+".new", []byte(text), 0o600))
	need.OK(t, os.Rename(path+".new", path))
}
