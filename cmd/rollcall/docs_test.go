package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/golden"
	"github.com/seed-20419f34/rollcall/internal/need"
)

const (
	settings   = "../../docs/reference/settings.md"
	nodeDied   = "../../docs/run/node-died.md"
	cliPage    = "../../docs/reference/cli.md"
	tableStart = "<!-- settings: made by go test ./cmd/rollcall -run Reference -update -->\n"
	tableEnd   = "<!-- end of settings -->\n"
)

func document(t *testing.T, path string) string {
	t.Helper()
	return string(need.Got(os.ReadFile(path))(t))
}

func referenceTable() string {
	var b strings.Builder
	b.WriteString("| Key | Type | Default | Limits | Taken over | Meaning |\n|---|---|---|---|---|---|\n")
	for _, s := range config.Default().Settings() {
		value := s.String()
		if value != "" {
			value = "`" + value + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", s.Key, s.Kind(), value, s.Limits(), s.TakesEffect(), s.Help)
	}
	return b.String()
}

func TestReferenceOfSettingsIsComplete(t *testing.T) {
	golden.Part(t, settings, tableStart, tableEnd, referenceTable())
}

func TestDocumentsHaveEveryCommandWithItsExamplesAndFlags(t *testing.T) {
	shared := &cobra.Command{}
	new(connection).addFlags(shared)
	config.AddFlags(shared.Flags())
	for _, lack := range golden.Undocumented(newRootCommand(), document(t, cliPage), shared.Flags()) {
		t.Errorf("%s: %s", cliPage, lack)
	}
}

func TestDocumentsHaveEveryExitCode(t *testing.T) {
	for _, path := range []string{nodeDied, cliPage} {
		text := document(t, path)
		for _, code := range []int{cli.ExitOK, cli.ExitError, cli.ExitUsage, cli.ExitFatal} {
			expect.That(t, strings.Contains(text, fmt.Sprintf("\n| %d | ", code)), "%s has no row for exit code %d", path, code)
		}
	}
	for _, code := range []int{cli.ExitUsage, exitLost, exitNotAcquired, exitRollcall, exitCannotRun, exitNoCommand} {
		_, section, _ := strings.Cut(document(t, cliPage), "\n## rollcall lock\n")
		expect.That(t, strings.Contains(section, fmt.Sprintf("\n| %d | ", code)) && strings.Contains(holdingHelp, fmt.Sprintf("\n  %-3d  ", code)),
			"the section of lock in %s, or its help, has no row for exit code %d", cliPage, code)
	}
}

func TestCommandsInDocumentsAreThoseOfTheProgram(t *testing.T) {
	faults, commands, err := golden.Misused(os.DirFS("../.."), newRootCommand)
	need.OK(t, err)
	need.That(t, commands > 300, "the documents have %d commands", commands)
	for _, fault := range faults {
		t.Error(fault)
	}
}

// clusterOfNames is a server whose documents have the names that completion looks for, by path and query.
func clusterOfNames(t *testing.T) string {
	t.Helper()
	documents := map[string]string{
		"/v1/rollcall/apps": `[{"app":"ORDERS","id":"o1"},{"app":"ORDERS","id":"o2"},{"app":"USERS","id":"u1"},{"app":"$(REBOOT)","id":"r"}]`,
		"/v1/rollcall/apps?app=orders": `[{"app":"ORDERS","id":"o2"},{"app":"ORDERS","id":"o1:8080"},{"app":"ORDERS","id":"a/b"},
			{"app":"ORDERS","id":"o $(reboot)"},{"app":"ORDERS","id":"o;reboot"},{"app":"ORDERS","id":"o\u001b[2J"},{"app":"ORDERS","id":"o\nx"},{"app":"ORDERS","id":"o'"}]`,
		"/v1/rollcall/apps?app=orders&quarantined=true": `[{"app":"ORDERS","id":"o9","quarantined_until":1}]`,
		"/v1/rollcall/status":                           `{"nodes":[{"id":"node2"},{"id":"node1"},{"id":"-rf"}]}`,
		"/v1/rollcall/peers":                            `{"peers":[{"name":"dc2"},{"name":"10.0.0.1:8761"}],"senders":[{"sender":"n2.902c"}]}`,
		"/v1/rollcall/sessions":                         `[{"id":"954b5e76-54d1"}]`,
		"/v1/rollcall/locks":                            `[{"name":"nightly"},{"name":"db"}]`,
		"/v1/rollcall/semaphores":                       `[{"name":"reports"}]`,
		"/v1/rollcall/auth/roles":                       `[{"name":"reader"}]`,
		"/v1/rollcall/auth/tokens":                      `[{"accessor":"ab12"}]`,
		"/v1/kv/config/?keys=&separator=/":              `["config/colour","config/db/"]`,
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		query.Del("consistency")
		query.Del("stale")
		name := r.URL.Path
		if len(query) > 0 {
			name += "?" + strings.ReplaceAll(query.Encode(), "%2F", "/")
		}
		body, ok := documents[name]
		if !ok {
			t.Logf("no document for %s", name)
			w.WriteHeader(http.StatusNotFound)
		}
		w.Header().Set("X-Consul-Index", "1")
		io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestShellsCompleteNamesOfTheCluster(t *testing.T) {
	url := clusterOfNames(t)
	for _, tc := range []struct {
		name  string
		words []string // the last one is being typed
		want  string   // names, and the directive for the shell: 4 offers no files, 2 adds no space
	}{
		{"applications", []string{"ls", ""}, "ORDERS USERS :4"},
		{"applications as they are typed", []string{"watch", "ord"}, "orders :4"},
		{"applications to register at", []string{"register", "U"}, "USERS :4"},
		{"applications of instances", []string{"cancel", ""}, "ORDERS/ USERS/ :6"},
		{"instances", []string{"explain", "orders/"}, "orders/a/b orders/o1:8080 orders/o2 orders/o9 :4"},
		{"instances that begin so", []string{"drain", "orders/o2"}, "orders/o2 :4"},
		{"nothing after an instance", []string{"quarantine", "orders/o1", ""}, ":4"},
		{"nodes", []string{"members", "remove", "n"}, "node1 node2 :4"},
		{"nodes that may lead", []string{"members", "transfer", ""}, "node1 node2 :4"},
		{"peers", []string{"peers", "pause", ""}, "10.0.0.1:8761 dc2 :4"},
		{"senders", []string{"peers", "forget", ""}, "n2.902c :4"},
		{"sessions", []string{"session", "renew", "9"}, "954b5e76-54d1 :4"},
		{"locks", []string{"lock", ""}, "db nightly :4"},
		{"a command under a lock", []string{"lock", "db", ""}, ":0"},
		{"semaphores", []string{"semaphore", ""}, "reports :4"},
		{"roles", []string{"role", "get", ""}, "reader :4"},
		{"accessors", []string{"token", "revoke", ""}, "ab12 :4"},
		{"keys", []string{"kv", "get", "config/"}, "config/colour config/db/ :6"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			last := len(tc.words) - 1
			args := slices.Concat([]string{cobra.ShellCompNoDescRequestCmd}, tc.words[:last], []string{"--addr", url}, tc.words[last:])
			stdout, stderr, code := rollcall(t, args...)
			got := strings.Join(strings.Fields(stdout), " ")
			expect.That(t, code == cli.ExitOK && got == tc.want, "exit %d, offered %q (%s), want %q", code, got, stderr, tc.want)
		})
	}
}

func TestCompletionIsSilentAndQuickWhereNoServerResponds(t *testing.T) {
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	ended := make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-ended:
		}
	}))
	defer hanging.Close()
	defer close(ended)
	for _, tc := range []struct{ name, addr string }{
		{"down", closed.URL},
		{"hanging", hanging.URL},
		{"no server", "ftp://a"},
	} {
		stdout, stderr, code := rollcall(t, cobra.ShellCompNoDescRequestCmd, "cancel", "--addr", tc.addr, "")
		expect.That(t, code == cli.ExitOK && stdout == ":4\n" && strings.Count(stderr, "\n") == 1, "%s: exit %d, offered %q, said %q", tc.name, code, stdout, stderr)
	}
}

// Every argument that names something of the cluster is completed.
func TestEveryNameIsCompleted(t *testing.T) {
	unnamed := []string{"rollcall tls issue"} // names something that does not exist yet
	placeholders := []string{"APP", "APP/ID", "NAME", "ID", "KEY", "PREFIX", "SENDER", "ACCESSOR"}
	root := newRootCommand()
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		words := append(strings.Fields(cmd.Use), "")
		if first := strings.Trim(words[1], "[]"); slices.Contains(placeholders, first) && !slices.Contains(unnamed, cmd.CommandPath()) {
			expect.That(t, cmd.ValidArgsFunction != nil, "%s does not complete %s", cmd.CommandPath(), first)
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(root)
	for _, row := range completed {
		for _, path := range row.commands {
			cmd, _, err := root.Find(strings.Fields(path))
			expect.That(t, err == nil && cmd.CommandPath() == "rollcall "+path, "the table has %q, and found is %s (%v)", path, cmd.CommandPath(), err)
		}
	}
}
