package integration

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

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
	if err != nil {
		lacks(t, "the system does not say how much memory %s takes: %v", n.Name, err)
	}
	for line := range strings.Lines(string(status)) {
		if _, err := fmt.Sscanf(line, field+": %d kB", &kib); err == nil {
			return kib
		}
	}
	lacks(t, "the system does not say %s of %s", field, n.Name)
	return 0
}

func zipped(text string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(text))
	_ = w.Close()
	return b.Bytes()
}

// attacks are small requests that make a node hold much, and what they are told.
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
					if status != a.status && status != http.StatusServiceUnavailable || status == a.status && !strings.Contains(text, a.says) {
						t.Errorf("%s at %s: got %d %.200s, want %d %s, or 503", a.name, n.Name, status, text, a.status, a.says)
					}
				})
			}
			sending.Wait()
		}
	}
}

// TestSmallRequestsThatMakeMuchAreRefused: each is refused by every node, also twenty at once, nobody ceases to
// lead, and no process becomes large.
func TestSmallRequestsThatMakeMuchAreRefused(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, steadfast(Config{})) // so that the machine changes no leader
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
	after := need.Got(leader.Status())(t)
	expect.That(t, after.Term == before.Term, "term %d became %d: a request changed the leader", before.Term, after.Term)
	for n, peak := range peaks {
		grown := residentPeak(t, n) - peak
		t.Logf("%s: its largest size went from %d to %d MiB", n.Name, peak>>10, (peak+grown)>>10)
		expect.That(t, grown <= 1<<20, "%s grew by %d MiB, want less than 1 GiB", n.Name, grown>>10)
	}
}
