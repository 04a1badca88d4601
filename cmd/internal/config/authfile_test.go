package config

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/access"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// rig is a source that runs in a bubble.
type rig struct {
	*AuthFile
	path string
	log  *strings.Builder
}

func newRig(t *testing.T, text string) *rig {
	t.Helper()
	r := &rig{path: filepath.Join(t.TempDir(), "auth.yaml"), log: new(strings.Builder)}
	need.OK(t, os.WriteFile(r.path, []byte(text), 0o600))
	r.AuthFile = need.Got(OpenAuthFile(r.path, slog.New(slog.NewTextHandler(r.log, nil))))(t)
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(func() { stop(); synctest.Wait() })
	go r.Run(ctx)
	return r
}

// awaitChecks waits until a change must be in force.
func awaitChecks() {
	time.Sleep(5*time.Second - time.Millisecond)
	synctest.Wait()
}

func twoTokens() string { return "tokens:\n" + tokenLine(accessorA, "") + tokenLine(accessorB, "") }

func TestChangedFileIsInForceWithinFiveSeconds(t *testing.T) {
	for name, replace := range map[string]func(t *testing.T, path, text string){
		"written anew": func(t *testing.T, path, text string) { need.OK(t, os.WriteFile(path, []byte(text), 0o600)) },
		"renamed": func(t *testing.T, path, text string) {
			need.OK(t, os.WriteFile(path+".new", []byte(text), 0o600))
			need.OK(t, os.Rename(path+".new", path))
		},
		"link to another": func(t *testing.T, path, text string) {
			need.OK(t, os.WriteFile(path+".data", []byte(text), 0o600))
			need.OK(t, os.Symlink(path+".data", path+".link"))
			need.OK(t, os.Rename(path+".link", path))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, "tokens:\n"+tokenLine(accessorA, ""))
				revision := r.Table().Revision
				replace(t, r.path, twoTokens())
				awaitChecks()
				expect.That(t, r.Table().Holder(accessorB) != nil && r.Table().Revision > revision && r.Failure() == "", "got revision %d, %q, want both tokens", r.Table().Revision, r.Failure())
				revision = r.Table().Revision
				replace(t, r.path+"x", "") // another file
				awaitChecks()
				expect.Equal(t, r.Table().Revision, revision, "of a file that stays as it is: got")
			})
		})
	}
}

func TestFileThatCannotBeReadLeavesInForceWhatWasThere(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(t *testing.T, path string)
		want  string
	}{
		{"no YAML", func(t *testing.T, path string) { need.OK(t, os.WriteFile(path, []byte("tokens: [\n"), 0o600)) }, "auth.yaml: "},
		{"mistake", func(t *testing.T, path string) { need.OK(t, os.WriteFile(path, []byte("tokens: a\n"), 0o600)) }, "auth.yaml:1: tokens must be a list"},
		{"empty", func(t *testing.T, path string) { need.OK(t, os.Truncate(path, 0)) }, "auth.yaml is empty"},
		{"a line that is cut off", func(t *testing.T, path string) { need.OK(t, os.Truncate(path, int64(len(twoTokens())-3))) }, "is cut off"},
		{"no tokens", func(t *testing.T, path string) { need.OK(t, os.WriteFile(path, []byte("mode: on\n"), 0o600)) }, "no longer has any of its 2 tokens"},
		{"mode", func(t *testing.T, path string) { need.OK(t, os.Chmod(path, 0o644)) }, "mode 0644"},
		{"removed", func(t *testing.T, path string) { need.OK(t, os.Remove(path)) }, "no such file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, twoTokens())
				before := r.Table()
				c.spoil(t, r.path)
				for range 3 {
					awaitChecks()
				}
				expect.That(t, r.Table() == before && strings.Contains(r.Failure(), c.want), "got %q, want the old table and %q", r.Failure(), c.want)
				expect.Equal(t, strings.Count(r.log.String(), "level=WARN"), 1, "warnings:")

				_ = os.Remove(r.path)
				need.OK(t, os.WriteFile(r.path, []byte(twoTokens()+"# again\n"), 0o600))
				awaitChecks()
				expect.That(t, r.Table() == before && r.Failure() == "", "got %q, want it to be good again", r.Failure())
			})
		})
	}
}

// A file that is written in two steps is incomplete in between.
func TestFileIsNotJudgedBeforeItIsWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, twoTokens())
		before := r.Table()
		time.Sleep(checkInterval - time.Millisecond)
		need.OK(t, os.WriteFile(r.path, []byte("tokens:\n"+tokenLine(accessorA, "")), 0o600))
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		need.OK(t, os.WriteFile(r.path, []byte(twoTokens()+"# whole\n"), 0o600))
		awaitChecks()
		expect.That(t, r.Table() == before && r.log.Len() == 0, "half of the file was in force: %s", r.log)
	})
}

func TestReloadReadsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, twoTokens())
		need.OK(t, os.WriteFile(r.path, []byte("tokens:\n"+tokenLine(accessorB, "")), 0o600))
		expect.That(t, r.Reload() && r.Table().Holder(accessorA) == nil, "the token is still there")
		expect.That(t, !r.Reload(), "it changed again")
	})
}

// A file without a mode may have been cut off, and nobody whom the node asks for a token would be asked any longer.
func TestModeDoesNotVanish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "mode: on\n"+twoTokens())
		need.OK(t, os.WriteFile(r.path, []byte(twoTokens()), 0o600))
		expect.That(t, !r.Reload() && r.Table().Mode == access.On && strings.Contains(r.Failure(), "write mode: off"), "mode %v, %q", r.Table().Mode, r.Failure())
		need.OK(t, os.WriteFile(r.path, []byte("mode: off\n"+twoTokens()), 0o600))
		expect.That(t, r.Reload() && r.Table().Mode == access.Off, "mode %v, %q", r.Table().Mode, r.Failure())
	})
}

func TestOpenRefusesABadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "auth.yaml")
	need.OK(t, os.WriteFile(path, []byte("tokens: a\n"), 0o600))
	expect.ErrorSays(t, expect.Err(OpenAuthFile(path, slog.New(slog.DiscardHandler))), "auth.yaml:1: ", "got")
}

const (
	accessorA = "aaaaaaaaaaaaaaaa"
	accessorB = "bbbbbbbbbbbbbbbb"
)

var (
	hashA = strings.Repeat("0a", 32)
	hashB = strings.Repeat("0b", 32)
)

func tokenLine(accessor, more string) string {
	return fmt.Sprintf("  - {accessor: %s, name: orders, hashes: [%s]%s}\n", accessor, hashA, more)
}

func TestParseReadsRolesAndTokens(t *testing.T) {
	c := need.Got(ParseAuthFile("f", []byte(`
mode: log-only
roles:
  service: ["app {app} read,register", "kv orders/ read,write"]
  nothing: []
tokens:
  - accessor: `+accessorB+`
    name: orders
    roles: [service]
    app: ORDERS
    hashes: ["`+hashA+`", `+hashB+`]
    expires: 2027-01-31
`+tokenLine(accessorA, ", expires: '2027-01-31T12:00:00Z'"))))(t)
	table := need.Got(access.TableOf(c))(t)
	expect.That(t, c.Mode == access.LogOnly && len(c.Roles) == 2 && len(c.Tokens) == 2 && c.Tokens[0].Accessor == accessorA, "got %+v", c)
	expect.Equal(t, c.Tokens[0].Expires-c.Tokens[1].Expires, 12*3600*1000, "between the two ends: got")
	h := table.Holder(accessorB)
	for _, hash := range []string{hashA, hashB} {
		good := h.Good([32]byte([]byte(strings.Repeat(string([]byte{hash[1] - 'a' + 10}), 32))), 0)
		expect.That(t, good, "a secret with the hash %s is not good", hash)
	}
	expect.That(t, h.Policy.Allows(access.Need{Resource: access.App, Name: "ORDERS", Verb: access.Register}), "the role grants nothing")
}

func TestParseOfAnEmptyFileHasNoTokens(t *testing.T) {
	for _, text := range []string{"", "# nothing\n", "{}"} {
		c, err := ParseAuthFile("f", []byte(text))
		expect.That(t, err == nil && len(c.Tokens) == 0, "%q: got %+v, %v", text, c, err)
	}
}

func TestParseNamesTheLineOfEveryMistakeAndRepeatsNoSecret(t *testing.T) {
	secret := NewTokenText("")
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"unknown key", "mode: on\nrole: {}\n", []string{"f:2: the file has an unknown key; there are mode, roles, tokens"}},
		{"unknown key of a token", "tokens:\n" + tokenLine(accessorA, ", secret: abc"), []string{"f:2: a token has an unknown key"}},
		{"key twice", "mode: on\nmode: off\n", []string{"f:2: a key of the file is given twice"}},
		{"role twice", "roles:\n  a: []\n  a: []\n", []string{"f:3: a key of roles is given twice"}},
		{"accessor twice", "tokens:\n" + tokenLine(accessorA, "") + tokenLine(accessorA, ""), []string{"f:3: token " + accessorA + " is there twice"}},
		{"role that is not there", "tokens:\n" + tokenLine(accessorA, ", roles: [operator]"), []string{`f:2: token ` + accessorA + ` (orders) has the role "operator"`}},
		{"rule", "roles:\n  a: [app ORDERS eat]\n  b: [kv]\n", []string{`f:2: role a: rule "app ORDERS eat"`, `f:3: role b: rule "kv"`}},
		{"mode", "mode: maybe\n", []string{"f:1: mode: want off, log-only or on"}},
		{"no accessor", "tokens: [{name: a}]\n", []string{"f:1: a token has no accessor"}},
		{"no hash", "tokens: [{name: a, accessor: " + accessorA + "}]\n", []string{"has 0 secrets"}},
		{"no name", "tokens: [{hashes: [" + hashA + "], accessor: " + accessorA + "}]\n", []string{"f:1: token \"\""}},
		{"short hash", "tokens: [{name: a, accessor: " + accessorA + ", hashes: [" + hashA[2:] + "]}]\n", []string{"f:1: this is not a hash"}},
		{"password for a hash", "tokens:\n- name: a\n  accessor: " + accessorA + "\n  hashes: [canary-password]\n", []string{"f:4: this is not a hash"}},
		{"password for an accessor", "tokens: [{name: a, accessor: canary-password}]\n", []string{"f:1: this is not an accessor"}},
		{"token's text for a hash", "tokens:\n- hashes: [" + secret + "]\n", []string{"f:2: this is the text of a token"}},
		{"token's text for a key", secret + ": a\n", []string{"f:1: this is the text of a token"}},
		{"token's text in a comment", "mode: on\n# " + secret + "\n", []string{"f:2: this is the text of a token"}},
		{"end", "tokens:\n" + tokenLine(accessorA, ", expires: soon"), []string{"f:2: expires must be"}},
		{"no YAML", "mode: [\n", []string{"f: "}},
		{"unknown anchor", "mode: *canary\n", []string{"f: "}},
		{"alias", "mode: &on on\ntokens: *on\n", []string{"f:2: tokens must be a list"}},
		{"two documents", "mode: on\n---\nmode: off\n", []string{"more than one YAML document"}},
		{"list", "[]", []string{"f:1: the file must have keys"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ParseAuthFile("f", []byte(c.text))
			need.That(t, err != nil, "no error")
			for _, want := range c.want {
				expect.That(t, strings.Contains(err.Error(), want), "got %q, want %q in it", err, want)
			}
			expect.That(t, !strings.Contains(err.Error(), "canary") && !strings.Contains(err.Error(), secret[20:60]), "the error repeats what it must not: %q", err)
		})
	}
}

func TestItemIsReadAsItWasWritten(t *testing.T) {
	text := NewTokenText("")
	k := need.Got(TokenOf(text))(t)
	k.Name, k.App, k.Roles, k.Expires = "orders", "ORDERS", []string{"service", "reader"}, 1_800_000_000_000
	item := need.Got(TokenItem(k))(t)
	c := need.Got(ParseAuthFile("f", []byte("roles: {service: [], reader: []}\ntokens:\n"+string(item))))(t)
	got := c.Tokens[0]
	expect.That(t, got.Accessor == k.Accessor && got.Name == k.Name && got.App == k.App && slices.Equal(got.Roles, k.Roles) && got.Expires == k.Expires && got.Good(access.HashOf(text), 0),
		"got %+v, want %+v", got, k)
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("mode: on\nroles: {service: [\"app {app} read\"]}\ntokens:\n" + tokenLine(accessorA, ", roles: [service], expires: 2027-01-31")))
	f.Add([]byte("tokens:\n" + tokenLine(accessorA, "") + tokenLine(accessorB, "")))
	f.Add([]byte("roles: &a {x: [operator read]}\ntokens: *a\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseAuthFile("f", data)
		if err != nil {
			expect.That(t, !secretText.MatchString(err.Error()), "the error repeats a secret: %q", err)
			return
		}
		_, err = access.TableOf(c)
		need.OK(t, err)
		var b strings.Builder
		b.WriteString("roles:\n")
		for _, r := range c.Roles {
			fmt.Fprintf(&b, "  %q: []\n", r.Name)
		}
		b.WriteString("tokens:\n")
		for _, k := range c.Tokens {
			b.Write(need.Got(TokenItem(k))(t))
		}
		if len(c.Roles) == 0 || len(c.Tokens) == 0 {
			return
		}
		again := need.Got(ParseAuthFile("f", []byte(b.String())))(t)
		for i, k := range again.Tokens {
			expect.That(t, k.Accessor == c.Tokens[i].Accessor && k.Expires/1000 == c.Tokens[i].Expires/1000 && len(k.Secrets) == len(c.Tokens[i].Secrets), "got %+v, want %+v", k, c.Tokens[i])
		}
	})
}
