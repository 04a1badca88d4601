package integration

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"go.uber.org/goleak"

	own "github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/localcluster"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// TestMain builds the program under test, unless ROLLCALL_BIN names one, and looks for goroutines that tests left
// behind.
func TestMain(m *testing.M) {
	if os.Getenv(asConsul) != "" {
		if err := consul(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	if err := runMore(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	remove, err := build()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(quietly{m}, goleak.Cleanup(func(code int) {
		remove()
		os.Exit(code)
	}))
}

// runMore runs four tests at a time on two processors, unless -parallel says otherwise. They often wait for the
// servers' clocks, but each has a cluster, and with more of them leases would not be renewed in time.
func runMore() error {
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if given {
		return nil
	}
	return flag.Set("test.parallel", fmt.Sprint(runtime.GOMAXPROCS(0)*2))
}

// quietly closes the connections that were kept alive before leaks are looked for.
type quietly struct{ m *testing.M }

func (q quietly) Run() int {
	code := q.m.Run()
	CloseIdleConnections()
	consulTransport.CloseIdleConnections()
	http.DefaultTransport.(*http.Transport).CloseIdleConnections() // fargo's
	return code
}

// built is the directory of the programs that the tests build; it is removed after them.
var built string

func build() (remove func(), err error) {
	if built, err = os.MkdirTemp("", "rollcall"); err != nil {
		return nil, err
	}
	remove = func() { os.RemoveAll(built) }
	if os.Getenv("ROLLCALL_BIN") != "" {
		return remove, nil
	}
	bin := filepath.Join(built, "rollcall")
	if out, err := exec.Command("go", "build", "-o", bin, "../cmd/rollcall").CombinedOutput(); err != nil {
		remove()
		return nil, fmt.Errorf("build the program under test: %w\n%s", err, out)
	}
	return remove, os.Setenv("ROLLCALL_BIN", bin)
}

// buildHealthServer builds a gRPC server, from the tests of the module that needs gRPC.
var buildHealthServer = sync.OnceValues(func() (path string, err error) {
	path = filepath.Join(built, "healthserver")
	if out, err := exec.Command("go", "-C", "../client/grpcresolver", "test", "-c", "-o", path, ".").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build a gRPC server: %w\n%s", err, out)
	}
	return path, nil
})

// buildBench builds the benchmarks.
var buildBench = sync.OnceValues(func() (path string, err error) {
	path = filepath.Join(built, "rollcall-bench")
	if out, err := exec.Command("go", "build", "-o", path, "../cmd/rollcall-bench").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the benchmarks: %w\n%s", err, out)
	}
	return path, nil
})

// benchProgram returns the path of the benchmarks' program.
func benchProgram(t testing.TB) string {
	t.Helper()
	path := need.Got(buildBench())(t)
	return path
}

// asConsul is set in the environment when this test program is started instead of consul. Its value is how many nodes
// of Rollcall are behind an agent; "host" after that number makes it the agent of a host; "secured" makes the nodes
// ask for credentials.
const asConsul = "ROLLCALL_AS_CONSUL"

// ownTestsToken is the token of the tests of Consul's own client if the nodes ask for one: it must be known before
// there is a cluster. The agent replaces it with the operator's, and adds none to requests without one.
const ownTestsToken = "canary-of-the-own-tests"

// consul is what the tests of Consul's own client start and expect to be Consul: `consul version -format=json`, and
// `consul agent -config-file FILE`, which here is a cluster of Rollcall behind the port that FILE names.
func consul(args []string) error {
	switch {
	case len(args) > 0 && args[0] == "version":
		fmt.Printf(`{"Version":%q}`, consulVersion) // it decides how the tests write FILE
		return nil
	case len(args) == 3 && args[0] == "agent" && args[1] == "-config-file":
		return consulAgent(args[2])
	}
	return fmt.Errorf("consul: called with %q", args)
}

func consulAgent(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var config consulConfig
	if err := json.Unmarshal(text, &config); err != nil {
		return err
	}
	interrupted, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	interrupted, orphaned := context.WithCancel(interrupted)
	defer orphaned()
	go func() { // a test that panics sends no interrupt
		for parent := os.Getppid(); os.Getppid() == parent; {
			<-time.After(time.Second)
		}
		orphaned()
	}()
	l, err := net.Listen("tcp", localcluster.Address(config.Ports.HTTP))
	if err != nil {
		return err
	}
	number, kind, _ := strings.Cut(os.Getenv(asConsul), " ")
	nodes, err := startBehind(filepath.Dir(file), number, kind == "secured")
	defer stopAll(nodes)
	if err != nil {
		return err
	}
	node := logicalNode
	if kind == "host" {
		node = config.NodeName
	}
	server := &http.Server{Handler: inFrontOf(nodes, node, config)}
	go func() {
		<-interrupted.Done()
		server.Close()
	}()
	_ = server.Serve(l) // until it is closed
	return nil
}

// startBehind starts the nodes behind an agent. It returns those that it started even after an error. They end when
// this process does, however that ends.
func startBehind(dir, number string, secured bool) ([]*localcluster.Node, error) {
	count, err := strconv.Atoi(number)
	if err != nil {
		return nil, err
	}
	ports, err := localcluster.ClaimPorts(2 * count)
	if err != nil {
		return nil, err
	}
	var nodes []*localcluster.Node
	for i := range count {
		n := &localcluster.Node{
			Name: fmt.Sprint("n", i+1), Datacenter: "dc1", Mode: localcluster.CP,
			HTTP: localcluster.Address(ports[2*i]), Cluster: localcluster.Address(ports[2*i+1]),
			Settings: map[string]string{"raft.heartbeat-timeout": "200ms", "raft.election-timeout": "200ms", "raft.lease-timeout": "200ms"},
		}
		if count > 1 { // they elect each other, and share the processors with the tests' other clusters
			n.Settings = make(map[string]string)
		}
		if secured {
			n.Settings["auth.mode"] = "on"
		}
		n.PutBelow(filepath.Join(dir, "rollcall", n.Name))
		nodes = append(nodes, n)
	}
	for i, n := range nodes {
		n.Introduce(nodes)
		if err := n.Start(os.Getenv("ROLLCALL_BIN")); err != nil {
			return nodes[:i], err
		}
	}
	return nodes, nil
}

func stopAll(nodes []*localcluster.Node) {
	var stopped sync.WaitGroup
	for _, n := range nodes {
		stopped.Go(n.Stop)
	}
	stopped.Wait()
}

// consulConfig is what is read from FILE.
type consulConfig struct {
	NodeName string            `json:"node_name"`
	NodeID   string            `json:"node_id"`
	NodeMeta map[string]string `json:"node_meta"`
	Ports    struct {
		HTTP int `json:"http"`
	} `json:"ports"`
}

// Of Rollcall's logical node, and of the version that consul claims.
const (
	logicalNode   = "rollcall"
	consulVersion = "1.14.11"
)

// inFrontOf passes every request on, to one node after the other, once they are ready, for an agent: most tests
// expect a cluster whose only agent is its server, which is the logical one. It replaces Rollcall's node name, node
// id and version with those of FILE, where the tests wrote them, and of the program. It answers itself the request
// about the service mesh, which Rollcall does not have, that the tests send before they begin.
func inFrontOf(nodes []*localcluster.Node, node string, config consulConfig) http.Handler {
	var turn atomic.Uint64
	agent := "/agent/" + url.PathEscape(node)
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: nodes[turn.Add(1)%uint64(len(nodes))].HTTP, Path: agent})
			if r.Out.Header.Get("X-Consul-Token") == ownTestsToken || r.Out.Header.Get("X-Consul-Token") == "" && ofTheirServer[r.In.URL.Path] {
				r.Out.Header.Set("X-Consul-Token", nodes[0].Token)
			}
		},
		ModifyResponse: func(r *http.Response) error {
			self, err := askSelf(nodes[0].URL()+agent, nodes[0].Token)
			if err != nil {
				return err
			}
			return rewrite(&r.Body, r.Header, &r.ContentLength, strings.NewReplacer(
				quoted(node), quoted(config.NodeName), self.NodeID, config.NodeID,
				`"consul-version":`+quoted(self.Version), `"consul-version":`+quoted(consulVersion)))
		},
	}
	ready := sync.OnceValue(func() error { return becomeAgent(nodes, agent, node, config.NodeMeta) })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := ready(); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		if r.URL.Path == "/v1/agent/connect/ca/roots" {
			fmt.Fprint(w, `{"ActiveRootID":"none","Roots":[{"ID":"none"}]}`)
			return
		}
		r.Header.Del("Accept-Encoding")
		r.URL.Path = strings.ReplaceAll(r.URL.Path, config.NodeName, node)
		r.URL.RawPath = ""
		if err := rewrite(&r.Body, r.Header, &r.ContentLength, strings.NewReplacer(quoted(config.NodeName), quoted(node))); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		proxy.ServeHTTP(w, r)
	})
}

// ofTheirServer has the paths that the tests wait for without a credential, until their server is there.
var ofTheirServer = map[string]bool{"/v1/status/leader": true, "/v1/catalog/nodes": true, "/v1/health/node/" + logicalNode: true}

// becomeAgent waits until the nodes are ready, and gives the agent's node the metadata that the tests wrote into
// FILE.
func becomeAgent(nodes []*localcluster.Node, agent, node string, meta map[string]string) error {
	ctx, cancel := context.WithTimeout(context.Background(), ReadyLimit)
	defer cancel()
	if nodes[0].Settings["auth.mode"] != "" {
		response := untilLed(func() Response {
			return admin(nodes[0].Dir, Request{Method: http.MethodPost, Path: authPath + "bootstrap"})
		})
		var operator own.NewToken
		if err := json.Unmarshal(response.Body, &operator); err != nil {
			return fmt.Errorf("bootstrap: %v", response)
		}
		for _, n := range nodes {
			n.Token = operator.Secret
		}
	}
	for _, n := range nodes {
		if err := n.AwaitReady(ctx, true); err != nil {
			return err
		}
	}
	if meta == nil {
		return nil
	}
	client, err := api.NewClient(&api.Config{Address: nodes[0].URL() + agent, Token: nodes[0].Token})
	if err != nil {
		return err
	}
	_, err = client.Catalog().Register(&api.CatalogRegistration{Node: node, Address: "127.0.0.1", NodeMeta: meta}, nil)
	return err
}

func quoted(text string) string { return `"` + text + `"` }

// rewrite replaces texts in a body.
func rewrite(body *io.ReadCloser, header http.Header, length *int64, texts *strings.Replacer) error {
	text, err := io.ReadAll(*body)
	if err != nil {
		return err
	}
	changed := texts.Replace(string(text))
	*body, *length = io.NopCloser(strings.NewReader(changed)), int64(len(changed))
	header.Set("Content-Length", fmt.Sprint(len(changed)))
	return nil
}

// agentSelf is the part of agent/self that the tests compare.
type agentSelf struct{ NodeID, Version string }

func askSelf(agent, token string) (agentSelf, error) {
	req, err := http.NewRequest(http.MethodGet, agent+"/v1/agent/self", nil)
	if err != nil {
		return agentSelf{}, err
	}
	req.Header.Set("X-Consul-Token", token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return agentSelf{}, err
	}
	defer resp.Body.Close()
	var self struct{ Config agentSelf }
	err = json.NewDecoder(resp.Body).Decode(&self)
	return self.Config, err
}
