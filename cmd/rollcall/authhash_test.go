package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/cmd/internal/authfile"
	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func authHash(t *testing.T, stdin string, args ...string) (out, shown string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := newAuthHash()
	cmd.SetArgs(args)
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	err = cmd.Execute()
	return stdout.String(), stderr.String(), err
}

func TestAuthHashMakesALineAndGivesTheTextOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "orders.token")
	args := []string{"--name", "orders", "--role", "service", "--app", "ORDERS", "--expires", "1h"}
	out, shown, err := authHash(t, "", append(args, "--out", path)...)
	need.OK(t, err)
	info := need.Got(os.Stat(path))(t)
	text := strings.TrimSpace(string(need.Got(os.ReadFile(path))(t)))
	expect.That(t, info.Mode().Perm() == 0o600 && shown == "" && !strings.Contains(out, text), "mode %o, shown %q, %q", info.Mode().Perm(), shown, out)
	c := need.Got(authfile.Parse("f", []byte("roles: {service: []}\ntokens:\n"+out)))(t)
	k := c.Tokens[0]
	expect.That(t, k.Good(access.HashOf(text), k.Expires-1) && !k.Good(access.HashOf(text), k.Expires) && k.App == "ORDERS", "got %+v", k)

	_, _, err = authHash(t, "", append(args, "--out", path)...)
	expect.That(t, err != nil && strings.Contains(err.Error(), "there already"), "a file was overwritten: %v", err)

	again, shown, err := authHash(t, text+"\n", "--name", "orders", "--role", "service", "--app", "ORDERS", "--from", "-")
	need.OK(t, err)
	expect.That(t, shown == "" && strings.HasPrefix(out, again), "got %q, want the same but for the end as %q", again, out)

	out, shown, err = authHash(t, "", "--name", "orders", "--accessor", k.Accessor)
	need.OK(t, err)
	other := need.Got(authfile.TokenOf(strings.TrimSpace(shown[strings.LastIndex(shown, "rct_"):])))(t)
	expect.That(t, other.Accessor == k.Accessor && other.Secrets[0] != k.Secrets[0] && strings.Contains(out, k.Accessor), "got %+v of %s", other, k.Accessor)
}

func TestAuthHashRepeatsNoTextInErrors(t *testing.T) {
	text := authfile.NewText("")
	for _, c := range []struct {
		stdin string
		args  []string
		want  string
	}{
		{text[:60], []string{"--name", "a", "--from", "-"}, "it was cut off"},
		{"canary", []string{"--name", "a", "--from", "-"}, "the credential is no token"},
		{"", []string{"--name", "a", "--accessor", text}, "--accessor"},
		{text, []string{"--from", "-"}, "give --name"},
	} {
		out, shown, err := authHash(t, c.stdin, c.args...)
		expect.That(t, err != nil && strings.Contains(err.Error(), c.want) && !strings.Contains(err.Error()+out+shown, text[21:59]) && !strings.Contains(err.Error(), "canary"), "%q: got %v", c.args, err)
	}
}
