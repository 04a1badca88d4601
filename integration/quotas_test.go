package integration

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

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
					status, text := browse(t, n, a.method, a.path, body, headers)
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
		status, body := browse(t, leader, "PUT", fmt.Sprintf("/v1/kv/large/%03d", i), value, nil)
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

// TestMemoryIsGivenBackAfterTheLargestResponses, and after the small requests that make much: a minute later a node has no more
// memory than its state needs.
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
