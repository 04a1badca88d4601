package integration

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/replication/wire"
)

// fill sends requests through all nodes in turn until every node refuses one because of a limit, in words that name the
// limit, and returns how many were accepted. A node counts in its own copy, which may be a moment behind.
func fill(t *testing.T, c *Cluster, limit string, method string, request func(i int) (path, body string)) (taken int) {
	t.Helper()
	refusing := 0
	for i := 0; refusing < len(c.Nodes); i++ {
		path, body := request(i)
		switch status, text := browse(t, c.Nodes[i%len(c.Nodes)], method, path, "", "", []byte(body), nil); {
		case status == http.StatusOK && i < 1000:
			taken, refusing = taken+1, 0
		case status == http.StatusInsufficientStorage && strings.Contains(text, limit):
			refusing++
		default:
			t.Fatalf("%s %s, request %d: got %d %q, want 507 and %q in the end", method, path, i, status, text, limit)
		}
	}
	return taken
}

// TestQuotasBoundWhatIsStoredAndLetTheRestGoOn: sessions without a TTL, nodes of the catalog and keys fill a cluster up
// to their limits. All nodes refuse more in words, accept everything that adds nothing, and have room again after a
// deletion.
func TestQuotasBoundWhatIsStoredAndLetTheRestGoOn(t *testing.T) {
	t.Parallel()
	cfg := withSteadyLeader(Config{})
	maps.Copy(cfg.Settings, map[string]string{"limits.state-bytes": "300000", "limits.sessions": "20", "limits.nodes": "10"})
	c := StartCluster(t, cfg)
	first := c.Nodes[0]
	mustRegister(t, first, Instance{App: "ORDERS", ID: "orders-1"})
	status, text := browse(t, first, "PUT", "/v1/session/create", "", "", []byte("{}"), nil)
	var session struct{ ID string }
	err := json.Unmarshal([]byte(text), &session)
	need.That(t, err == nil && status == http.StatusOK, "session: got %d %q", status, text)
	lock := "/v1/rollcall/locks/l?session=" + session.ID
	status, text = browse(t, first, "PUT", lock, "", "", nil, nil)
	need.That(t, status == http.StatusOK, "lock: got %d %q", status, text)

	n := fill(t, c, "limits.sessions is 20", "PUT", func(int) (string, string) { return "/v1/session/create", "{}" })
	expect.That(t, n >= 19 && n <= 19+len(c.Nodes), "%d sessions were taken beside the first one, want 19", n)
	node := func(i int) (path, body string) {
		return "/v1/catalog/register", fmt.Sprintf(`{"Node":"n%d","Address":"10.0.0.1"}`, i)
	}
	n = fill(t, c, "limits.nodes is 10", "PUT", node)
	expect.That(t, n >= 10 && n <= 10+len(c.Nodes), "%d nodes were taken, want 10", n)
	value := strings.Repeat("v", 20<<10)
	key := func(i int) (path, body string) { return fmt.Sprintf("/v1/kv/k%d", i), value }
	keys := fill(t, c, "limits.state-bytes is 300000", "PUT", key)

	for _, n := range c.Nodes {
		for _, row := range []struct {
			name, method, path, body string
			want                     int
		}{
			{"a heartbeat", "PUT", "/eureka/apps/ORDERS/orders-1", "", http.StatusOK},
			{"the renewal of a session", "PUT", "/v1/session/renew/" + session.ID, "", http.StatusOK},
			{"a lock that is held", "PUT", lock, "", http.StatusOK},
			{"a node that is there", "PUT", "/v1/catalog/register", `{"Node":"n0","Address":"10.0.0.1"}`, http.StatusOK},
			{"a read", "GET", "/v1/kv/k0?raw", "", http.StatusOK},
			{"another lock", "PUT", "/v1/rollcall/locks/m?session=" + session.ID, "", http.StatusInsufficientStorage},
			{"a larger node", "PUT", "/v1/catalog/register", `{"Node":"n0","Address":"10.0.0.1","NodeMeta":{"k":"v"}}`, http.StatusInsufficientStorage},
			{"a transaction that sets", "PUT", "/v1/txn", `[{"KV":{"Verb":"set","Key":"t","Value":"eA=="}}]`, http.StatusInsufficientStorage},
		} {
			status, text := browse(t, n, row.method, row.path, "", "", []byte(row.body), nil)
			expect.That(t, status == row.want, "%s at %s: got %d %.200q, want %d", row.name, n.Name, status, text, row.want)
		}
	}

	for i := range min(keys, 5) {
		status, text := browse(t, c.Nodes[i%len(c.Nodes)], "DELETE", fmt.Sprintf("/v1/kv/k%d", i), "", "", nil, nil)
		need.That(t, status == http.StatusOK, "delete of a key: got %d %q", status, text)
	}
	for _, n := range c.Nodes {
		Eventually(t, ReadyLimit, "room for a key at "+n.Name, func() error {
			status, text := browse(t, n, "PUT", "/v1/kv/more", "", "", []byte("v"), nil)
			return unless(status == http.StatusOK, "%d %q", status, text)
		})
	}
}

// residentPeak is the most memory (KiB) that a node's process ever had.
func residentPeak(t *testing.T, n *Node) (kib int) { return processStatus(t, n, "VmHWM") }

// resident is the memory (KiB) that a node's process has now.
func resident(t *testing.T, n *Node) (kib int) { return processStatus(t, n, "VmRSS") }

// processStatus is a figure (KiB) that Linux has of a node's process.
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

// attacks are small requests that make a node hold much, with their refusals.
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
					status, text := browse(t, n, a.method, a.path, "", "", body, headers)
					expect.That(t, (status == a.status || status == http.StatusServiceUnavailable) && (status != a.status || strings.Contains(text, a.says)),
						"%s at %s: got %d %.200s, want %d %s, or 503", a.name, n.Name, status, text, a.status, a.says)
				})
			}
			sending.Wait()
		}
	}
}

// TestQuotasRefuseSmallRequestsThatMakeMuch: each is refused by every node, also twenty at once; the leader goes on
// leading, and no process becomes large.
func TestQuotasRefuseSmallRequestsThatMakeMuch(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, withSteadyLeader(Config{})) // so that a busy machine changes no leader
	leader := c.Leader()
	follower := c.Others(leader)[0]
	value := bytes.Repeat([]byte("v"), 512<<10)
	for i := range 20 {
		status, body := browse(t, leader, "PUT", fmt.Sprintf("/v1/kv/large/%03d", i), "", "", value, nil)
		need.That(t, status == http.StatusOK, "key %d: got %d %s", i, status, body)
	}
	before := need.Got(leader.Status())(t)
	peaks := map[*Node]int{leader: residentPeak(t, leader), follower: residentPeak(t, follower)}
	attack(t, []*Node{leader, follower})
	expect.Equal(t, need.Got(leader.Status())(t).Term, before.Term, "a request changed the leader: the term is")
	for n, peak := range peaks {
		grown := residentPeak(t, n) - peak
		t.Logf("%s: its largest size went from %d to %d MiB", n.Name, peak>>10, (peak+grown)>>10)
		expect.That(t, grown <= 1<<20, "%s grew by %d MiB, want less than 1 GiB", n.Name, grown>>10)
	}
}

// askers is how many clients send the same request at once.
const askers = 20

// largestResponses are reads whose responses show everything that weigh stores.
var largestResponses = []string{
	"/eureka/apps/HEAVY", "/eureka/vips/heavy", "/v1/rollcall/apps", "/v1/catalog/service/heavy", "/v1/health/service/heavy",
	"/v1/agent/services", "/v1/catalog/nodes", "/v1/kv/?recurse", "/v1/kv/?recurse&pretty",
}

// weigh stores what responses can show at their largest: instances and nodes with much metadata, and large keys.
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

// readTheLargest asks a follower for each of some large responses, many times at once, and checks the memory that they
// take beside what is stored.
func readTheLargest(t *testing.T, c *Cluster, paths ...string) (n *Node, stored int) {
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

// TestBudgetBoundsTheMemoryOfTheLargestResponsesAtOnce: twenty at once of each large response wait for each other, or
// are refused, before they take all memory of a node.
func TestBudgetBoundsTheMemoryOfTheLargestResponsesAtOnce(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, withSteadyLeader(Config{}))
	weigh(t, c, 300, 0, 20)
	readTheLargest(t, c, "/eureka/apps/HEAVY", "/v1/kv/?recurse")
}

// memoryGivenBackRound: a minute after the largest responses, and the small requests that make much, a node has no more
// memory than its state needs.
func memoryGivenBackRound(t *testing.T) {
	c := StartCluster(t, Config{})
	weigh(t, c, 300, 1000, 120)
	n, stored := readTheLargest(t, c, largestResponses...)
	attack(t, []*Node{n})
	err := Poll(time.Until(time.Now().Add(time.Minute)), func() error {
		grown := resident(t, n) - stored
		return unless(grown <= 100<<10, "%s has %d MiB more than before", n.Name, grown>>10)
	})
	t.Logf("%s: %d MiB before, %d MiB after, at most %d MiB", n.Name, stored>>10, resident(t, n)>>10, residentPeak(t, n)>>10)
	expect.That(t, err == nil, "a minute after the requests %v, want less than 100 MiB", err)
}

// unfinishedFor is how long a node waits for the rest of a request. A busy machine may take longer for a flood.
const unfinishedFor = 15 * time.Second

// TestBatchSenderThatFloodsANodeWaitsOnlyForItself has one address send batches of three megabytes on six connections,
// while a batch that it never finishes has its share. The refusals say why it has to wait; the batches of another
// address, and heartbeats even of the same one, get through.
func TestBatchSenderThatFloodsANodeWaitsOnlyForItself(t *testing.T) {
	t.Parallel()
	n := StartCluster(t, Config{AP: true, Nodes: 1, DC: "dc1", Settings: map[string]string{"replication.datacenters": "dc2=http://" + FreeAddr(t)}}).Nodes[0]
	mustRegister(t, n, Instance{App: "ORDERS", ID: "o1"})
	flooder, other := senderAt(t, "127.0.0.1"), senderAt(t, "127.0.0.2")
	need.OKf(t, other.post(n, batchOf("n8", 1, 1)).is(200), "before the flood")

	began := time.Now()
	unfinished := need.Got(net.Dial("tcp", n.HTTP))(t)
	defer unfinished.Close()
	need.Got(fmt.Fprintf(unfinished, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n{", messagePath, n.HTTP, 4<<20))(t)
	Eventually(t, ReadyLimit, "the flooder's share is in use", func() error { return mustWait(flooder.post(n, batchOf("n9", 1, 1))) })

	large := batchOf("n9", 2, 10_000)
	var flood sync.WaitGroup
	for range 6 {
		flood.Go(func() {
			err := Poll(ReadyLimit, func() error {
				response := flooder.post(n, large)
				if response.Status == 0 { // the connection was closed before everything was written
					return response.Err
				}
				if err := mustWait(response); err != nil {
					if response.Status == 200 && time.Since(began) >= unfinishedFor {
						t.Logf("too late to tell: %v", err)
						return nil
					}
					t.Error(err)
				}
				return nil
			})
			expect.OK(t, err)
		})
	}
	over := make(chan struct{})
	go func() { flood.Wait(); close(over) }()
	for clock, flooded := int64(2), true; flooded; clock++ {
		select {
		case <-over:
			flooded = false
		case <-time.After(20 * time.Millisecond):
		}
		expect.OKf(t, other.post(n, batchOf("n8", clock, 20)).is(200), "a batch of another address")
		expect.OKf(t, n.Renew("ORDERS", "o1").is(200), "a heartbeat")
	}
	unfinished.Close()
	Eventually(t, ReadyLimit, "the flooder has its share again", func() error { return flooder.post(n, large).is(200) })
}

// mustWait returns what a response that makes a sender wait lacks; nil: nothing.
func mustWait(response Response) error {
	return unless(response.Status == http.StatusServiceUnavailable && response.Header.Get("Retry-After") != "" && strings.Contains(string(response.Body), "this address has as many replication batches under way"),
		"a batch of the flooder: %v, want 503, when to try again, and why", response)
}

// batchOf is a message of a node with so many heartbeats, of some 310 bytes each.
func batchOf(node string, clock int64, items int) []byte {
	app, id := strings.Repeat("F", 50), strings.Repeat("i", 240)
	m := wire.Message{Head: wire.Head{Datacenter: "dc1", Node: node, Sender: node, Clock: clock}}
	for i := range items {
		m.Items = append(m.Items, wire.ItemOf(codec.Newest, registry.Renew{Key: registry.Key{App: app, ID: fmt.Sprintf("%s%05d", id, i)}, Life: 1, LastDirty: 1}))
	}
	return wire.Encode(codec.Newest, &m)
}

// sender is a client that speaks from an address of its own.
type sender struct{ http.Client }

func senderAt(t *testing.T, address string) *sender {
	t.Helper()
	from := &net.TCPAddr{IP: net.ParseIP(address)}
	l, err := net.ListenTCP("tcp", from)
	need.Present(t, err == nil, "this system's loopback has no address %s: %v", address, err)
	l.Close()
	transport := &http.Transport{DialContext: (&net.Dialer{LocalAddr: from}).DialContext, MaxIdleConnsPerHost: 8}
	t.Cleanup(transport.CloseIdleConnections)
	return &sender{http.Client{Transport: transport, Timeout: CallLimit}}
}

// post sends a batch.
func (s *sender) post(n *Node, batch []byte) Response {
	resp, err := s.Post(n.URL()+messagePath, "application/octet-stream", bytes.NewReader(batch))
	if err != nil {
		return Response{Err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return Response{Status: resp.StatusCode, Header: resp.Header, Body: body, Err: err}
}

// limits are the settings of the rate limiter that a node reads anew on SIGHUP.
type limits struct {
	enabled, throttleStandard bool
	burst, rate, fullRate     int
	privileged                string
}

// write replaces the node's configuration file.
func (l limits) write(t *testing.T, file string) {
	t.Helper()
	text := fmt.Sprintf("rate-limiter:\n  enabled: %t\n  burst-size: %d\n  registry-fetch-average-rate: %d\n  full-fetch-average-rate: %d\n"+
		"  throttle-standard-clients: %t\n  privileged-clients: [%s]\n", l.enabled, l.burst, l.rate, l.fullRate, l.throttleStandard, l.privileged)
	need.OK(t, os.WriteFile(file, []byte(text), 0o600))
}

// limitedNode is a node whose limits change while it runs.
type limitedNode struct {
	*Node
	file string
}

// use gives the node other limits and waits until a probe shows that they hold.
func (n limitedNode) use(t *testing.T, l limits, holds func() error) {
	t.Helper()
	l.write(t, n.file)
	n.Signal(t, syscall.SIGHUP)
	Eventually(t, ReadyLimit, fmt.Sprintf("limits are %+v", l), holds)
}

const (
	unlimited = 0 // a rate
	fullPath  = "/eureka/v2/apps"
	deltaPath = "/eureka/v2/apps/delta"
	appPath   = "/eureka/v2/apps/ORDERS"
)

func TestRateLimiterRefusesFetchesByClassAndFollowsItsFile(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, ap bool) {
		file := filepath.Join(t.TempDir(), "node.yaml")
		limits{burst: 3, rate: 1, fullRate: 1, privileged: "ops"}.write(t, file)
		c := StartCluster(t, Config{AP: ap, Nodes: 1, Settings: map[string]string{"config": file}})
		n := limitedNode{c.Nodes[0], file}
		mustRegister(t, n.Node, Instance{App: "ORDERS", ID: "orders-1"})

		// Switched off it refuses no client, and counts the refusals that it would have made.
		n.mustServe(t, 20, "", fullPath, deltaPath, appPath)
		expect.That(t, metric(t, n.Node, `rollcall_http_rate_would_limit_total{target="full"}`) != 0, "a limiter that is off has counted nothing")

		// Full fetches have a bucket of their own, and only that bucket runs dry.
		n.use(t, limits{enabled: true, burst: 3, rate: unlimited, fullRate: 1, privileged: "ops"}, func() error { return n.refuses(fullPath) })
		n.mustPassAtMost(t, fullPath, 3, 1)
		n.mustServe(t, 20, "", deltaPath, appPath)
		n.mustServe(t, 20, "DefaultClient", fullPath)
		n.mustServe(t, 20, "ops", fullPath)

		// The common bucket is that of all fetches.
		n.use(t, limits{enabled: true, burst: 2, rate: 1, fullRate: unlimited}, func() error { return n.refuses(deltaPath) })
		for _, path := range []string{fullPath, deltaPath, appPath} {
			n.mustPassAtMost(t, path, 2, 1)
		}
		n.mustServe(t, 20, "", appPath+"/orders-1", "/eureka/v2/vips/ORDERS")
		n.mustServe(t, 20, "DefaultServer", fullPath, deltaPath, appPath)
		n.mustAcceptHeartbeats(t, 20)

		// A larger burst holds at once, and standard clients lose their privilege.
		n.use(t, limits{enabled: true, burst: 1000, rate: 1, fullRate: 1}, func() error { return n.serves(20, "", fullPath) })
		n.use(t, limits{enabled: true, burst: 1, rate: 1, fullRate: 1, throttleStandard: true}, func() error { return n.refuses(fullPath) })
		Eventually(t, ReadyLimit, "DefaultClient is refused", func() error {
			return unless(n.serves(20, "DefaultClient", fullPath) != nil, "20 full fetches were served")
		})
		n.mustAcceptHeartbeats(t, 20)
	})
}

// refuses returns nil if one of twenty fetches is refused as it should be.
func (n limitedNode) refuses(path string) error {
	for range 20 {
		response := n.Get(path)
		if response.Status != http.StatusServiceUnavailable {
			continue
		}
		return unless(len(response.Body) == 0 && response.Header.Get("Retry-After") == "1", "refused by %v with Retry-After %q, want an empty 503 and 1", response, response.Header.Get("Retry-After"))
	}
	return fmt.Errorf("20 fetches of %s were served", path)
}

// serves returns nil if every one of some fetches is served.
func (n limitedNode) serves(times int, identity, path string) error {
	for range times {
		if err := n.Do(Request{Path: path, Identity: identity}).is(200); err != nil {
			return fmt.Errorf("%s as %q: %w", path, identity, err)
		}
	}
	return nil
}

func (n limitedNode) mustServe(t *testing.T, times int, identity string, paths ...string) {
	t.Helper()
	for _, path := range paths {
		expect.OK(t, n.serves(times, identity, path))
	}
}

// mustPassAtMost sends fetches as fast as it can, of which no more may be served than the burst and
// what the rate (per second) brings meanwhile.
func (n limitedNode) mustPassAtMost(t *testing.T, path string, burst, rate int) {
	t.Helper()
	began, served := time.Now(), 0
	for range 50 {
		if n.Get(path).Status == http.StatusOK {
			served++
		}
	}
	took := time.Since(began)
	most := burst + rate*int(took/time.Second+1)
	expect.That(t, served <= most, "%d of 50 fetches of %s were served within %v, want at most %d", served, path, took, most)
}

func (n limitedNode) mustAcceptHeartbeats(t *testing.T, times int) {
	t.Helper()
	for range times {
		need.OKf(t, n.Renew("ORDERS", "orders-1").is(200), "a heartbeat")
	}
}
