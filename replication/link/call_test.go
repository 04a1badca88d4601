package link

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/internal/setting"
)

func TestCallsCarryThePasswordThatTheFileHasNow(t *testing.T) {
	var user, password string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { user, password, _ = r.BasicAuth() }))
	defer server.Close()
	path := filepath.Join(t.TempDir(), "token")
	need.OK(t, os.WriteFile(path, []byte("first\n"), 0o600))
	for _, c := range []struct{ url, user string }{{server.URL, "rollcall"}, {strings.Replace(server.URL, "http://", "http://amy@", 1), "amy"}} {
		p := PeerConfig{URLs: []string{c.url}, TokenFile: path}
		setting.Fill(&p.Flow)
		client := NewClient(p)
		defer client.CloseIdleConnections()
		for _, want := range []string{"first", "second"} {
			need.OK(t, os.WriteFile(path, []byte(want+"\n"), 0o600))
			response, err := client.Get(c.url)
			need.OK(t, err)
			response.Body.Close()
			expect.That(t, user == c.user && password == want, "%s: got %q with %q, want %q with %q", c.url, user, password, c.user, want)
		}
		need.OK(t, os.Chmod(path, 0o644))
		_, err := client.Post(c.url, "text/plain", strings.NewReader("x"))
		expect.That(t, err != nil && strings.Contains(err.Error(), "replication.token-files: "+path+" has mode 0644") && !strings.Contains(err.Error(), "second"), "got %v", err)
		need.OK(t, os.Chmod(path, 0o600))
	}
}
