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
	"testing"

	"github.com/seed-20419f34/rollcall/internal/need"
)

// consulService is the body of a registration with one check.
func consulService(t *testing.T, id, name, address string, port int, check map[string]any) []byte {
	t.Helper()
	body := need.Got(json.Marshal(map[string]any{"ID": id, "Name": name, "Address": address, "Port": port, "Check": check}))(t)
	return body
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
