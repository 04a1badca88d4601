package replication

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/need"
)

// What a fake Eureka server sends: its clients' writes as batches to its peer, whose answers it obeys
// as upstream does, and its own registration, heartbeats and fetches as a client of the peer.

// fakeReadTimeout is how long a Spring Cloud server waits for a peer's answer.
const fakeReadTimeout = 200 * time.Millisecond

func pathUnescape(segment string) (string, error) { return url.PathUnescape(segment) }

// toldPeer queues what a client did, with the instance as it is now. f.mu is held.
func (f *fakeEureka) toldPeer(i fakeItem) {
	i.App = strings.ToUpper(i.App)
	if stored := f.registry.find(i.App, i.ID); stored != nil && i.Action != "Cancel" {
		i.LastDirty, i.Status = fakeNumber(stored.LastDirty), stored.Status
		if i.Action == "Heartbeat" && stored.Overridden != "UNKNOWN" {
			i.Overridden = stored.Overridden
		}
	}
	f.pending = append(f.pending, i)
}

// replicate sends what is pending to its peer, and then what the answers ask for, until nothing is
// left. A peer that is too slow is sent the batch again. It returns the statuses of all items.
func (f *fakeEureka) replicate(t testing.TB, peer string) []int {
	t.Helper()
	var statuses []int
	for tries := 0; ; {
		f.mu.Lock()
		items := f.pending[:min(250, len(f.pending))]
		f.mu.Unlock()
		if len(items) == 0 {
			return statuses
		}
		responses, err := send(f.client, peer, items)
		if err != nil {
			if tries++; tries > 20 {
				t.Fatalf("the peer refuses a batch again and again: %v", err)
			}
			continue
		}
		f.mu.Lock()
		f.pending = f.pending[len(items):]
		for n, r := range responses {
			statuses = append(statuses, r.Status)
			f.answered(items[n], r)
		}
		f.mu.Unlock()
	}
}

// answered is InstanceReplicationTask.handleSuccess and handleFailure. f.mu is held.
func (f *fakeEureka) answered(i fakeItem, r fakeResponse) {
	stored := f.registry.find(i.App, i.ID)
	switch {
	case i.Action == "Heartbeat" && r.Status == 404 && stored != nil:
		copied := *stored
		f.toldPeer(fakeItem{Action: "Register", App: i.App, ID: i.ID, Instance: &copied})
	case i.Action == "Heartbeat" && r.Instance != nil:
		if o := r.Instance.Overridden; o != "UNKNOWN" {
			f.registry.overrides[i.ID] = o
		}
		f.registry.register(*r.Instance, true)
	}
}

// send posts one batch as JerseyReplicationClient.submitBatchUpdates does: without the header that
// marks single calls.
func send(client *http.Client, peer string, items []fakeItem) ([]fakeResponse, error) {
	body, err := json.Marshal(map[string]any{"replicationList": items})
	if err != nil {
		return nil, err
	}
	status, answer, err := ask(client, "POST", peer+"/peerreplication/batch/", body)
	if err != nil {
		return nil, err
	}
	if status != 200 {
		return nil, fmt.Errorf("status %d: %s", status, answer)
	}
	var list struct {
		Responses []fakeResponse `json:"responseList"`
	}
	if err := decodeStrictly(answer, &list); err != nil {
		return nil, err
	}
	if len(list.Responses) != len(items) {
		return nil, fmt.Errorf("%d answers to %d items", len(list.Responses), len(items))
	}
	return list.Responses, nil
}

func ask(client *http.Client, method, target string, body []byte) (int, []byte, error) {
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
	answer, err := io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}

// clientCall is a call of one of its own clients, which must be answered with a status.
func (f *fakeEureka) clientCall(t testing.TB, method, path string, instance *fakeInstance, want int) {
	t.Helper()
	var body []byte
	if instance != nil {
		body, _ = json.Marshal(map[string]any{"instance": instance})
	}
	status, answer, err := ask(f.Client(), method, f.service()+path, body) // which waits for as long as it takes
	need.That(t, err == nil && status == want, "%s %s at the Eureka server: %d %s, %v; want %d", method, path, status, answer, err, want)
}

// clientOf is an instance as Netflix's client registers it.
func clientOf(app, id string, dirty int64) *fakeInstance {
	return &fakeInstance{
		InstanceID: id, HostName: "host-" + id, App: app, IPAddr: "10.0.0.2", Status: "UP", Overridden: "UNKNOWN",
		Port: &fakePort{8080, "true"}, SecurePort: &fakePort{443, "false"}, CountryID: 1,
		DataCenter: &fakeDataCenter{"com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo", "MyOwn"},
		Lease:      &fakeLease{Interval: 30, Duration: 90}, Metadata: map[string]string{"@class": "java.util.Collections$EmptyMap"},
		VIP: "orders", CoordinatingServer: "false", LastUpdated: fakeTime(dirty), LastDirty: fakeTime(dirty), Action: "ADDED",
	}
}

// fakeRegistry is the registry of a Netflix Eureka server, written from the description of the
// protocol: it shares no code with ours, so that a mistake there is not made here as well. Of leases
// it knows that they are there.
type fakeRegistry struct {
	apps      map[string]map[string]*fakeInstance
	overrides map[string]string // by id alone, as upstream
	recent    []*fakeInstance   // the delta, newest last
	version   int
}

// fakeInstance is the full JSON form. It is read as strictly as by Spring's decoder: one key that is
// not here refuses the document.
type fakeInstance struct {
	InstanceID         string            `json:"instanceId,omitempty"`
	HostName           string            `json:"hostName"`
	App                string            `json:"app"`
	IPAddr             string            `json:"ipAddr"`
	SID                string            `json:"sid,omitempty"`
	Status             string            `json:"status"`
	Overridden         string            `json:"overriddenStatus"`
	Port               *fakePort         `json:"port"`
	SecurePort         *fakePort         `json:"securePort"`
	CountryID          int               `json:"countryId"`
	DataCenter         *fakeDataCenter   `json:"dataCenterInfo"`
	Lease              *fakeLease        `json:"leaseInfo"`
	Metadata           map[string]string `json:"metadata"`
	AppGroup           string            `json:"appGroupName,omitempty"`
	HomePage           string            `json:"homePageUrl,omitempty"`
	StatusPage         string            `json:"statusPageUrl,omitempty"`
	HealthCheck        string            `json:"healthCheckUrl,omitempty"`
	SecureHealth       string            `json:"secureHealthCheckUrl,omitempty"`
	VIP                string            `json:"vipAddress,omitempty"`
	SecureVIP          string            `json:"secureVipAddress,omitempty"`
	CoordinatingServer string            `json:"isCoordinatingDiscoveryServer"`
	LastUpdated        fakeTime          `json:"lastUpdatedTimestamp"`
	LastDirty          fakeTime          `json:"lastDirtyTimestamp"`
	Action             string            `json:"actionType,omitempty"`
	ASG                string            `json:"asgName,omitempty"`
}

type fakePort struct {
	Number  int    `json:"$"`
	Enabled string `json:"@enabled"`
}

type fakeDataCenter struct {
	Class string `json:"@class"`
	Name  string `json:"name"`
}

type fakeLease struct {
	Interval     int   `json:"renewalIntervalInSecs"`
	Duration     int   `json:"durationInSecs"`
	Registration int64 `json:"registrationTimestamp"`
	LastRenewal  int64 `json:"lastRenewalTimestamp"`
	Eviction     int64 `json:"evictionTimestamp"`
	ServiceUp    int64 `json:"serviceUpTimestamp"`
}

// fakeTime is ms since the epoch: text in an instance, a number also read.
type fakeTime int64

func (t fakeTime) MarshalJSON() ([]byte, error) { return fmt.Appendf(nil, `"%d"`, int64(t)), nil }

func (t *fakeTime) UnmarshalJSON(text []byte) error {
	n, err := strconv.ParseInt(strings.Trim(string(text), `"`), 10, 64)
	*t = fakeTime(n)
	return err
}

// decodeStrictly reads a whole document and refuses keys that are not in it.
func decodeStrictly(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("something follows the document")
	}
	return nil
}

// lacks names the first thing that a real server or its clients need and the instance has not.
func (i *fakeInstance) lacks() string {
	statuses := []string{"UP", "DOWN", "STARTING", "OUT_OF_SERVICE", "UNKNOWN"}
	switch {
	case i.id() == "":
		return "instanceId"
	case i.HostName == "":
		return "hostname"
	case i.IPAddr == "":
		return "ip address"
	case i.App == "":
		return "appName"
	case i.DataCenter == nil || i.DataCenter.Class == "" || i.DataCenter.Name == "":
		return "dataCenterInfo"
	case !slices.Contains(statuses, i.Status):
		return "status"
	case !slices.Contains(statuses, i.Overridden):
		return "overriddenStatus"
	case i.Lease == nil:
		return "leaseInfo"
	case i.Port == nil || i.SecurePort == nil:
		return "port"
	case i.LastDirty == 0:
		return "lastDirtyTimestamp"
	}
	return ""
}

func (i *fakeInstance) id() string {
	if i.InstanceID != "" {
		return i.InstanceID
	}
	return i.HostName
}

func (r *fakeRegistry) find(app, id string) *fakeInstance { return r.apps[strings.ToUpper(app)][id] }

// register is AbstractInstanceRegistry.register. It returns what was stored.
func (r *fakeRegistry) register(in fakeInstance, replication bool) *fakeInstance {
	i := &in
	app, id := strings.ToUpper(i.App), i.id()
	existing := r.find(app, id)
	if existing != nil && existing.LastDirty > i.LastDirty {
		kept := *existing
		i = &kept
	}
	if r.apps[app] == nil {
		r.apps[app] = map[string]*fakeInstance{}
	}
	if _, there := r.overrides[id]; !there && i.Overridden != "UNKNOWN" {
		r.overrides[id] = i.Overridden
	}
	if o, there := r.overrides[id]; there {
		i.Overridden = o
	}
	i.Status = r.decide(i, existing, replication)
	r.apps[app][id] = i
	r.changed(i, "ADDED")
	return i
}

// decide is the chain of status rules.
func (r *fakeRegistry) decide(i, existing *fakeInstance, replication bool) string {
	if i.Status != "UP" && i.Status != "OUT_OF_SERVICE" {
		return i.Status
	}
	if o, there := r.overrides[i.id()]; there {
		return o
	}
	if !replication && existing != nil && (existing.Status == "UP" || existing.Status == "OUT_OF_SERVICE") {
		return existing.Status
	}
	return i.Status
}

// renew is AbstractInstanceRegistry.renew with InstanceResource.renewLease. The instance is there with
// a 409.
func (r *fakeRegistry) renew(app, id string, dirty fakeTime, override string, replication bool) (status int, newer *fakeInstance) {
	i := r.find(app, id)
	if i == nil {
		return 404, nil
	}
	if i.Status = r.decide(i, i, replication); i.Status == "UNKNOWN" {
		return 404, nil
	}
	switch {
	case dirty == 0 || dirty == i.LastDirty:
		return 200, nil
	case dirty > i.LastDirty:
		if replication && override != "" && override != "UNKNOWN" && override != i.Overridden {
			r.overrides[id] = override
			i.Overridden = override
		}
		return 404, nil
	case replication:
		return 409, i
	}
	return 200, nil
}

// cancel is AbstractInstanceRegistry.cancel.
func (r *fakeRegistry) cancel(app, id string) int {
	delete(r.overrides, id)
	i := r.find(app, id)
	if i == nil {
		return 404
	}
	delete(r.apps[strings.ToUpper(app)], id)
	if len(r.apps[strings.ToUpper(app)]) == 0 {
		delete(r.apps, strings.ToUpper(app))
	}
	gone := *i
	r.changed(&gone, "DELETED")
	return 200
}

// setOverride is AbstractInstanceRegistry.statusUpdate, which does nothing for a status that the
// instance has already.
func (r *fakeRegistry) setOverride(app, id, status string, dirty fakeTime) int {
	i := r.find(app, id)
	if i == nil {
		return 404
	}
	if i.Status == status {
		return 200
	}
	r.overrides[id] = status
	i.Overridden, i.Status = status, status
	i.LastDirty = max(i.LastDirty, dirty)
	r.changed(i, "MODIFIED")
	return 200
}

// deleteOverride is AbstractInstanceRegistry.deleteStatusOverride.
func (r *fakeRegistry) deleteOverride(app, id, fallback string, dirty fakeTime) int {
	i := r.find(app, id)
	if i == nil {
		return 404
	}
	if _, there := r.overrides[id]; !there {
		return 200
	}
	delete(r.overrides, id)
	i.Overridden, i.Status = "UNKNOWN", fallback
	i.LastDirty = max(i.LastDirty, dirty)
	r.changed(i, "MODIFIED")
	return 200
}

func (r *fakeRegistry) changed(i *fakeInstance, action string) {
	i.Action, i.LastUpdated = action, fakeTime(time.Now().UnixMilli())
	r.recent = append(r.recent, i)
	r.version++
}
