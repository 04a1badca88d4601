package integration

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// consulService is the body of a registration with one check.
func consulService(t *testing.T, id, name, address string, port int, check map[string]any) []byte {
	t.Helper()
	body := need.Got(json.Marshal(map[string]any{"ID": id, "Name": name, "Address": address, "Port": port, "Check": check}))(t)
	return body
}

func TestProbesCallOnlyWhatTheirServiceRegistered(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 100)
	internal := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Method + " " + r.URL.Path + " " + r.Header.Get("Authorization")
		fmt.Fprint(w, "SECRET")
	}))
	t.Cleanup(internal.Close)
	port := internal.Listener.Addr().(*net.TCPAddr).Port
	n := StartCluster(t, Config{Nodes: 1}).Nodes[0]
	register := func(id, address string, port int, check map[string]any) Response {
		return n.Do(Request{Method: http.MethodPut, Path: "/v1/agent/service/register", Body: consulService(t, id, id, address, port, check)})
	}
	for _, attack := range []struct {
		name, address string
		port          int
		check         map[string]any
		want          string
	}{
		{"POST with credentials", "127.0.0.1", port, map[string]any{"HTTP": internal.URL + "/admin?do=it", "Method": "POST", "Body": "x", "Interval": "1s",
			"Header": map[string][]string{"Authorization": {"Bearer x"}, "Host": {"internal.admin"}}}, "checks.methods"},
		{"another port", "127.0.0.1", 1, map[string]any{"HTTP": internal.URL, "Interval": "1s"}, "checks.targets"},
		{"another address", "10.9.8.7", port, map[string]any{"HTTP": internal.URL, "Interval": "1s"}, "checks.targets"},
		{"a scan of ports", "127.0.0.1", port, map[string]any{"TCP": "127.0.0.1:22", "Interval": "1s"}, "checks.targets"},
		{"metadata", "168.63.129.16", 80, map[string]any{"HTTP": "http://168.63.129.16/", "Interval": "1s"}, "metadata"},
	} {
		response := register("attack", attack.address, attack.port, attack.check)
		expect.That(t, response.Status == 400 && strings.Contains(string(response.Body), attack.want),
			"%s: %v, want 400 that names %s", attack.name, response, attack.want)
	}
	ofNode := n.Do(Request{Method: http.MethodPut, Path: "/v1/agent/check/register", Body: fmt.Appendf(nil, `{"Name":"scan","TCP":"127.0.0.1:%d","Interval":"1s"}`, port)})
	expect.That(t, ofNode.Status == 400 && strings.Contains(string(ofNode.Body), "checks.targets"),
		"a check of the node: %v, want 400 that names checks.targets", ofNode)
	// A name is resolved only when it is probed.
	need.OK(t, register("rebound", "10.9.8.7", port, map[string]any{"HTTP": fmt.Sprintf("http://localhost:%d/", port), "Interval": "1s"}).is(200))
	Eventually(t, ReadyLimit, "the check of a name that resolves to another address says why it is critical", func() error {
		response := n.Get("/v1/health/checks/rebound")
		return unless(strings.Contains(string(response.Body), "checks.targets") && strings.Contains(string(response.Body), `"critical"`), "%v", response)
	})
	if len(asked) > 0 {
		t.Errorf("the internal service was asked: %s", <-asked)
	}
	need.OK(t, register("well", "127.0.0.1", port, map[string]any{"HTTP": internal.URL + "/health", "Interval": "1s"}).is(200))
	select {
	case got := <-asked:
		expect.Equal(t, got, "GET /health ", "its own service was asked")
	case <-time.After(ReadyLimit):
		t.Error("its own service was not asked")
	}
}

func TestProbesThatHangStopNoOtherProbe(t *testing.T) {
	t.Parallel()
	silent := need.Got(net.Listen("tcp", "127.0.0.1:0"))(t) // its backlog accepts, and no process responds
	t.Cleanup(func() { silent.Close() })
	port := silent.Addr().(*net.TCPAddr).Port
	var asked atomic.Int64
	well := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	t.Cleanup(well.Close)
	n := StartCluster(t, Config{Nodes: 1}).Nodes[0]
	put := func(body []byte) {
		t.Helper()
		need.OK(t, n.Do(Request{Method: http.MethodPut, Path: "/v1/agent/service/register", Body: body}).is(200))
	}
	for i := range 100 {
		put(consulService(t, fmt.Sprint("slow-", i), "slow", "127.0.0.1", port, map[string]any{"HTTP": fmt.Sprintf("http://127.0.0.1:%d/", port), "Interval": "1s", "Timeout": "10000h"}))
	}
	Eventually(t, ReadyLimit, "checks of the slow service wait for their turn", func() error {
		age := metric(t, n, "rollcall_probe_queue_age_seconds")
		return unless(age >= 1, "the queue is %d s old", age)
	})
	before := asked.Load()
	put(consulService(t, "well", "well", "127.0.0.1", well.Listener.Addr().(*net.TCPAddr).Port, map[string]any{"HTTP": well.URL, "Interval": "1s"}))
	Eventually(t, ReadyLimit, "the healthy service is probed again and again", func() error {
		got := asked.Load() - before
		return unless(got >= 3, "%d times", got)
	})
}
