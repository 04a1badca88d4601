package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-20419f34/rollcall/cmd/bench/load"
	"github.com/seed-20419f34/rollcall/internal/localcluster"
)

// Operations, in the order of the table.
const (
	renewing256 = "renew, 256 connections"
	renewing64  = "renew, 64 connections"
	registering = "register, 256 connections"
	listing     = "list, 64 connections"
	writingKey  = "write a key, 256 connections"
	readingKey  = "read a key, 256 connections"
)

var peerOperations = []string{renewing256, renewing64, registering, listing, writingKey, readingKey}

// What an answer promises.
const (
	durable      = "durable on a majority"
	oneMemory    = "in one node's memory; its disk and the others follow"
	linearizable = "linearizable"
	stale        = "may be stale"
)

// peersRun is one run of bench peers.
type peersRun struct {
	rounds       int
	warm, window time.Duration // of each load
	instances    int
	server       server
	gcPercent    int      // of the server's nodes, and of the bare handler
	settings     []string // of every node of Rollcall, other than the defaults
	found        peerPrograms
	dir          string
	progress     io.Writer
	began        time.Time
	notes        []string // sentences below the table
	rows         []*peerRow
	lacks        map[string]string // why a system was not measured, or not completely
	versions     map[string]string // the peers' versions, in their own words
	others       []float64         // share of the processors that neither load nor servers took, for each measurement
	sessions     []string          // of the measured cluster
}

// peerRow is a way to perform an operation at a system: a row of the table.
type peerRow struct {
	Operation string `json:"operation"`
	System    string `json:"system"`
	Call      string `json:"call"`
	Promise   string `json:"promise"` // what is certain once the answer has come

	Samples []peerSample        `json:"samples"` // one per round
	Wrong   load.WrongResponses `json:"wrong,omitempty"`

	load peerLoad
}

// peerSample is the measurement of a row in a round.
type peerSample struct {
	Rate  float64 `json:"per_s"`
	Bare  float64 `json:"bare_per_s"`
	P50   float64 `json:"p50_ms"`
	P99   float64 `json:"p99_ms"`
	CPU   float64 `json:"servers_cpu_us"` // per operation, of all nodes together
	Bytes int64   `json:"bytes"`          // of a response's body
}

// countWrong counts responses other than the expected one.
func (row *peerRow) countWrong(wrong load.WrongResponses) {
	for how, n := range wrong {
		row.Wrong[how] += n
	}
}

// peerSystem is a measured system.
type peerSystem struct {
	name    string
	missing string // what this machine lacks to run it; empty if nothing
	start   func(ctx context.Context, dir string) (peerCluster, error)
	prepare func(ctx context.Context, addr string) error // makes what the rows' loads need
	rows    []*peerRow
	warms   int // how many times longer than others it warms up before each row; 0 means once
}

// peerCluster is a running system.
type peerCluster interface {
	// leaderAddr returns the address at which the leader, or one node for all, serves clients.
	leaderAddr(context.Context) (string, error)
	processes() []*localcluster.Process
	stop()
}

func (c *benchCluster) processes() (all []*localcluster.Process) {
	for _, n := range c.nodes {
		all = append(all, n.Process)
	}
	return all
}

// The peers.
const (
	etcdPeer   = "etcd"
	consulPeer = "consul"
	eurekaPeer = "eureka"
)

var allPeers = []string{etcdPeer, consulPeer, eurekaPeer}

// systems returns Rollcall in both modes, and peers.
func (r *peersRun) systems(peers []string) []peerSystem {
	rollcall := func(mode string) func(context.Context, string) (peerCluster, error) {
		return func(ctx context.Context, dir string) (peerCluster, error) {
			return startBenchCluster(ctx, r.server.path, dir, mode, r.settings...)
		}
	}
	systems := []peerSystem{
		{
			name: "Rollcall CP", start: rollcall(localcluster.CP),
			prepare: func(ctx context.Context, addr string) error {
				return errors.Join(r.prepareEureka(ctx, addr), r.prepareConsul(ctx, addr))
			},
			rows: slices.Concat(r.eurekaRows(durable, map[string]string{"": linearizable, "?consistency=stale": stale}), r.consulRows(durable, durable, linearizable)),
		},
		{
			name: "Rollcall AP", start: rollcall(localcluster.AP), prepare: r.prepareEureka,
			rows: r.eurekaRows(oneMemory, map[string]string{"": stale}),
		},
	}
	of := map[string]peerSystem{etcdPeer: r.etcd(), consulPeer: r.consul(), eurekaPeer: r.eureka()}
	for _, name := range allPeers {
		if slices.Contains(peers, name) {
			systems = append(systems, of[name])
		}
	}
	for _, s := range systems {
		for _, row := range s.rows {
			row.System = s.name
		}
	}
	return systems
}

// loadResult is the result of a load on a node.
type loadResult struct {
	right    int // answers in the window
	p50, p99 time.Duration
	bytes    int64 // of a response's body
	wrong    load.WrongResponses
	loadCPU  time.Duration // taken by the load in programs other than this one
}

// peerLoad is a load in a closed loop: each connection sends its next request when the previous one was answered.
type peerLoad interface {
	// send sends the load for warm, calls begun, and then sends it for window.
	send(ctx context.Context, addr string, warm, window time.Duration, begun func()) (loadResult, error)
}

// httpLoad is a load of HTTP/1.1.
type httpLoad struct {
	conns    int
	requests load.Workload
	want     int
}

func (l httpLoad) send(ctx context.Context, addr string, warm, window time.Duration, begun func()) (loadResult, error) {
	b := load.Bulk{Targets: []string{addr}, Conns: l.conns, Requests: l.requests, Want: l.want}
	b.Window = max(warm, time.Millisecond) // without a window the load would not end
	before, err := b.Send(ctx)
	if err != nil {
		return loadResult{}, err
	}
	begun()
	b.Window = window
	result, err := b.Send(ctx)
	if err != nil {
		return loadResult{}, err
	}
	for how, n := range before.Wrong {
		result.Wrong[how] += n
	}
	return loadResult{right: len(result.Latencies), p50: quantile(result.Latencies, 50), p99: quantile(result.Latencies, 99), bytes: result.Body, wrong: result.Wrong}, nil
}

// quantile returns the time that a share (percent) of sorted times does not exceed, or 0 without times.
func quantile(sorted []time.Duration, percent int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(len(sorted)-1)*percent/100]
}

// rowOf returns a row without figures.
func rowOf(operation, call, promise string, l peerLoad) *peerRow {
	return &peerRow{Operation: operation, Call: call, Promise: promise, Wrong: load.WrongResponses{}, load: l}
}

// fetched returns a row for a document, compressed where the server does that.
func fetched(operation, path, promise string, conns int) *peerRow {
	return rowOf(operation, "GET "+path, promise, httpLoad{conns, fetchesOf(path), http.StatusOK})
}

// fleet returns as many instances as the plan says.
func (r *peersRun) fleet(name string) benchFleet {
	return benchFleet{name: name, size: r.instances, inApp: r.instances}
}

// eurekaRows returns Eureka's calls; lists has the parameters of a list, with what it promises.
func (r *peersRun) eurekaRows(promise string, lists map[string]string) []*peerRow {
	const renew = "PUT /eureka/apps/APP/ID"
	renewals := r.fleet("renewed").renewals()
	rows := []*peerRow{
		rowOf(renewing256, renew, promise, httpLoad{256, renewals, http.StatusOK}),
		rowOf(renewing64, renew, promise, httpLoad{64, renewals, http.StatusOK}),
		rowOf(registering, "POST /eureka/apps/APP", promise, httpLoad{256, r.fleet("changed").changes(), http.StatusNoContent}),
	}
	for _, parameters := range slices.Sorted(maps.Keys(lists)) {
		rows = append(rows, fetched(listing, "/eureka/apps/LARGE-000"+parameters, lists[parameters], 64))
	}
	return rows
}

func (r *peersRun) prepareEureka(ctx context.Context, addr string) error {
	for _, name := range []string{"renewed", "changed", "large"} {
		if err := r.fleet(name).registerAt(ctx, addr); err != nil {
			return err
		}
	}
	return r.expectList(ctx, addr, "/eureka/apps/LARGE-000", `"instanceId":"`)
}

// expectList fetches a list, and returns an error unless it has a mark for each instance.
func (r *peersRun) expectList(ctx context.Context, addr, path, mark string) error {
	resp, err := getOK(ctx, "http://"+addr+path, "Accept", "application/json")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if n := bytes.Count(text, []byte(mark)); err == nil && n != r.instances {
		err = fmt.Errorf("GET %s has %d instances instead of %d", path, n, r.instances)
	}
	return err
}

// consulRows returns Consul's calls. beat and session are the promises of renewals of checks and sessions, and list
// that of a list requested without parameters.
func (r *peersRun) consulRows(beat, session, list string) []*peerRow {
	const pass, health, key = "PUT /v1/agent/check/pass/ID", "/v1/health/service/large", "/v1/kv/bench/000/000000"
	passes := inTurn(r.instances, func(i int) []byte { return putJSON("/v1/agent/check/pass/"+agentService(i), "") })
	renewals := func(conn, conns int) func() []byte {
		i := conn - conns
		return func() []byte {
			i += conns
			return putJSON("/v1/session/renew/"+r.sessions[i%len(r.sessions)], "")
		}
	}
	var version atomic.Int64
	changes := func(conn, conns int) func() []byte {
		i := conn - conns
		return func() []byte {
			i += conns
			return catalogService(i%r.instances, "changed", version.Add(1))
		}
	}
	return []*peerRow{
		rowOf(renewing256, pass, beat, httpLoad{256, passes, http.StatusOK}),
		rowOf(renewing64, pass, beat, httpLoad{64, passes, http.StatusOK}),
		rowOf(renewing256, "PUT /v1/session/renew/ID", session, httpLoad{256, renewals, http.StatusOK}),
		rowOf(registering, "PUT /v1/catalog/register", durable, httpLoad{256, changes, http.StatusOK}),
		fetched(listing, health, list, 64),
		fetched(listing, health+"?stale", stale, 64),
		rowOf(writingKey, "PUT /v1/kv/KEY", durable, httpLoad{256, putsOf(r.instances), http.StatusOK}),
		fetched(readingKey, key+"?consistent", linearizable, 256),
		fetched(readingKey, key+"?stale", stale, 256),
	}
}

func (r *peersRun) prepareConsul(ctx context.Context, addr string) (err error) {
	const conns = 16
	agent := inTurn(r.instances, func(i int) []byte {
		id := agentService(i)
		return putJSON("/v1/agent/service/register", `{"ID":%q,"Name":"beating","Port":8080,"Check":{"CheckID":%q,"TTL":"24h","Status":"passing"}}`, id, id)
	})
	large := inTurn(r.instances, func(i int) []byte { return catalogService(i, "large", 0) })
	for what, requests := range map[string]load.Workload{"register with an agent": agent, "register in the catalog": large, "write keys": putsOf(r.instances)} {
		if err := prepareAt(ctx, addr, what, conns, http.StatusOK, firstRequests(r.instances, requests)); err != nil {
			return err
		}
	}
	if r.sessions, err = createSessions(ctx, addr, r.instances); err != nil {
		return fmt.Errorf("create sessions: %w", err)
	}
	return r.expectList(ctx, addr, "/v1/health/service/large", `"Service":{`)
}

func agentService(i int) string { return fmt.Sprintf("beating-%06d", i) }

// catalogService registers a service on its own node, in a document of about the size of Eureka's.
func catalogService(i int, name string, version int64) []byte {
	node := fmt.Sprintf("%s-%06d.cluster.example.internal", name, i)
	return putJSON("/v1/catalog/register", `{"Node":%q,"Address":"10.0.%d.%d","Service":{"ID":"%s:8080","Service":%q,"Address":%q,"Port":8080,"Tags":["zone-%c","http"],`+
		`"Meta":{"n":"%013d","management_port":"8081","commit":"%016x","homePageUrl":"http://%s:8080/","statusPageUrl":"http://%s:8081/actuator/info","healthCheckUrl":"http://%s:8081/actuator/health"}},`+
		`"Check":{"CheckID":"alive:%s","Name":"the instance says that it is well","Status":"passing","ServiceID":"%s:8080"}}`,
		node, i>>8&0xff, i&0xff, node, name, node, 'a'+i%3, version, uint64(i+1)*0x9e3779b97f4a7c15, node, node, node, node, node)
}

// putJSON returns a PUT of a document, or of nothing.
func putJSON(path, format string, args ...any) []byte {
	body := fmt.Sprintf(format, args...)
	return fmt.Appendf(nil, "PUT %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
}

// createSessions creates sessions that outlast any run.
func createSessions(ctx context.Context, addr string, n int) ([]string, error) {
	ids := make([]string, n)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(16)
	for i := range ids {
		g.Go(func() error {
			req, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://"+addr+"/v1/session/create", strings.NewReader(`{"TTL":"24h"}`))
			if err != nil {
				return err
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			var created struct{ ID string }
			if err := json.NewDecoder(resp.Body).Decode(&created); err != nil || created.ID == "" {
				return fmt.Errorf("create a session: %s, and the body names none", resp.Status)
			}
			ids[i] = created.ID
			return nil
		})
	}
	return ids, g.Wait()
}

// peerPrograms says where the peers' programs are.
type peerPrograms struct {
	dir string // of etcd, etcdload and consul
	jar string // of the Eureka server
}

// path returns a program's absolute path, or a sentence that says what is missing and how to get it.
func (p peerPrograms) path(name string) (path, missing string) {
	path, err := filepath.Abs(filepath.Join(p.dir, name))
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		return "", fmt.Sprintf("there is no %s in %s; make peers builds it.", name, p.dir)
	}
	return path, ""
}

// foreignCluster is three processes of a program that knows nothing of Rollcall.
type foreignCluster struct {
	nodes  []*localcluster.Process
	addrs  []string                           // for their clients
	leader func(context.Context) (int, error) // number of the leading node
}

// startForeign starts a program three times. command returns the command line of a node, given a directory and the
// addresses on every node, perNode each: ports[i][0] is for clients.
func startForeign(dir, program string, perNode int, command func(i int, dir string, ports [][]int) []string) (c *foreignCluster, ports [][]int, err error) {
	all, err := localcluster.ClaimPorts(benchNodes * perNode)
	if err != nil {
		return nil, nil, err
	}
	ports = slices.Collect(slices.Chunk(all, perNode))
	c = new(foreignCluster)
	for i, own := range ports {
		node := filepath.Join(dir, strconv.Itoa(i+1))
		process, err := localcluster.StartForeign(filepath.Join(node, "log"), nil, program, command(i, filepath.Join(node, "data"), ports)...)
		if err != nil {
			c.stop()
			return nil, nil, err
		}
		c.nodes, c.addrs = append(c.nodes, process), append(c.addrs, localcluster.Address(own[0]))
	}
	return c, ports, nil
}

// await waits until the cluster has reached a state. After an error nothing runs.
func (c *foreignCluster) await(ctx context.Context, what string, reached func(ctx context.Context) (bool, error)) error {
	err := await(ctx, what, localcluster.ReadyWithin, func(ctx context.Context) (bool, error) {
		if _, err := c.leaderAddr(ctx); err != nil {
			return false, err
		}
		return reached(ctx)
	})
	if err != nil {
		err = fmt.Errorf("%w; %s", err, c.nodes[0].LastWords(5))
		c.stop()
	}
	return err
}

func (c *foreignCluster) leaderAddr(ctx context.Context) (string, error) {
	i, err := c.leader(ctx)
	if err != nil {
		return "", err
	}
	return c.addrs[i], nil
}

func (c *foreignCluster) processes() []*localcluster.Process { return c.nodes }

func (c *foreignCluster) stop() {
	for _, n := range c.nodes {
		n.Kill()
	}
}

// versionOf returns the first line that a program prints, which names it and its version.
func versionOf(ctx context.Context, program string, args ...string) (string, error) {
	text, err := exec.CommandContext(ctx, program, args...).Output()
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.Replace(line, "Version: ", "", 1), err
}

// consul is three servers of Consul with their defaults, except that they allow as many connections from one address
// as the load has, and do not check for updates of themselves. They talk to each other at their own addresses: at
// 127.0.0.1 the UDP ports are taken by the claims (localcluster.ClaimPorts).
func (r *peersRun) consul() peerSystem {
	const http, server, lan, ports = 0, 1, 2, 3
	host := func(i int) string { return fmt.Sprintf("127.0.0.%d", i+2) }
	s := peerSystem{name: "Consul", prepare: r.prepareConsul, rows: r.consulRows("in one agent's memory and file, not synced", "in the leader's memory", "the leader's, by its lease")}
	var program string
	program, s.missing = r.found.path("consul")
	s.start = func(ctx context.Context, dir string) (_ peerCluster, err error) {
		if r.versions[s.name], err = versionOf(ctx, program, "version"); err != nil {
			return nil, err
		}
		c, ports, err := startForeign(dir, program, ports, func(i int, dir string, ports [][]int) []string {
			return []string{
				"agent", "-server", "-bootstrap-expect", strconv.Itoa(benchNodes), "-node", fmt.Sprintf("n%d", i+1), "-data-dir", dir,
				"-bind", host(i), "-client", "127.0.0.1", "-retry-join", fmt.Sprintf("%s:%d", host(0), ports[0][lan]), "-retry-interval", "1s",
				"-http-port", strconv.Itoa(ports[i][http]), "-server-port", strconv.Itoa(ports[i][server]), "-serf-lan-port", strconv.Itoa(ports[i][lan]),
				"-serf-wan-port", "-1", "-dns-port", "-1", "-grpc-port", "-1", "-grpc-tls-port", "-1",
				"-hcl", "limits { http_max_conns_per_client = 4096 }", "-hcl", "disable_update_check = true",
				"-hcl", `raft_logstore { backend = "wal" }`, // the default of later versions; 1.15's is bbolt
			}
		})
		if err != nil {
			return nil, err
		}
		c.leader = func(ctx context.Context) (int, error) {
			text, err := getText(ctx, "http://"+c.addrs[0]+"/v1/status/leader")
			for i, p := range ports {
				if strings.Contains(text, fmt.Sprintf("%s:%d", host(i), p[server])) {
					return i, nil
				}
			}
			return 0, errors.Join(errors.New("no node of Consul leads"), err)
		}
		return c, c.await(ctx, "Consul knows its nodes", func(ctx context.Context) (bool, error) {
			text, err := getText(ctx, "http://"+c.addrs[0]+"/v1/catalog/nodes")
			return strings.Count(text, `"Node":`) == benchNodes, err
		})
	}
	return s
}

// etcd is three servers of etcd with their defaults.
func (r *peersRun) etcd() peerSystem {
	const client, peer, ports = 0, 1, 2
	s := peerSystem{name: "etcd", prepare: func(context.Context, string) error { return nil }}
	var program, generator, missing string
	program, s.missing = r.found.path("etcd")
	if generator, missing = r.found.path("etcdload"); missing != "" {
		s.missing = missing
	}
	row := func(operation, call, promise string, l etcdLoad) *peerRow {
		l.program, l.keys = generator, r.instances
		return rowOf(operation, call, promise, l)
	}
	const (
		document = 1100 // approximate bytes of an instance
		value    = 128  // bytes of a key's value, as in putsOf
		keptBy   = "in the leader's memory"
	)
	s.rows = []*peerRow{
		row(renewing256, "LeaseKeepAlive", keptBy, etcdLoad{operation: "keepalive", conns: 256}),
		row(renewing64, "LeaseKeepAlive", keptBy, etcdLoad{operation: "keepalive", conns: 64}),
		row(registering, "Put with a lease", durable, etcdLoad{operation: "register", conns: 256, size: document}),
		row(listing, "Range", linearizable, etcdLoad{operation: "range", conns: 64, size: document}),
		row(listing, "Range, serializable", stale, etcdLoad{operation: "range-serializable", conns: 64, size: document}),
		row(writingKey, "Put", durable, etcdLoad{operation: "put", conns: 256, size: value}),
		row(readingKey, "Range", linearizable, etcdLoad{operation: "get", conns: 256, size: value}),
		row(readingKey, "Range, serializable", stale, etcdLoad{operation: "get-serializable", conns: 256, size: value}),
	}
	s.start = func(ctx context.Context, dir string) (_ peerCluster, err error) {
		if r.versions[s.name], err = versionOf(ctx, program, "--version"); err != nil {
			return nil, err
		}
		url := func(port int) string { return "http://" + localcluster.Address(port) }
		c, _, err := startForeign(dir, program, ports, func(i int, dir string, ports [][]int) []string {
			var cluster []string
			for j, p := range ports {
				cluster = append(cluster, fmt.Sprintf("n%d=%s", j+1, url(p[peer])))
			}
			return []string{
				"--name", fmt.Sprintf("n%d", i+1), "--data-dir", dir,
				"--listen-client-urls", url(ports[i][client]), "--advertise-client-urls", url(ports[i][client]),
				"--listen-peer-urls", url(ports[i][peer]), "--initial-advertise-peer-urls", url(ports[i][peer]),
				"--initial-cluster", strings.Join(cluster, ","),
			}
		})
		if err != nil {
			return nil, err
		}
		c.leader = c.etcdLeader
		return c, c.await(ctx, "etcd is healthy", func(ctx context.Context) (bool, error) {
			for _, addr := range c.addrs {
				if _, err := getText(ctx, "http://"+addr+"/health"); err != nil {
					return false, err
				}
			}
			return true, nil
		})
	}
	return s
}

// etcdLeader asks each node whether it leads.
func (c *foreignCluster) etcdLeader(ctx context.Context) (int, error) {
	for i, addr := range c.addrs {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/v3/maintenance/status", strings.NewReader("{}"))
		if err != nil {
			return 0, err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0, err
		}
		var status struct {
			Header struct {
				Member string `json:"member_id"`
			}
			Leader string
		}
		err = json.NewDecoder(resp.Body).Decode(&status)
		resp.Body.Close()
		if err != nil {
			return 0, err
		}
		if status.Leader != "" && status.Leader == status.Header.Member {
			return i, nil
		}
	}
	return 0, errors.New("no node of etcd says that it leads")
}

// etcdLoad is a load that the program etcdload puts on etcd.
type etcdLoad struct {
	program           string
	operation         string
	keys, size, conns int
}

func (l etcdLoad) send(ctx context.Context, addr string, warm, window time.Duration, begun func()) (loadResult, error) {
	cmd := exec.CommandContext(ctx, l.program, addr, l.operation, strconv.Itoa(l.keys), strconv.Itoa(l.size), strconv.Itoa(l.conns), warm.String(), window.String())
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return loadResult{}, err
	}
	var result struct {
		Right, P50, P99 int
		Bytes           int64
		Wrong           load.WrongResponses
	}
	lines := json.NewDecoder(out)
	err = lines.Decode(&result) // {}: the window begins
	before := runningUsage(cmd.Process.Pid)
	begun()
	err = errors.Join(err, lines.Decode(&result))
	if ended := cmd.Wait(); ended != nil || err != nil {
		return loadResult{}, fmt.Errorf("etcdload %s: %w: %s", l.operation, errors.Join(ended, err), &said)
	}
	return loadResult{
		right: result.Right, p50: time.Duration(result.P50) * time.Microsecond, p99: time.Duration(result.P99) * time.Microsecond,
		bytes: result.Bytes, wrong: result.Wrong, loadCPU: endedUsage(cmd.ProcessState).cpu - before.cpu,
	}, nil
}

// eureka is three stock Eureka servers, which need some seconds under each load until Java has compiled the code it
// runs.
func (r *peersRun) eureka() peerSystem {
	s := peerSystem{name: "stock Eureka", warms: 10, prepare: r.prepareEureka, rows: r.eurekaRows("in one server's memory; the others follow", map[string]string{"": "up to 30 s old"})}
	var jar string
	jar, s.missing = findEureka(r.found.jar)
	s.start = func(ctx context.Context, dir string) (peerCluster, error) {
		cores, _ := filepath.Glob(filepath.Join(filepath.Dir(jar), "lib", "eureka-core-[0-9]*.jar"))
		for _, core := range cores {
			r.versions[s.name] = strings.TrimSuffix(filepath.Base(core), ".jar")
		}
		return startEureka(ctx, jar, dir, false)
	}
	return s
}

func (c *eurekaCluster) leaderAddr(context.Context) (string, error) { return c.servers[0].HTTP, nil }

func (c *eurekaCluster) processes() (all []*localcluster.Process) {
	for _, n := range c.servers {
		all = append(all, n.Process)
	}
	return all
}

func (c *eurekaCluster) stop() { c.Close() }
