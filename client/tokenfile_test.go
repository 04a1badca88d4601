package client

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/client/internal/fake"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

const canary = "rct_canary"

// credentials records what requests present, and refuses all others than the one that is good.
type credentials struct {
	good string
	seen []string
}

func (c *credentials) respond(r *http.Request) (*http.Response, error) {
	c.seen = append(c.seen, r.Header.Get("Authorization"))
	if c.seen[len(c.seen)-1] != c.good {
		return fake.Respond(401, `{"error":"the token is not known here"}`)
	}
	return fake.Respond(200, "{}")
}

func TestTokenOfAFileIsExchangedWithoutARestart(t *testing.T) {
	var said bytes.Buffer
	file := filepath.Join(t.TempDir(), "token")
	need.OK(t, os.WriteFile(file, []byte(canary+"1\n"), 0o600))
	at := need.Got(os.Stat(file))(t).ModTime()
	server := &credentials{good: "Bearer " + canary + "1"}
	c := need.Got(New(Config{Servers: fake.URLs("a"), TokenFile: file, Log: slog.New(slog.NewTextHandler(&said, nil)), HTTPClient: &http.Client{Transport: fake.Servers{"a": server.respond}}}))(t)
	call := func() error { _, err := c.Status(t.Context()); return err }
	need.OK(t, call())

	server.good = "Bearer " + canary + "2"
	need.OK(t, os.WriteFile(file, []byte(canary+"2\n"), 0o600))
	need.OK(t, os.Chtimes(file, at, at)) // of the same size and time
	expect.OKf(t, call(), "after the exchange")
	expect.OKf(t, c.Renew(t.Context(), key, 7), "a heartbeat")

	for _, broken := range []string{"", "two words", strings.Repeat("x", longestToken+1), "l\u00f6we"} {
		need.OK(t, os.WriteFile(file, []byte(broken), 0o600))
		expect.OKf(t, call(), "with a file of %.10q the last token stays in use", broken)
	}
	need.OK(t, os.Remove(file))
	expect.OKf(t, call(), "without the file")
	expect.That(t, strings.Count(said.String(), "WARN") == 1 && strings.Contains(said.String(), file), "the log says %q, want one warning that names the file", &said)

	server.good = "Bearer " + canary + "3"
	err := call()
	expect.That(t, errors.Is(err, ErrUnauthenticated) && !errors.Is(err, ErrDenied) && strings.Contains(err.Error(), "not known here"), "a token that is not good any more: %v", err)
	need.OK(t, os.WriteFile(file, []byte(canary+"3"), 0o600))
	expect.OKf(t, call(), "when the file is there again")
	expect.That(t, !strings.Contains(said.String(), canary) && !strings.Contains(err.Error(), canary), "%q or %v shows the token", &said, err)
}

func TestTokenThatIsNoneIsAMistakeOfTheConfiguration(t *testing.T) {
	expect.OK(t, checkToken(strings.Repeat("x", longestToken)))
	file := filepath.Join(t.TempDir(), "token")
	need.OK(t, os.WriteFile(file, []byte("\n"), 0o600))
	bearer := BearerAuth(nil)
	for name, tc := range map[string]struct {
		config Config
		says   string
	}{
		"an empty file":  {Config{TokenFile: file}, file + ": it is empty"},
		"no file":        {Config{TokenFile: file + ".missing"}, "no such file"},
		"two words":      {Config{Token: canary + " x"}, "one word"},
		"two lines":      {Config{Token: canary + "\nX-Other: 1"}, "one word"},
		"twice":          {Config{Token: canary, TokenFile: file}, "more than one of Auth, Token and TokenFile"},
		"beside Auth":    {Config{Token: canary, Auth: bearer}, "more than one of Auth, Token and TokenFile"},
		"another client": {Config{Servers: []string{"unix:/x"}, HTTPClient: http.DefaultClient}, "leave HTTPClient out"},
	} {
		if tc.config.Servers == nil {
			tc.config.Servers = fake.URLs("a")
		}
		_, err := New(tc.config)
		expect.That(t, err != nil && strings.Contains(err.Error(), tc.says) && !strings.Contains(err.Error(), canary), "%s: %v, want %q and no token", name, err, tc.says)
	}
}

// TestTokenStaysWithItsServer, also with an HTTPClient that follows redirects: net/http would send it to another port.
func TestTokenStaysWithItsServer(t *testing.T) {
	var told []string
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { told = append(told, r.Header.Get("Authorization")) }))
	defer other.Close()
	server := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer server.Close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	for _, given := range []*http.Client{nil, {Transport: transport}} {
		c := need.Got(New(Config{Servers: []string{server.URL}, Token: canary, HTTPClient: given}))(t)
		_, err := c.Status(t.Context())
		expect.That(t, err != nil && strings.Contains(err.Error(), "307") && !strings.Contains(err.Error(), canary), "got %v, want that it is a redirect", err)
		need.OK(t, c.Close(t.Context()))
	}
	expect.That(t, len(told) == 0, "another server was told %q", told)
}

func TestServerIsCalledByItsSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), strings.Repeat("a long name/", 15), "admin.sock")
	need.OK(t, os.MkdirAll(filepath.Dir(path), 0o700))
	short := filepath.Join(t.TempDir(), "s")
	need.OK(t, os.Symlink(filepath.Dir(path), short))
	l := need.Got(net.Listen("unix", filepath.Join(short, "admin.sock")))(t)
	var host, uri string
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, uri = r.Host, r.RequestURI
		w.Write([]byte(`{"mode":"on"}`))
	}), ReadHeaderTimeout: time.Minute}
	go server.Serve(l)
	for _, address := range []string{"unix:" + path, "unix://" + path} {
		c := need.Got(New(Config{Servers: []string{address}}))(t)
		got, err := c.AuthStatus(t.Context())
		expect.That(t, err == nil && got.Mode == "on" && host == "localhost" && uri == "/v1/rollcall/auth", "%s: %+v, %v, asked %s for %s", address, got, err, host, uri)
		need.OK(t, c.Close(t.Context()))
	}
	need.OK(t, server.Close())
	c := need.Got(New(Config{Servers: []string{"unix:" + path}}))(t)
	_, err := c.AuthStatus(t.Context())
	expect.That(t, err != nil && strings.Contains(err.Error(), `"unix:`+path+`:/v1/rollcall/auth"`) && !errors.Is(err, ErrUnknownOutcome), "without a server: %v, want the path in it", err)
	need.OK(t, c.Close(t.Context()))
}
