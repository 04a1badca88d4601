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
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// asShipped is set if the rules keep their deployed durations (make alerts): then only a few of the faults are made.
var asShipped = os.Getenv("ROLLCALL_ALERTS") != ""

// quicker is the divisor for the durations of the rules.
var quicker = func() time.Duration {
	if asShipped {
		return 1
	}
	return 20
}()

const (
	rulesFile     = "../deploy/prometheus/rollcall.rules.yaml"
	dashboardFile = "../deploy/grafana/rollcall.json"
)

// planned is a fault, and the alerts that it raises.
type planned struct {
	name  string
	named []string // must fire
	also  []string // critical ones that may
	// detected is how long the cluster itself takes to see it.
	detected time.Duration
	shipped  bool // also made with the deployed durations
	make     func() (mend func())
}

// Prometheus scrapes two datacenters while faults are made: the alerts that are named for a fault fire within their
// time and 30 s, no other critical one does, and all end. It also sends the dashboard's queries.
func TestPrometheusRaisesTheAlertsOfAFaultAndNoOtherCriticalOne(t *testing.T) {
	program := debianProgram(t, "prometheus")
	t.Parallel()
	d := startWatchedDatacenters(t)
	here := d.Clusters[0]
	h := startHerd(t, "HERD", 20, here.Nodes)
	mustRegister(t, d.Clusters[1].Nodes[0], Instance{App: "THERE", ID: "there", Duration: 3600})
	p := startPrometheus(t, program, d)
	mustAnswerTheDashboard(t, p)
	for _, f := range faultsOf(t, d, h) {
		if asShipped && !f.shipped {
			continue
		}
		t.Logf("%s", f.name)
		p.mustRaise(t, f)
	}
}

// startWatchedDatacenters starts two datacenters whose nodes have settings files that can change.
func startWatchedDatacenters(t *testing.T) *Datacenters {
	t.Helper()
	settings := map[string]string{"replication.max-delay": "500ms"}
	maps.Copy(settings, withSteadyLeader(Config{}).Settings)
	return StartDatacenters(t, 2, Config{Settings: settings, Of: func(string) map[string]string {
		file := filepath.Join(t.TempDir(), "rollcall.yaml")
		need.OK(t, os.WriteFile(file, nil, 0o600))
		return map[string]string{"config": file}
	}})
}

// rewriteSettings gives nodes another settings file while they run.
func rewriteSettings(t *testing.T, nodes []*Node, content string) {
	t.Helper()
	for _, n := range nodes {
		need.OK(t, os.WriteFile(n.Settings["config"], []byte(content), 0o600))
		n.Signal(t, syscall.SIGHUP)
	}
}

// faultsOf returns the faults, ordered so that none disturbs the next.
func faultsOf(t *testing.T, d *Datacenters, h *herd) []planned {
	here := d.Clusters[0]
	follower := func() *Node { return here.Others(here.Leader())[0] }
	return []planned{
		{name: "a follower stands still", named: []string{"NodeDown", "ToleranceGone"}, shipped: true, make: func() func() {
			n := follower()
			h.use(here.Others(n))
			n.Pause(t)
			return func() { n.Resume(t); n.WaitReady(t); h.use(here.Nodes) }
		}},
		// While no node leads, heartbeats get 503.
		{name: "a majority is killed", named: []string{"NoLeader"}, also: []string{"ServerErrors"}, shipped: true, make: func() func() {
			dead := here.Others(here.Leader())
			for _, n := range dead {
				n.process.Kill()
			}
			return func() {
				for _, n := range dead {
					n.Start(t)
				}
				here.WaitReady()
			}
		}},
		{name: "the disks are slow", named: []string{"SlowDisk", "SlowCommits"}, make: func() func() {
			rewriteSettings(t, here.Nodes, "test: {sync-delay: 120ms}\n")
			return func() { rewriteSettings(t, here.Nodes, "") }
		}},
		{name: "the links between the datacenters are cut", named: []string{"LinkCut"}, detected: 15 * time.Second, make: func() func() {
			d.Cut()
			return d.Heal
		}},
		{name: "a node was given other settings", named: []string{"SettingsDiffer"}, make: func() func() {
			n := follower()
			restart := func(threshold string) {
				n.Stop(t)
				n.Settings["self-preservation.renewal-percent-threshold"] = threshold
				n.Start(t)
				n.WaitReady(t)
			}
			restart("0.5")
			return func() { restart("0.85") }
		}},
		{name: "a limit is near", named: []string{"LimitNear"}, make: func() func() {
			rewriteSettings(t, here.Nodes, "limits: {instances-total: 24}\n")
			return func() { rewriteSettings(t, here.Nodes, "") }
		}},
		{name: "an application loses all", named: []string{"AppEmpty"}, make: func() func() {
			mustRegister(t, here.Nodes[0], Instance{App: "SHORT", ID: "short", Duration: 3600})
			Pass(t, 10*time.Minute/quicker+5*time.Second)
			mustCancel(t, here.Nodes[0], "SHORT", "short")
			return func() {}
		}},
		{name: "many fall silent", named: []string{"SelfPreservationOn", "EvictionsWithheld"}, detected: 2 * herdLease * time.Second, make: func() func() {
			h.silence(12)
			return h.wake
		}},
	}
}

// scaled divides the durations of the rules, and returns by alert the longest time for which its condition must hold.
func scaled(t *testing.T, rules []byte) (quick []byte, waits map[string]time.Duration) {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string           `yaml:"name"`
			Rules []map[string]any `yaml:"rules"`
		} `yaml:"groups"`
	}
	need.OK(t, yaml.Unmarshal(rules, &file))
	units := map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour}
	duration := regexp.MustCompile(`\b(\d+)([smhd])\b`)
	shorten := func(text string) (string, time.Duration) {
		var last time.Duration
		return duration.ReplaceAllStringFunc(text, func(s string) string {
			m := duration.FindStringSubmatch(s)
			last = time.Duration(need.Got(strconv.Atoi(m[1]))(t)) * units[m[2]] / quicker
			return fmt.Sprintf("%dms", last.Milliseconds())
		}), last
	}
	waits = map[string]time.Duration{}
	for _, rule := range file.Groups[0].Rules {
		expr, window := shorten(rule["expr"].(string))
		rule["expr"] = expr
		hold := time.Duration(0)
		if text, ok := rule["for"].(string); ok {
			rule["for"], hold = shorten(text)
		}
		name := rule["alert"].(string)
		waits[name] = max(waits[name], hold+window)
	}
	return need.Got(yaml.Marshal(file))(t), waits
}

// prometheus is a running one.
type prometheus struct {
	*Node
	waits map[string]time.Duration
}

// startPrometheus has Prometheus scrape datacenters, and waits until it has reached all nodes.
func startPrometheus(t *testing.T, program string, d *Datacenters) *prometheus {
	t.Helper()
	dir := t.TempDir()
	quick, waits := scaled(t, need.Got(os.ReadFile(rulesFile))(t))
	need.OK(t, os.WriteFile(filepath.Join(dir, "rollcall.rules.yaml"), quick, 0o600))
	config := "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\nrule_files: [rollcall.rules.yaml]\nscrape_configs:\n  - job_name: rollcall\n    static_configs:\n"
	for i, c := range d.Clusters {
		var targets []string
		for _, n := range c.Nodes {
			targets = append(targets, strconv.Quote(n.HTTP))
		}
		config += fmt.Sprintf("      - targets: [%s]\n        labels: {cluster: %s}\n", strings.Join(targets, ", "), dcName(i))
	}
	file := filepath.Join(dir, "prometheus.yaml")
	need.OK(t, os.WriteFile(file, []byte(config), 0o600))
	p := &prometheus{serverAt(FreeAddr(t)), waits}
	need.Got(launch(t, filepath.Join(dir, "prometheus.log"), nil, []string{program, "--config.file=" + file, "--storage.tsdb.path=" + filepath.Join(dir, "data"), "--web.listen-address=" + p.HTTP}))(t)
	Eventually(t, ReadyLimit, "Prometheus has reached all nodes", func() error {
		up, err := p.query(`count(up{job="rollcall"} == 1)`)
		return unless(err == nil && len(up) == 1 && up[0].Value[1] == strconv.Itoa(len(d.Nodes())), "%v %v", up, err)
	})
	return p
}

// sample is an element of a response of Prometheus.
type sample struct {
	Metric map[string]string
	Value  [2]any
}

// query asks for the value of an expression now.
func (p *prometheus) query(expr string) ([]sample, error) {
	answer, err := ask[struct {
		Data struct{ Result json.RawMessage }
	}](p.Node, "/api/v1/query?query="+url.QueryEscape(expr))
	if err != nil {
		return nil, err
	}
	var samples []sample
	return samples, json.Unmarshal(answer.Data.Result, &samples)
}

// inState returns the alerts in one of some states, by name, with their severities.
func (p *prometheus) inState(states ...string) (map[string][]string, error) {
	answer, err := ask[struct {
		Data struct {
			Alerts []struct {
				Labels map[string]string
				State  string
			}
		}
	}](p.Node, "/api/v1/alerts")
	names := map[string][]string{}
	for _, a := range answer.Data.Alerts {
		if slices.Contains(states, a.State) {
			names[a.Labels["alertname"]] = append(names[a.Labels["alertname"]], a.Labels["severity"])
		}
	}
	return names, err
}

// criticals returns the critical ones among alerts, except some.
func criticals(firing map[string][]string, but []string) (names []string) {
	for name, severities := range firing {
		if slices.Contains(severities, "critical") && !slices.Contains(but, name) {
			names = append(names, name)
		}
	}
	return names
}

// resolveLimit is how long alerts may fire after a fault is fixed: the longest windows, and what the cluster needs.
var resolveLimit = 2*time.Minute + 20*time.Minute/quicker

// mustRaise makes a fault, waits for its alerts, fixes it, and waits for their end.
func (p *prometheus) mustRaise(t *testing.T, f planned) {
	t.Helper()
	expected := append(f.also[:len(f.also):len(f.also)], f.named...)
	p.awaitSilence(t, f.named)
	mend := f.make()
	began := time.Now()
	for _, name := range f.named {
		limit := time.Until(began.Add(f.detected + p.waits[name] + 30*time.Second))
		err := Poll(limit, func() error {
			firing, err := p.inState("firing")
			if err != nil {
				return err
			}
			if other := criticals(firing, expected); len(other) > 0 {
				failed, _ := p.query(`sum by (route, code) (increase(rollcall_http_requests_total{code=~"5.."}[15s])) > 0`)
				t.Fatalf("%s: %v fire, which are critical; of the last 15 s failed %v", f.name, other, failed)
			}
			_, fires := firing[name]
			return unless(fires, "what fires is %v", firing)
		})
		expect.OKf(t, err, "%s: %s after %v", f.name, name, time.Since(began))
		t.Logf("%s after %v", name, time.Since(began))
	}
	mend()
	p.awaitSilence(t, f.named)
}

// awaitSilence waits until none of the alerts fires, and nothing critical does or is about to.
func (p *prometheus) awaitSilence(t *testing.T, names []string) {
	t.Helper()
	Eventually(t, resolveLimit, fmt.Sprintf("%v are over", names), func() error {
		firing, err := p.inState("firing")
		if err != nil {
			return err
		}
		for _, name := range names {
			if _, fires := firing[name]; fires {
				return fmt.Errorf("%s fires", name)
			}
		}
		begun, err := p.inState("firing", "pending")
		return unless(err == nil && len(criticals(begun, nil)) == 0, "critical ones have begun: %v, %v", begun, err)
	})
}

// mustAnswerTheDashboard sends the query of each panel, which returns data, and those of the annotations, which may
// return none.
func mustAnswerTheDashboard(t *testing.T, p *prometheus) {
	t.Helper()
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
		Annotations struct{ List []struct{ Name, Expr string } }
	}
	need.OK(t, json.Unmarshal(need.Got(os.ReadFile(dashboardFile))(t), &d))
	variables := strings.NewReplacer("$cluster", dcName(0), "$node", ".*", "$__rate_interval", "15s")
	for _, panel := range d.Panels {
		for _, target := range panel.Targets {
			expr := variables.Replace(target.Expr)
			err := Poll(ReadyLimit, func() error {
				samples, err := p.query(expr)
				if err == nil && len(samples) == 0 {
					err = fmt.Errorf("no data")
				}
				return err
			})
			expect.OKf(t, err, "the panel %q asks %s", panel.Title, expr)
		}
	}
	for _, a := range d.Annotations.List {
		response := p.Get("/api/v1/query?query=" + url.QueryEscape(variables.Replace(a.Expr)))
		expect.Equal(t, response.Status, http.StatusOK, "the annotation %q: status", a.Name)
	}
}

// consulService returns the body of a registration with one check.
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

// agentChecks returns the status and output of each check of agent host-1, all read at once.
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

// Checks of all kinds are run by the leader, against a server of grpc-go among others, and by the next leader when it
// is killed; aliases follow in the same operation.
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
		// An attempt that took too long on a busy machine has an output that stays for a minute.
		Eventually(t, 3*ReadyLimit, what, func() error {
			for _, n := range among {
				got, err := agentChecks(n)
				if err != nil {
					return err
				}
				status := strings.SplitAfter(got["grpc"], ":")[0] // whenever it is read
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
