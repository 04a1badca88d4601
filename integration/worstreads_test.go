package integration

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// askers is how many ask for the same at once.
const askers = 20

// largestAnswers are reads whose answers show everything that weighs.
var largestAnswers = []string{
	"/eureka/apps/HEAVY", "/eureka/vips/heavy", "/v1/rollcall/apps", "/v1/catalog/service/heavy", "/v1/health/service/heavy",
	"/v1/agent/services", "/v1/catalog/nodes", "/v1/kv/?recurse", "/v1/kv/?recurse&pretty",
}

// weigh stores what answers can show at their largest: instances and nodes with much metadata, and large keys.
func weigh(t *testing.T, c *Cluster, instances, nodes, keys int) {
	t.Helper()
	value := strings.Repeat("v", 60<<10)
	var storing sync.WaitGroup
	store := func(number int, method, path string, body func(i int) string) {
		storing.Go(func() {
			for i := range number {
				at := strings.ReplaceAll(path, "%d", fmt.Sprint(i))
				err := Poll(ReadyLimit, func() error { // a busy disk may take too long for an answer
					answer := c.Nodes[i%len(c.Nodes)].Do(Request{Method: method, Path: at, Body: []byte(body(i)), ContentType: "application/json"})
					if answer.Outcome() != Done {
						return fmt.Errorf("%v", answer)
					}
					return nil
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

// readAtOnce asks a node for the same many times at once, and counts the answers by status.
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
	r := need.Got(http.NewRequest(http.MethodGet, url, nil))(t)
	return r
}

// readTheLargest asks a follower for each of some large answers, many times at once, and checks what memory it takes
// beside what is stored.
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

// TestTheLargestAnswersAtOnceTakeBoundedMemory: twenty at once of each answer that shows much wait for each other, or
// are refused, before they take all memory of a node.
func TestTheLargestAnswersAtOnceTakeBoundedMemory(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, steadfast(Config{}))
	weigh(t, c, 300, 0, 20)
	readTheLargest(t, c, "/eureka/apps/HEAVY", "/v1/kv/?recurse")
}

// memoryGivenBackRound: a minute after the largest answers, and the requests that make much of little, a node has no
// more memory than what it stores needs.
func memoryGivenBackRound(t *testing.T) {
	c := StartCluster(t, Config{})
	weigh(t, c, 300, 1000, 120)
	n, stored := readTheLargest(t, c, largestAnswers...)
	attack(t, []*Node{n})
	end := time.Now().Add(time.Minute)
	err := Poll(time.Until(end), func() error {
		if grown := resident(t, n) - stored; grown > 100<<10 {
			return fmt.Errorf("%s has %d MiB more than before", n.Name, grown>>10)
		}
		return nil
	})
	t.Logf("%s: %d MiB before, %d MiB after, at most %d MiB", n.Name, stored>>10, resident(t, n)>>10, residentPeak(t, n)>>10)
	expect.That(t, err == nil, "a minute after the requests %v, want less than 100 MiB", err)
}
