package integration

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/internal/world"
)

// Admin performs a call through the socket in the node's data directory, where no credential is needed.
func (n *Node) Admin(r Request) Response { return admin(n.Dir, r) }

// admin is Admin for the data directory of a node that this harness did not start.
func admin(dir string, r Request) Response {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return world.DialUnix(ctx, filepath.Join(dir, "admin.sock"))
	}
	local := &http.Transport{DialContext: dial, DisableKeepAlives: true}
	ctx, cancel := context.WithTimeout(context.Background(), CallLimit)
	defer cancel()
	return request(ctx, local, "http://localhost", r)
}

// As returns the node as a principal calls it; an empty token stands for a caller without one.
func (n *Node) As(token string) *Node {
	as := *n
	as.Token = token
	return &as
}

// bootstrap creates the first operator through a node's socket. From now on the harness makes its calls as that
// operator.
func (c *Cluster) bootstrap() {
	c.t.Helper()
	response := untilLed(func() Response {
		return c.Nodes[0].Admin(Request{Method: http.MethodPost, Path: authPath + "bootstrap"})
	})
	c.beOperator(need.Got(decoded[api.NewToken](c.Nodes[0], "bootstrap", response))(c.t))
}

// beOperator makes the harness use a token for its calls.
func (c *Cluster) beOperator(operator api.NewToken) {
	c.secrets.add(operator.Secret)
	for _, n := range c.Nodes {
		n.Token = operator.Secret
	}
}

const authPath = "/v1/rollcall/auth/"

// untilLed repeats ask until a leader responds.
func untilLed(ask func() Response) (response Response) {
	_ = Poll(ReadyLimit, func() error { // the response has the result
		response = ask()
		return unless(response.Status != 0 && response.Status/100 != 5, "%v", response)
	})
	return response
}

// PutRole creates a role, or changes it.
func (c *Cluster) PutRole(t testing.TB, name string, rules ...string) {
	t.Helper()
	body := need.Got(json.Marshal(api.Role{Rules: rules}))(t)
	response := untilLed(func() Response {
		return c.Nodes[0].Do(Request{Method: http.MethodPut, Path: authPath + "roles/" + name, Body: body})
	})
	need.OK(t, response.is(http.StatusOK))
}

// NewToken creates a token for a principal.
func (c *Cluster) NewToken(t testing.TB, name, app string, roles ...string) api.NewToken {
	t.Helper()
	body := need.Got(json.Marshal(api.TokenRequest{Name: name, App: app, Roles: roles}))(t)
	response := untilLed(func() Response {
		return c.Nodes[0].Do(Request{Method: http.MethodPost, Path: authPath + "tokens", Body: body})
	})
	token := need.Got(decoded[api.NewToken](c.Nodes[0], "tokens", response))(t)
	c.secrets.add(token.Secret)
	// Every node must know the token before a client gets it, because the client would not try again.
	for _, n := range c.Running() {
		Eventually(t, ReadyLimit, "node "+n.Name+" knows the token of "+name, func() error {
			return n.As(token.Secret).Get(strings.TrimSuffix(authPath, "/")).is(http.StatusOK)
		})
	}
	return token
}

// secrets are what a test's programs know and must not reveal: secrets of tokens, and passwords.
type secrets struct {
	mu    sync.Mutex
	texts map[string][][]byte // ways to write it, by secret
	leaks []string            // where one shows
}

// add adds the text of a token, or a password.
func (s *secrets) add(text string) {
	secret := text
	if parts := strings.Split(text, "_"); len(parts) == 4 {
		secret = parts[2] // the rest is known to everybody
	}
	forms := [][]byte{[]byte(secret)}
	for shift := range 3 { // as part of a Basic credential
		encoded := base64.StdEncoding.EncodeToString([]byte(strings.Repeat(" ", shift) + secret))
		forms = append(forms, []byte(encoded[4:len(encoded)-4]))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.texts == nil {
		s.texts = make(map[string][][]byte)
	}
	s.texts[secret] = forms
}

// look looks for the secrets in a text.
func (s *secrets) look(where string, text []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for secret, forms := range s.texts {
		for _, form := range forms {
			if i := bytes.Index(text, form); i >= 0 {
				s.leaks = append(s.leaks, fmt.Sprintf("%s tells %.8s… at %d: %.60q", where, secret, i, text[max(0, i-30):]))
				break
			}
		}
	}
}

// lookPacked is look for a text that may be compressed, or have compressed parts.
func (s *secrets) lookPacked(where string, text []byte) {
	s.look(where, text)
	if bytes.HasPrefix(text, []byte{0x1f, 0x8b}) {
		if unpacked, err := gzip.NewReader(bytes.NewReader(text)); err == nil {
			plain, _ := io.ReadAll(unpacked) // as much as there is
			s.look(where+" (unpacked)", plain)
		}
	}
	frame := []byte{0x28, 0xb5, 0x2f, 0xfd}
	for i := bytes.Index(text, frame); i >= 0; {
		if unpacked, err := zstd.NewReader(bytes.NewReader(text[i:]), zstd.WithDecoderConcurrency(1)); err == nil {
			plain, _ := io.ReadAll(unpacked) // up to the frame's end
			unpacked.Close()
			s.look(where+" (unpacked)", plain)
		}
		next := bytes.Index(text[i+1:], frame)
		if next < 0 {
			break
		}
		i += 1 + next
	}
}

// lookAtProcesses searches everything that is visible while the processes run: their command lines, including those
// of clients, and what nodes show to operators.
func (c *Cluster) lookAtProcesses() {
	for _, file := range need.Got(filepath.Glob("/proc/[0-9]*/cmdline"))(c.t) {
		line, err := os.ReadFile(file)
		if err == nil { // the process may have ended
			c.secrets.look(file+" ("+string(bytes.ReplaceAll(line, []byte{0}, []byte{' '})[:min(len(line), 20)])+"…)", line)
		}
	}
	for _, n := range c.Running() {
		for _, path := range []string{"/metrics", "/", "/v1/rollcall/settings", "/v1/rollcall/peers", "/v1/rollcall/events", authPath + "tokens", authPath + "roles"} {
			n.Do(Request{Path: path, Accept: "*/*"}) // which looks
		}
	}
	n := c.Running()[0]
	for _, path := range []string{"/v1/rollcall/debug/bundle", "/v1/rollcall/snapshot"} {
		response := n.Get(path)
		need.OKf(c.t, response.is(http.StatusOK), "%s, to look for secrets in it", path)
		c.secrets.lookPacked(n.Name+": "+path, response.Body)
	}
}

// lookAtFiles searches what the nodes have left: logs and data.
func (c *Cluster) lookAtFiles() {
	for _, n := range c.Nodes {
		read := func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return nil // a missing file reveals nothing
			}
			text, err := os.ReadFile(path)
			c.secrets.lookPacked(path, text)
			return err
		}
		need.OK(c.t, filepath.WalkDir(n.Dir, read))
		need.OK(c.t, filepath.WalkDir(n.LogFile, read))
	}
}

// expectNoSecretTold fails the test if a secret was seen anywhere.
func (c *Cluster) expectNoSecretTold() {
	c.secrets.mu.Lock()
	defer c.secrets.mu.Unlock()
	for _, leak := range c.secrets.leaks {
		c.t.Errorf("a secret shows: %s", leak)
	}
}

// withUser returns a base URL with a credential in it, for clients that can take one in no other way.
func withUser(base, user, password string) string {
	if password == "" {
		return base
	}
	u, err := url.Parse(base)
	if err != nil {
		panic(err) // it is a test's own
	}
	u.User = url.UserPassword(cmp.Or(user, "any"), password)
	return u.String()
}
