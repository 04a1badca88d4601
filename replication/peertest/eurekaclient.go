package peertest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/need"
)

// A fake Eureka server sends its clients' writes as batches to its peer and obeys the responses as upstream does, and
// sends its own registration, heartbeats and fetches as a client of the peer.

// fakeReadTimeout is how long a Spring Cloud server waits for a peer's response.
const fakeReadTimeout = 200 * time.Millisecond

// queueForPeer queues what a client did, with the instance as it is now. The caller holds f.mu.
func (f *Eureka) queueForPeer(i EurekaItem) {
	i.App = strings.ToUpper(i.App)
	if stored := f.Registry.find(i.App, i.ID); stored != nil && i.Action != "Cancel" {
		i.LastDirty, i.Status = fakeNumber(stored.LastDirty), stored.Status
		if i.Action == "Heartbeat" && stored.Overridden != "UNKNOWN" {
			i.Overridden = stored.Overridden
		}
	}
	f.Pending = append(f.Pending, i)
}

// Replicate sends what is pending to its peer, and then what the responses ask for, until nothing is left. If a peer
// is too slow, it sends the batch again. It returns the statuses of all items.
func (f *Eureka) Replicate(t testing.TB, peer string) []int {
	t.Helper()
	var statuses []int
	for tries := 0; ; {
		f.Mu.Lock()
		items := f.Pending[:min(250, len(f.Pending))]
		f.Mu.Unlock()
		if len(items) == 0 {
			return statuses
		}
		responses, err := Send(f.client, peer, items)
		if err != nil {
			if tries++; tries > 20 {
				t.Fatalf("the peer refuses a batch again and again: %v", err)
			}
			continue
		}
		f.Mu.Lock()
		f.Pending = f.Pending[len(items):]
		for n, r := range responses {
			statuses = append(statuses, r.Status)
			f.follow(items[n], r)
		}
		f.Mu.Unlock()
	}
}

// follow is InstanceReplicationTask.handleSuccess and handleFailure. The caller holds f.mu.
func (f *Eureka) follow(i EurekaItem, r fakeResponse) {
	stored := f.Registry.find(i.App, i.ID)
	switch {
	case i.Action == "Heartbeat" && r.Status == 404 && stored != nil:
		copied := *stored
		f.queueForPeer(EurekaItem{Action: "Register", App: i.App, ID: i.ID, Instance: &copied})
	case i.Action == "Heartbeat" && r.Instance != nil:
		if o := r.Instance.Overridden; o != "UNKNOWN" {
			f.Registry.overrides[i.ID] = o
		}
		f.Registry.register(*r.Instance, true)
	}
}

// Send posts one batch as JerseyReplicationClient.submitBatchUpdates does: without the header that
// marks single calls.
func Send(client *http.Client, peer string, items []EurekaItem) ([]fakeResponse, error) {
	body, err := json.Marshal(map[string]any{"replicationList": items})
	if err != nil {
		return nil, err
	}
	status, response, err := Ask(client, "POST", peer+"/peerreplication/batch/", body)
	if err != nil {
		return nil, err
	}
	if status != 200 {
		return nil, fmt.Errorf("status %d: %s", status, response)
	}
	var list struct {
		Responses []fakeResponse `json:"responseList"`
	}
	if err := decodeStrictly(response, &list); err != nil {
		return nil, err
	}
	if len(list.Responses) != len(items) {
		return nil, fmt.Errorf("%d results of %d items", len(list.Responses), len(items))
	}
	return list.Responses, nil
}

func Ask(client *http.Client, method, target string, body []byte) (int, []byte, error) {
	r, err := http.NewRequest(method, target, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("DiscoveryIdentity-Name", "DefaultServer")
	r.Header.Set("DiscoveryIdentity-Version", "1.0")
	r.Header.Set("DiscoveryIdentity-Id", "127.0.0.1")
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	response, err := io.ReadAll(resp.Body)
	return resp.StatusCode, response, err
}

// ClientCall makes a call of one of the server's own clients, and checks the status of its response.
func (f *Eureka) ClientCall(t testing.TB, method, path string, instance *EurekaInstance, want int) {
	t.Helper()
	var body []byte
	if instance != nil {
		body, _ = json.Marshal(map[string]any{"instance": instance})
	}
	status, response, err := Ask(f.Client(), method, f.Service()+path, body) // waits for as long as it takes
	need.That(t, err == nil && status == want, "%s %s at the Eureka server: %d %s, %v; want %d", method, path, status, response, err, want)
}

// ClientOf returns an instance as Netflix's client registers it.
func ClientOf(app, id string, dirty int64) *EurekaInstance {
	return &EurekaInstance{
		InstanceID: id, HostName: "host-" + id, App: app, IPAddr: "10.0.0.2", Status: "UP", Overridden: "UNKNOWN",
		Port: &fakePort{8080, "true"}, SecurePort: &fakePort{443, "false"}, CountryID: 1,
		DataCenter: &fakeDataCenter{"com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo", "MyOwn"},
		Lease:      &fakeLease{Interval: 30, Duration: 90}, Metadata: map[string]string{"@class": "java.util.Collections$EmptyMap"},
		VIP: "orders", CoordinatingServer: "false", LastUpdated: fakeTime(dirty), LastDirty: fakeTime(dirty), Action: "ADDED",
	}
}
