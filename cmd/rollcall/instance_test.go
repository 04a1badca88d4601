package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

func TestDrainReturnsWhenEveryNodeHasAppliedIt(t *testing.T) {
	var requests []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests = append(requests, r.Method+" "+r.URL.RequestURI())
		io.WriteString(w, `{"index":"e-7","nodes":[{"id":"n1","index":"e-7"}]}`)
	}))
	defer s.Close()
	stdout, stderr, code := rollcall(t, "drain", "orders/orders-1", "--settle=0s", "--author=me", "--addr", s.URL)
	expect.That(t, code == cli.ExitOK && stdout == "drained  ORDERS/orders-1  OUT_OF_SERVICE\n", "exit %d, printed %q and %q", code, stdout, stderr)
	want := []string{"PUT /v1/rollcall/apps/ORDERS/orders-1/override?author=me&value=OUT_OF_SERVICE", "GET /v1/rollcall/status"}
	expect.That(t, strings.Join(requests, "\n") == strings.Join(want, "\n"), "sent %q, want %q", requests, want)
}

func TestDrainNamesTheNodeThatIsMissing(t *testing.T) {
	s := newFakeServer(t, 200, `{"index":"e-7","nodes":[{"id":"n1","index":"e-7"},{"id":"n2","cluster":"10.0.0.2:7761","role":"unreachable"}]}`)
	_, stderr, code := rollcall(t, "drain", "orders/orders-1", "--settle=0s", "--timeout=2s", "--addr", s.URL)
	expect.That(t, code == cli.ExitError && strings.Contains(stderr, "n2 (10.0.0.2:7761) is unreachable"), "exit %d, said %q", code, stderr)
}
