package certfiles

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestReadRefusesFilesThatOthersCanRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	need.OK(t, os.WriteFile(path, []byte("abcd"), 0o600))
	for _, c := range []struct {
		mode  os.FileMode
		limit int64
		want  string // "" if it is read
	}{
		{0o600, 4, ""}, {0o640, 4, ""}, {0o440, 4, ""}, {0o400, 4, ""},
		{0o644, 4, "mode 0644"}, {0o660, 4, "mode 0660"}, {0o750, 4, "mode 0750"},
		{0o600, 3, "more than 3 bytes"},
	} {
		need.OK(t, os.Chmod(path, c.mode))
		text, err := ReadPrivate(path, c.limit)
		if c.want == "" {
			expect.That(t, err == nil && string(text) == "abcd", "mode %o: got %q, %v", c.mode, text, err)
			continue
		}
		expect.That(t, err != nil && strings.Contains(err.Error(), c.want) && strings.Contains(err.Error(), path) && !strings.Contains(err.Error(), "abcd"),
			"mode %o, %d bytes: got %v, want %q in it", c.mode, c.limit, err, c.want)
	}
}
