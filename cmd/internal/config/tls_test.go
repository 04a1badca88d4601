package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestValidateRefusesKeyFilesThatOthersCanRead(t *testing.T) {
	for _, tc := range []struct {
		mode os.FileMode
		ok   bool
	}{{0o600, true}, {0o640, true}, {0o400, true}, {0o644, false}, {0o660, false}, {0o700, false}} {
		path := filepath.Join(t.TempDir(), "key.pem")
		need.OK(t, os.WriteFile(path, nil, tc.mode))
		if err := os.Chmod(path, tc.mode); err != nil { // whatever the umask
			t.Fatal(err)
		}
		err := checkKeyFile("http.tls.key", path)
		expect.That(t, (err == nil) == tc.ok, "mode %#o: %v, want allowed: %v", tc.mode, err, tc.ok)
	}
}
