package integration

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	own "github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// tlsCluster configures a cluster whose every listener uses certificates from ca.
func tlsCluster(t *testing.T, ca *Certificates) Config {
	return Config{TLS: ca, Of: func(node string) map[string]string { return ca.Settings(t, node) }}
}

func TestClusterOverMutualTLSServesHTTPS(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, tlsCluster(t, NewCertificates(t)))
	follower := c.Others(c.Leader())[0]
	mustRegister(t, follower, Instance{App: "SECRET", ID: "s"})
	for _, n := range c.Nodes {
		_, listed := mustList(t, n)["s"]
		expect.That(t, listed, "node %s does not list what was registered over TLS", n.Name)
	}
	plain := *follower
	plain.Client = nil
	response := plain.Get("/eureka/apps")
	expect.That(t, response.Status != 200, "plain HTTP on the TLS port: %v, want a refusal", response)
}

// noticeAfter is when a node must know that its majority is gone.
const noticeAfter = 3 * time.Second

// mustStayOutside watches a node for long enough to have joined many times over: it may stop, or serve what it has,
// but it must not learn what was written without it.
func mustStayOutside(t *testing.T, n *Node) {
	t.Helper()
	for range 10 {
		Pass(t, noticeAfter/10)
		if !n.Running() {
			return
		}
		need.That(t, n.Get("/eureka/apps?consistency=linearizable").Status != 200, "a node with a certificate of another authority serves linearizable reads")
		if listing, err := n.ListingOf("/eureka/apps?consistency=stale"); err == nil {
			_, listed := listing["s"]
			need.That(t, !listed, "a node with a certificate of another authority got the log")
		}
	}
}

// certificateFolder has the files of one node's certificates, which are replaced while it runs.
type certificateFolder struct{ dir, node string }

func (f certificateFolder) path(name string) string { return filepath.Join(f.dir, f.node+"-"+name) }

// put replaces the node's certificate with one from an authority, and what it trusts with several.
func (f certificateFolder) put(t *testing.T, of *Certificates, trusted ...*Certificates) {
	t.Helper()
	cert, key := of.Issue(t, f.node)
	var authorities []byte
	for _, a := range trusted {
		authorities = append(authorities, need.Got(os.ReadFile(a.CA))(t)...)
	}
	for name, text := range map[string][]byte{
		"ca.pem": authorities, "key.pem": need.Got(os.ReadFile(key))(t), "cert.pem": need.Got(os.ReadFile(cert))(t),
	} {
		next := f.path(name) + ".next"
		need.OK(t, errors.Join(os.WriteFile(next, text, 0o600), os.Rename(next, f.path(name))))
	}
}

// settings makes a node use the files for everything that has certificates.
func (f certificateFolder) settings() map[string]string {
	s := map[string]string{"test.connection-life": "10s"}
	for _, of := range []string{"http", "cluster", "replication"} {
		s[of+".tls.cert"], s[of+".tls.key"], s[of+".tls.ca"] = f.path("cert.pem"), f.path("key.pem"), f.path("ca.pem")
	}
	s["http.tls.client-ca"] = s["http.tls.ca"]
	delete(s, "http.tls.ca")
	return s
}

// callInTurn repeatedly registers an instance, renews its lease and reads.
func callInTurn(ctx context.Context, n *Node, calls *Gaps) {
	for pause(ctx, 20*time.Millisecond) {
		r := n.Register(Instance{App: "ROLLED", ID: n.Datacenter + n.Name, Duration: 600})
		calls.add(unless(r.Status/100 == 2, "register at %s: %v", n.Name, r))
		for range 5 { // heartbeats in a row, for which a node takes a connection over
			r = n.Renew("ROLLED", n.Datacenter+n.Name)
			calls.add(unless(r.Status == 200, "renew at %s: %v", n.Name, r))
		}
		r = n.Get("/eureka/apps/ROLLED")
		calls.add(unless(r.Status/100 == 2, "list at %s: %v", n.Name, r))
	}
}

// watchInTurn reads one stream of changes after the other, and counts those that the node has ended cleanly.
func watchInTurn(ctx context.Context, url string, client *http.Client, calls *Gaps, ended *atomic.Int64) {
	for pause(ctx, 20*time.Millisecond) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/v1/rollcall/watch", nil)
		if err == nil {
			var response *http.Response
			if response, err = client.Do(r); err == nil {
				_, err = io.Copy(io.Discard, response.Body)
				response.Body.Close()
				err = errors.Join(err, unless(response.StatusCode == 200 && response.ProtoMajor == 2, "watch: %s %s", response.Proto, response.Status))
			}
		}
		if ctx.Err() == nil {
			calls.add(err)
			ended.Add(1)
		}
	}
}

// mustShow checks that a listener shows new connections a certificate from an authority.
func mustShow(t *testing.T, address string, of *Certificates, client *certifiedClient) {
	t.Helper()
	c := client.now.Load().TLSClientConfig.Clone()
	c.RootCAs = x509.NewCertPool()
	c.RootCAs.AddCert(of.cert)
	conn, err := tls.Dial("tcp", address, c)
	need.OKf(t, err, "%s shows no certificate of the authority", address)
	conn.Close()
}

// Everything moves to another authority: first all trust both, then all have certificates from the new one, then the
// old one is forgotten. Meanwhile two datacenters, one of each mode, serve calls and replicate; the old connections
// have all ended after each step.
func TestCertificatesAreExchangedWhileCallsRun(t *testing.T) {
	t.Parallel()
	old, next := NewCertificates(t), NewCertificates(t)
	both := newClientOf(t, old, old, next)
	folders, dir := map[string]certificateFolder{}, t.TempDir()
	of := func(dc string) func(node string) map[string]string {
		return func(node string) map[string]string {
			f := certificateFolder{filepath.Join(dir, dc), node}
			need.OK(t, os.MkdirAll(f.dir, 0o700))
			f.put(t, old, old)
			folders[dc+node] = f
			return f.settings()
		}
	}
	cp, ap := withSteadyLeader(Config{TLS: old, Of: of("dc1")}), Config{AP: true, Nodes: 2, TLS: old, Of: of("dc2")}
	old.PresentTo(t)
	d := StartUnlikeDatacenters(t, cp, ap)
	second := both.overHTTP2(t)
	var calls Gaps
	var watches atomic.Int64 // that have ended cleanly
	ctx, cancel := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for _, n := range d.Nodes() {
		n.Client = both.Client
		callers.Go(func() { callInTurn(ctx, n, &calls) })
		callers.Go(func() {
			other := *n
			other.Client = second.Client
			callInTurn(ctx, &other, &calls)
		})
		callers.Go(func() { watchInTurn(ctx, n.URL(), second.Client, &calls, &watches) })
	}
	step := func(of *Certificates, client *certifiedClient, trusted ...*Certificates) {
		t.Helper()
		for i, n := range d.Nodes() {
			folders[n.Datacenter+n.Name].put(t, of, trusted...)
			if i%2 == 0 { // the others notice without being told
				n.Signal(t, syscall.SIGHUP)
			}
		}
		Pass(t, 10*time.Second) // during which every node checks its files
		both.use(client)
		second.use(client.overHTTP2(t))
		Pass(t, 10*time.Second) // during which every connection ends, see test.connection-life
		for _, n := range d.Nodes() {
			mustShow(t, n.HTTP, of, client)
			if n.Datacenter == dcName(0) { // mode ap has no such port
				mustShow(t, n.Cluster, of, client)
			}
		}
	}
	step(old, both, old, next)
	step(next, newClientOf(t, next, old, next), old, next)
	step(next, newClientOf(t, next, next), next)
	// Both still replicate.
	for i, c := range d.Clusters {
		for _, other := range d.Clusters[1-i].Nodes {
			awaitStatus(t, other, "ROLLED", dcName(i)+c.Nodes[0].Name, "UP")
		}
		mustRegister(t, c.Nodes[0], Instance{App: "ROLLED", ID: fmt.Sprintf("after-%d", i)})
		for _, other := range d.Clusters[1-i].Nodes {
			awaitStatus(t, other, "ROLLED", fmt.Sprintf("after-%d", i), "UP")
		}
	}
	cancel()
	callers.Wait()
	good, bad := calls.counts()
	t.Logf("calls: %v", &calls)
	expect.That(t, bad == 0 && good > 1000, "calls: %v, want many, and none bad", &calls)
	expect.That(t, watches.Load() >= int64(3*len(d.Nodes())), "%d watches ended in good order, want one at each node in each step", watches.Load())
	for _, n := range d.Nodes() {
		stranger := *n
		stranger.Client = newClientOf(t, old, old, next).Client
		expect.OKf(t, stranger.Get("/eureka/apps").is(0), "a client with a certificate of the old authority")
		expect.That(t, !strings.Contains(n.Output(t), "cannot be read"), "%s could not read a certificate: %s", n.Name, n.LastWords(10))
	}
	// A node whose certificate comes from the old authority is outside.
	lost := d.Clusters[0].Others(d.Clusters[0].Leader())[0]
	lost.Stop(t)
	folders[lost.Datacenter+lost.Name].put(t, old, old, next)
	mustRegister(t, d.Clusters[0].Leader(d.Clusters[0].Others(lost)...), Instance{App: "SECRET", ID: "s"})
	lost.Client = newClientOf(t, next, old, next).Client
	lost.Start(t)
	mustStayOutside(t, lost)
}

// noticed is how long a node may take until it knows of a change to tokens: ten times what is promised.
const noticed = 10 * time.Second

// denied reports whether a response refuses the caller, and not the call. Of callers whose credentials fail all the
// time, most are refused unread.
func (r Response) denied() bool {
	return r.Status == http.StatusUnauthorized || r.Status == http.StatusForbidden || r.Status == http.StatusTooManyRequests
}

// It does by hand what the documentation says: bootstrap through the socket, once, and after the loss of the last
// operator's token another one from any node's socket; then the lost one is revoked.
func TestFirstOperatorAndALostTokenNeedButTheSocket(t *testing.T) {
	t.Parallel()
	c := NewCluster(t, withSteadyLeader(Config{Auth: "on"}))
	for _, n := range c.Nodes {
		n.Start(t)
	}
	for _, n := range c.Nodes { // nobody has any rights before
		Eventually(t, ReadyLimit, n.Name+" listens", func() error { return n.Get("/readyz").is(http.StatusOK) })
		for _, path := range []string{"/eureka/apps", "/v1/kv/a", "/metrics", authPath + "tokens"} {
			response := n.Get(path)
			expect.That(t, response.denied(), "%s before the bootstrap: %v", path, response)
		}
		response := n.Do(Request{Method: http.MethodPost, Path: authPath + "bootstrap"})
		expect.OKf(t, response.is(http.StatusUnauthorized), "bootstrap over the network")
	}
	post := func(n *Node, path, body string) Response {
		return untilLed(func() Response {
			return n.Admin(Request{Method: http.MethodPost, Path: authPath + path, Body: []byte(body)})
		})
	}
	lost := need.Got(decoded[own.NewToken](c.Nodes[1], "bootstrap", post(c.Nodes[1], "bootstrap", `{"name":"ann"}`)))(t)
	c.beOperator(lost)
	c.WaitReady()
	c.t.Cleanup(c.lookAtProcesses)
	expect.OKf(t, post(c.Nodes[2], "bootstrap", "").is(http.StatusConflict), "a second bootstrap, at another node's socket")
	remove := func(accessor string) Response {
		return untilLed(func() Response {
			return c.Nodes[0].Do(Request{Method: http.MethodDelete, Path: authPath + "tokens/" + accessor})
		})
	}
	expect.OKf(t, remove(lost.Accessor).is(http.StatusConflict), "the last operator's own removal")
	for _, n := range c.Nodes {
		n.Token = "" // is lost
	}
	found := need.Got(decoded[own.NewToken](c.Nodes[2], "tokens", post(c.Nodes[2], "tokens", `{"name":"bob","roles":["operator"]}`)))(t)
	c.beOperator(found)
	c.WaitReady()
	need.OKf(t, remove(lost.Accessor).is(http.StatusOK), "the lost token's removal")
	restarted := c.Others(c.Leader())[0]
	restarted.Stop(t)
	restarted.Start(t)
	restarted.WaitReady(t)
	for _, n := range c.Nodes {
		Eventually(t, noticed, n.Name+" refuses the lost token", func() error { return n.As(lost.Secret).Get("/eureka/apps").is(http.StatusUnauthorized) })
		status := need.Got(ask[own.AuthStatus](n, strings.TrimSuffix(authPath, "/")))(t)
		expect.That(t, status.Mode == "on" && status.Bootstrapped && status.Tokens == 1 && status.Caller.Name == "bob", "%s says %+v", n.Name, status)
		over := n.Admin(Request{Path: authPath + "tokens"})
		expect.That(t, over.Status == http.StatusOK && bytes.Contains(over.Body, []byte(found.Accessor)), "%s's socket: %v", n.Name, over)
	}
}

// It plants secrets where programs leave them: the search for them must find each.
func TestSecretsThatShowAreFound(t *testing.T) {
	t.Parallel()
	const secret = "abcdefghijklmnopqrstuvwxyz234567abcdefghijklmnopqrst"
	const token, password = "rct_aaaabbbbccccdddd_" + secret + "_2222222", "canary-of-a-peer"
	var zipped, packed bytes.Buffer
	z := gzip.NewWriter(&zipped)
	fmt.Fprint(z, "url=http://orders:"+token+"@n1/eureka")
	need.OK(t, z.Close())
	packed.WriteString("header")
	p := need.Got(zstd.NewWriter(&packed))(t)
	fmt.Fprint(p, strings.Repeat("key", 1000)+password)
	need.OK(t, p.Close())
	for where, text := range map[string]string{
		"a log":             `level=WARN msg="no such token" token=` + token,
		"the secret alone":  secret,
		"a Basic field":     "Basic " + base64.StdEncoding.EncodeToString([]byte("orders:"+token)),
		"another one":       "Basic " + base64.StdEncoding.EncodeToString([]byte("pay:"+token)),
		"a third one":       "Basic " + base64.StdEncoding.EncodeToString([]byte("a:"+password)),
		"a command line":    "server\x00--replication-eureka=old=http://us:" + password + "@host/eureka\x00",
		"an escaped URL":    url.QueryEscape("http://us:" + password + "@host/eureka"),
		"a debug bundle":    zipped.String(),
		"a packed snapshot": packed.String(),
	} {
		var s secrets
		s.add(token)
		s.add(password)
		s.lookPacked(where, []byte(text))
		expect.That(t, len(s.leaks) > 0, "%s: the secret in it is not found", where)
	}
	var s secrets
	s.add(token)
	s.lookPacked("what may be known", []byte(strings.Replace(token, secret, "…", 1)))
	expect.That(t, len(s.leaks) == 0, "%v", s.leaks)
}

// residentPeak returns the most memory (KiB) that a node's process ever had.
func residentPeak(t *testing.T, n *Node) (kib int) { return processStatus(t, n, "VmHWM") }

// resident returns the memory (KiB) that a node's process has now.
func resident(t *testing.T, n *Node) (kib int) { return processStatus(t, n, "VmRSS") }

// processStatus returns a figure (KiB) that Linux has for a node's process.
func processStatus(t *testing.T, n *Node, field string) (kib int) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.Pid()))
	need.Present(t, err == nil, "the system does not say how much memory %s takes: %v", n.Name, err)
	for line := range strings.Lines(string(status)) {
		if _, err := fmt.Sscanf(line, field+": %d kB", &kib); err == nil {
			return kib
		}
	}
	need.Present(t, false, "the system does not say %s of %s", field, n.Name)
	return 0
}

func zipped(text string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(text))
	_ = w.Close()
	return b.Bytes()
}

// attacks returns small requests that make a node hold much, with their refusals.
func attacks() []struct {
	name, method, path, body string
	zipped                   bool
	status                   int
	says                     string
} {
	tree := `{"KV":{"Verb":"get-tree","Key":"large/"}}`
	trees := strings.Repeat(tree+",", 126) + tree
	return []struct {
		name, method, path, body string
		zipped                   bool
		status                   int
		says                     string
	}{
		{"a batch of 2.7 million items", "POST", "/eureka/peerreplication/batch", `{"replicationList":[` + strings.Repeat("{},", 2_700_000) + "{}]}", true, 413, ""},
		{"127 trees", "PUT", "/v1/txn", "[" + trees + "]", false, 413, "67108864"},
		{"127 trees in the log", "PUT", "/v1/txn", "[" + trees + `,{"KV":{"Verb":"set","Key":"k","Value":"dg=="}}]`, false, 413, "8388608"},
		{"5,000 checks", "PUT", "/v1/agent/service/register", `{"Name":"x","Checks":[` + strings.Repeat(`{"TTL":"1h"},`, 5_000) + `{"TTL":"1h"}]}`, false, 400, "a service may have 64"},
	}
}

// attack sends each of the attacks to these nodes, twenty at once.
func attack(t *testing.T, nodes []*Node) {
	t.Helper()
	for _, a := range attacks() {
		body, headers := []byte(a.body), map[string]string(nil)
		if a.zipped {
			body, headers = zipped(a.body), map[string]string{"Content-Encoding": "gzip", "Content-Type": "application/json"}
		}
		for _, n := range nodes {
			var sending sync.WaitGroup
			for range 20 {
				sending.Go(func() {
					status, text := browse(t, n, a.method, a.path, body, headers)
					expect.That(t, (status == a.status || status == http.StatusServiceUnavailable) && (status != a.status || strings.Contains(text, a.says)),
						"%s at %s: got %d %.200s, want %d %s, or 503", a.name, n.Name, status, text, a.status, a.says)
				})
			}
			sending.Wait()
		}
	}
}

// askers is how many clients send the same request at once.
const askers = 20

// largestResponses has reads whose responses show everything that weigh stores.
var largestResponses = []string{
	"/eureka/apps/HEAVY", "/eureka/vips/heavy", "/v1/rollcall/apps", "/v1/catalog/service/heavy", "/v1/health/service/heavy",
	"/v1/agent/services", "/v1/catalog/nodes", "/v1/kv/?recurse", "/v1/kv/?recurse&pretty",
}

// weigh stores the largest things that responses can show: instances and nodes with much metadata, and large keys.
func weigh(t *testing.T, c *Cluster, instances, nodes, keys int) {
	t.Helper()
	value := strings.Repeat("v", 60<<10)
	var storing sync.WaitGroup
	store := func(number int, method, path string, body func(i int) string) {
		storing.Go(func() {
			for i := range number {
				at := strings.ReplaceAll(path, "%d", fmt.Sprint(i))
				err := Poll(ReadyLimit, func() error { // a busy disk may take too long for a response
					response := c.Nodes[i%len(c.Nodes)].Do(Request{Method: method, Path: at, Body: []byte(body(i)), ContentType: "application/json"})
					return unless(response.Outcome() == Done, "%v", response)
				})
				if err != nil {
					t.Errorf("%s %s: %v", method, at, err)
					return
				}
			}
		})
	}
	store(instances, "POST", "/eureka/apps/HEAVY", func(i int) string {
		return fmt.Sprintf(`{"instance":{"instanceId":"h%d","app":"HEAVY","hostName":"h","ipAddr":"10.0.0.1","vipAddress":"heavy","status":"UP","leaseInfo":{"durationInSecs":3600},"dataCenterInfo":{"name":"MyOwn"},"metadata":{"k":%q}}}`, i, value)
	})
	store(nodes, "PUT", "/v1/catalog/register", func(i int) string {
		return fmt.Sprintf(`{"Node":"n%d","Address":"10.0.0.1","NodeMeta":{"a":%q}}`, i, value[:512])
	})
	store(keys, "PUT", "/v1/kv/large/%d", func(int) string { return strings.Repeat("v", 512<<10) })
	storing.Wait()
}

// readAtOnce asks a node for the same many times at once, and counts the responses by status.
func readAtOnce(t *testing.T, n *Node, path string) (statuses map[int]int, bytes int64) {
	t.Helper()
	var mu sync.Mutex
	statuses = map[int]int{}
	var reading sync.WaitGroup
	for range askers {
		reading.Go(func() {
			resp, err := transport.RoundTrip(mustRequest(t, n.URL()+path))
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			size, err := io.Copy(io.Discard, resp.Body)
			expect.OKf(t, err, "%s", path)
			mu.Lock()
			defer mu.Unlock()
			statuses[resp.StatusCode]++
			bytes = max(bytes, size)
		})
	}
	reading.Wait()
	return statuses, bytes
}

func mustRequest(t *testing.T, url string) *http.Request {
	t.Helper()
	return need.Got(http.NewRequest(http.MethodGet, url, nil))(t)
}

// readTheLargest asks a follower for each of some large responses, many times at once, and checks the memory that
// they take besides what is stored.
func readTheLargest(t *testing.T, c *Cluster, paths []string) (n *Node, stored int) {
	t.Helper()
	n = c.Others(c.Leader())[0]
	stored = resident(t, n)
	for _, path := range paths {
		statuses, bytes := readAtOnce(t, n, path)
		t.Logf("%s: answers by status %v, the largest of %d bytes; from %d MiB to %d MiB, at most %d MiB", path, statuses, bytes, stored>>10, resident(t, n)>>10, residentPeak(t, n)>>10)
		expect.That(t, statuses[http.StatusOK] != 0 && statuses[http.StatusOK]+statuses[http.StatusServiceUnavailable]+statuses[http.StatusInternalServerError] == askers,
			"%s: answers by status %v, want some of 200, and 503 (Consul's API: 500) at most beside them", path, statuses)
	}
	grown := residentPeak(t, n) - stored
	expect.That(t, grown <= 1<<20, "%s grew by %d MiB, want less than 1 GiB", n.Name, grown>>10)
	return n, stored
}

// The same applies after the small requests that make a node hold much: a minute later a node uses only the memory that
// its state needs.
func TestMemoryIsGivenBackAfterTheLargestResponses(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Config{})
	weigh(t, c, 300, 1000, 120)
	n, stored := readTheLargest(t, c, largestResponses)
	attack(t, []*Node{n})
	err := Poll(time.Until(time.Now().Add(time.Minute)), func() error {
		grown := resident(t, n) - stored
		return unless(grown <= 100<<10, "%s has %d MiB more than before", n.Name, grown>>10)
	})
	t.Logf("%s: %d MiB before, %d MiB after, at most %d MiB", n.Name, stored>>10, resident(t, n)>>10, residentPeak(t, n)>>10)
	expect.That(t, err == nil, "a minute after the requests %v, want less than 100 MiB", err)
}

// browse sends a request with headers.
func browse(t *testing.T, n *Node, method, path string, body []byte, headers map[string]string) (int, string) {
	t.Helper()
	req := need.Got(http.NewRequest(method, n.URL()+path, bytes.NewReader(body)))(t)
	for name, value := range headers {
		req.Header.Set(name, value)
	}
	resp := need.Got(transport.RoundTrip(req))(t)
	defer resp.Body.Close()
	return resp.StatusCode, string(need.Got(io.ReadAll(resp.Body))(t))
}
