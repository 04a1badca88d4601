package integration

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

// It tests what adopt asks of every line that a process of the tests logs.
func TestKeyThatALineOfALogHasTwiceIsFound(t *testing.T) {
	for form, handler := range map[string]func(*strings.Builder) slog.Handler{
		"text": func(w *strings.Builder) slog.Handler { return slog.NewTextHandler(w, nil) },
		"json": func(w *strings.Builder) slog.Handler { return slog.NewJSONHandler(w, nil) },
	} {
		for _, c := range []struct {
			fields []any
			twice  string
		}{
			{[]any{"leader", "n2"}, ""},
			{[]any{"node", "n2"}, "node"},
			{[]any{"err", `get "x": {"node":"n2","node":"n3"} node=n2, node=n3`}, ""},
			{[]any{"err", `a "quote`, "msg", "again"}, "msg"},
		} {
			var said strings.Builder
			slog.New(handler(&said)).With("node", "n1").Info("leader", c.fields...)
			expect.Equal(t, repeatedKey(said.String()), c.twice, "%s: twice in %s", form, said.String())
		}
	}
	expect.Equal(t, repeatedKey("node=1 dc=dc1 node=2\n"), "", "a line that is not of a log")
}
