package integration

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
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

// healthServer is a server of grpc-go with its health service, whose statuses the test sets.
type healthServer struct {
	address, overTLS string
	stdin            io.WriteCloser
	lines            *bufio.Scanner
}

func startHealthServer(t *testing.T) *healthServer {
	t.Helper()
	program, err := buildHealthServer()
	need.OK(t, err)
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), "ROLLCALL_TEST_HEALTH_SERVER=1")
	cmd.Stderr = os.Stderr
	s := &healthServer{stdin: need.Got(cmd.StdinPipe())(t)}
	s.lines = bufio.NewScanner(need.Got(cmd.StdoutPipe())(t))
	need.OKf(t, cmd.Start(), "start the gRPC server")
	t.Cleanup(func() {
		s.stdin.Close() // which ends it
		need.OKf(t, cmd.Wait(), "the gRPC server")
	})
	need.That(t, s.lines.Scan(), "the gRPC server said nothing: %v", s.lines.Err())
	s.address, s.overTLS, _ = strings.Cut(s.lines.Text(), " ")
	return s
}

func (s *healthServer) set(t *testing.T, service, status string) {
	t.Helper()
	fmt.Fprintln(s.stdin, service, status)
	need.That(t, s.lines.Scan(), "the gRPC server said nothing: %v", s.lines.Err())
}

// agentChecks is the status and output of each check of agent host-1, all read at once.
func agentChecks(n *Node) (map[string]string, error) {
	response := n.Get("/agent/host-1/v1/agent/checks")
	var checks map[string]struct{ Status, Output string }
	if err := json.Unmarshal(response.Body, &checks); err != nil {
		return nil, fmt.Errorf("%v: %w", response, err)
	}
	texts := map[string]string{}
	for id, c := range checks {
		texts[id] = c.Status + ": " + c.Output
	}
	return texts, nil
}

// Checks of all kinds are run by the leader, against a server of grpc-go among others, and by the next leader when it is
// killed; aliases follow in the same operation.
func TestChecksOfAllKindsGoOnThroughTheLeadersEnd(t *testing.T) {
	t.Parallel()
	server := startHealthServer(t)
	server.set(t, "orders", "SERVING")
	udp := need.Got(net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}))(t)
	t.Cleanup(func() { udp.Close() })
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	c := StartCluster(t, Config{})
	leader := c.Leader()
	others := c.Others(leader)
	register := func(id, address string, check map[string]any) {
		t.Helper()
		check["CheckID"] = id
		_, text, _ := net.SplitHostPort(address)
		port := need.Got(strconv.Atoi(text))(t)
		mustTake(t, others[0], "register "+id, func() Response {
			return others[0].Do(Request{Method: http.MethodPut, Path: "/agent/host-1/v1/agent/service/register", Body: consulService(t, id, id, "127.0.0.1", port, check)})
		})
	}
	clear, overTLS := server.address, server.overTLS
	register("grpc", clear, map[string]any{"GRPC": clear + "/orders", "Interval": "2s"})
	register("server", clear, map[string]any{"GRPC": clear, "Interval": "2s"})
	register("unknown", clear, map[string]any{"GRPC": clear + "/pay", "Interval": "2s"})
	register("tls", overTLS, map[string]any{"GRPC": overTLS + "/orders", "GRPCUseTLS": true, "TLSSkipVerify": true, "TLSServerName": "orders.example", "Interval": "2s"})
	register("none", plain.Listener.Addr().String(), map[string]any{"GRPC": plain.Listener.Addr().String(), "Interval": "2s"})
	register("ping", clear, map[string]any{"H2PING": clear, "H2PingUseTLS": false, "Interval": "2s"})
	register("pingtls", overTLS, map[string]any{"H2PING": overTLS, "TLSSkipVerify": true, "Interval": "2s"})
	register("udp", udp.LocalAddr().String(), map[string]any{"UDP": udp.LocalAddr().String(), "Interval": "2s"})
	register("tcp", overTLS, map[string]any{"TCP": overTLS, "TCPUseTLS": true, "TLSSkipVerify": true, "Interval": "2s"})
	register("alias", clear, map[string]any{"AliasService": "grpc"})
	register("chain", clear, map[string]any{"AliasNode": "host-1", "AliasService": "alias"})
	want := map[string]string{
		"grpc": "passing: gRPC check " + clear + "/orders: success", "server": "passing: gRPC check " + clear + ": success",
		"unknown": "critical: rpc error: code = NotFound desc = unknown service", "tls": "passing: gRPC check " + overTLS + "/orders: success",
		"none": "critical: rpc error: code = Unavailable desc = connection error: desc = \"error reading server preface: the other side does not speak HTTP/2, or ended the connection\"",
		"ping": "passing: HTTP2 ping was successful", "pingtls": "passing: HTTP2 ping was successful",
		"udp": "passing: UDP connect " + udp.LocalAddr().String() + ": Success", "tcp": "passing: TCP+TLS connect " + overTLS + ": Success",
		"alias": "passing: All checks passing.", "chain": "passing: All checks passing.",
	}
	await := func(what string, among []*Node) {
		t.Helper()
		// An attempt that took too long on a busy machine has an output that stands for a minute.
		Eventually(t, 3*ReadyLimit, what, func() error {
			for _, n := range among {
				got, err := agentChecks(n)
				if err != nil {
					return err
				}
				status := strings.SplitAfter(got["grpc"], ":")[0] // whenever it is looked at
				need.That(t, strings.HasPrefix(got["alias"], status) && strings.HasPrefix(got["chain"], status), "%s: with %q the aliases are %q and %q", n.Name, got["grpc"], got["alias"], got["chain"])
				if !maps.EqualFunc(got, want, strings.HasPrefix) {
					return fmt.Errorf("%s: checks %q, want %q", n.Name, got, want)
				}
			}
			return nil
		})
	}
	await("all checks have been run", c.Nodes)
	server.set(t, "orders", "NOT_SERVING")
	want["grpc"], want["tls"] = "critical: gRPC "+clear+"/orders serving status: NOT_SERVING", "critical: gRPC "+overTLS+"/orders serving status: NOT_SERVING"
	want["alias"], want["chain"] = `critical: Aliased check "Service 'grpc' check" failing: `, `critical: Aliased check "Service 'grpc' check" failing: `
	await("those of a service that serves no more are critical", c.Nodes)
	leader.Kill()
	c.Leader(others...)
	await("nothing changes by the leader's end", others)
	server.set(t, "orders", "SERVING")
	want["grpc"], want["tls"] = "passing: gRPC check "+clear+"/orders: success", "passing: gRPC check "+overTLS+"/orders: success"
	want["alias"], want["chain"] = "passing: All checks passing.", "passing: All checks passing."
	await("the next leader finds the service serving", others)
	udp.Close()
	want["udp"] = "critical: read udp " + udp.LocalAddr().String() + ": read: connection refused"
	await("a port that nobody listens at is critical", others)
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
