package peertest

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Eureka is a Netflix Eureka server under /eureka: it accepts clients and peers, and is a peer and a client itself
// (eurekaclient.go). If a batch has one key that it does not know, or one action that is not written exactly, the
// whole batch gets 400 and has no effect.
type Eureka struct {
	*httptest.Server
	client *http.Client // for what it sends itself

	Mu       sync.Mutex
	Registry fakeRegistry
	Pending  []EurekaItem                                  // what its clients did, for its peer
	batches  []fakeBatch                                   // batches received, including refused ones
	calls    []fakeCall                                    // all others
	User     string                                        // user:password that it demands; "" if none
	fail     func(http.ResponseWriter, *http.Request) bool // responds in its place, if it returns true
}

// fakeBatch is a replication document; Items is nil if it could not be read.
type fakeBatch struct {
	Header http.Header
	Body   string
	Items  []EurekaItem
}

type fakeCall struct {
	What       string // method, path and query
	Header     http.Header
	Body       string
	Replicated bool
	Status     int
}

// EurekaItem is an element of replicationList.
type EurekaItem struct {
	App        string          `json:"appName"`
	ID         string          `json:"id"`
	LastDirty  fakeNumber      `json:"lastDirtyTimestamp,omitempty"`
	Overridden string          `json:"overriddenStatus,omitempty"`
	Status     string          `json:"status,omitempty"`
	Instance   *EurekaInstance `json:"instanceInfo,omitempty"`
	Action     string          `json:"action"`
}

// fakeNumber is in ms since the Unix epoch, as a number; text is also read.
type fakeNumber int64

func (n *fakeNumber) UnmarshalJSON(text []byte) error { return (*fakeTime)(n).UnmarshalJSON(text) }

// fakeResponse is an element of responseList.
type fakeResponse struct {
	Status   int             `json:"statusCode"`
	Instance *EurekaInstance `json:"responseEntity,omitempty"`
}

func NewEureka(t testing.TB) *Eureka {
	f := &Eureka{client: &http.Client{Timeout: fakeReadTimeout}}
	f.Forget()
	f.Server = httptest.NewServer(f)
	t.Cleanup(func() {
		f.client.CloseIdleConnections()
		f.Close()
	})
	return f
}

// Service returns its URL as peers are configured with it.
func (f *Eureka) Service() string { return f.URL + "/eureka" }

// Forget empties the registry, as a restart does.
func (f *Eureka) Forget() {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.Registry = fakeRegistry{Apps: map[string]map[string]*EurekaInstance{}, overrides: map[string]string{}}
	f.Pending = nil
}

// FailWith has fail respond to all requests; nil ends that.
func (f *Eureka) FailWith(fail func(http.ResponseWriter, *http.Request) bool) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.fail = fail
}

// ServeHTTP implements http.Handler.
func (f *Eureka) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	f.Mu.Lock()
	fail := f.fail
	f.Mu.Unlock()
	if fail != nil && fail(w, r) {
		return
	}
	f.Mu.Lock()
	defer f.Mu.Unlock()
	if user, password, _ := r.BasicAuth(); f.User != "" && user+":"+password != f.User {
		w.WriteHeader(401)
		return
	}
	path := strings.TrimPrefix(strings.TrimPrefix(r.URL.EscapedPath(), "/eureka"), "/v2")
	switch {
	case path == "/peerreplication/batch/" && r.Method == "POST":
		f.batch(w, r, body)
	case path == "/apps/" && r.Method == "GET":
		f.list(w, f.all())
	case path == "/apps/delta" && r.Method == "GET":
		f.list(w, f.Registry.recent)
	default:
		f.single(w, r, path, body)
	}
}

// batch is PeerReplicationResource.batchReplication.
func (f *Eureka) batch(w http.ResponseWriter, r *http.Request, body []byte) {
	var list struct {
		Items []EurekaItem `json:"replicationList"`
	}
	err := decodeStrictly(body, &list)
	for _, i := range list.Items {
		if !slices.Contains([]string{"Register", "Heartbeat", "Cancel", "StatusUpdate", "DeleteStatusOverride"}, i.Action) {
			err = io.ErrUnexpectedEOF
		}
	}
	if err != nil || !strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
		f.batches = append(f.batches, fakeBatch{Header: r.Header, Body: string(body)})
		w.WriteHeader(400)
		return
	}
	f.batches = append(f.batches, fakeBatch{Header: r.Header, Body: string(body), Items: list.Items})
	responses := []fakeResponse{}
	for _, i := range list.Items {
		responses = append(responses, f.item(i))
	}
	respondJSON(w, 200, map[string]any{"responseList": responses})
}

// item is PeerReplicationResource.dispatch.
func (f *Eureka) item(i EurekaItem) fakeResponse {
	switch i.Action {
	case "Register":
		if i.Instance == nil {
			return fakeResponse{Status: 500}
		}
		if i.Instance.Lacks() == "" {
			f.Registry.register(*i.Instance, true)
		}
		return fakeResponse{Status: 200} // even if it was refused
	case "Heartbeat":
		status, newer := f.Registry.renew(i.App, i.ID, fakeTime(i.LastDirty), i.Overridden, true)
		return fakeResponse{Status: status, Instance: newer}
	case "Cancel":
		return fakeResponse{Status: f.Registry.cancel(i.App, i.ID)}
	case "StatusUpdate":
		if i.Status == "" {
			return fakeResponse{Status: 500}
		}
		return fakeResponse{Status: f.Registry.setOverride(i.App, i.ID, i.Status, fakeTime(i.LastDirty))}
	}
	if i.LastDirty == 0 {
		return fakeResponse{Status: 500}
	}
	return fakeResponse{Status: f.Registry.deleteOverride(i.App, i.ID, i.Status, fakeTime(i.LastDirty))}
}

// single is a call of a client, or of a peer that sends no batches.
func (f *Eureka) single(w http.ResponseWriter, r *http.Request, path string, body []byte) {
	replicated := r.Header.Get("x-netflix-discovery-replication") == "true"
	query := r.URL.Query()
	dirty, err := strconv.ParseInt(query.Get("lastDirtyTimestamp"), 10, 64)
	if query.Has("lastDirtyTimestamp") && err != nil {
		w.WriteHeader(500)
		return
	}
	segments := strings.Split(strings.TrimPrefix(path, "/apps/"), "/")
	for n := range segments {
		segments[n], _ = url.PathUnescape(segments[n])
	}
	status, shown := 405, (*EurekaInstance)(nil)
	var item EurekaItem
	switch app, id := segments[0], segments[min(1, len(segments)-1)]; {
	case len(segments) == 1 && r.Method == "POST":
		item.Action = "Register"
		status, item.Instance = f.registerCall(app, body, replicated)
		if item.Instance != nil {
			id = item.Instance.id()
		}
		item.App, item.ID = app, id
	case len(segments) == 2 && r.Method == "PUT":
		item = EurekaItem{Action: "Heartbeat", App: app, ID: id}
		status, shown = f.Registry.renew(app, id, fakeTime(dirty), query.Get("overriddenstatus"), replicated)
	case len(segments) == 2 && r.Method == "DELETE":
		item = EurekaItem{Action: "Cancel", App: app, ID: id}
		status = f.Registry.cancel(app, id)
	case len(segments) == 2 && r.Method == "GET":
		if shown = f.Registry.find(app, id); shown != nil {
			status = 200
		} else {
			status = 404
		}
	case len(segments) == 3 && r.Method == "PUT":
		item = EurekaItem{Action: "StatusUpdate", App: app, ID: id}
		status = f.Registry.setOverride(app, id, query.Get("value"), fakeTime(dirty))
	case len(segments) == 3 && r.Method == "DELETE":
		item = EurekaItem{Action: "DeleteStatusOverride", App: app, ID: id}
		fallback := query.Get("value")
		if fallback == "" {
			fallback = "UNKNOWN"
		}
		status = f.Registry.deleteOverride(app, id, fallback, fakeTime(dirty))
	}
	f.calls = append(f.calls, fakeCall{
		What: r.Method + " " + r.URL.String(), Header: r.Header, Body: string(body), Replicated: replicated, Status: status,
	})
	if !replicated && status/100 == 2 && item.Action != "" {
		f.queueForPeer(item)
	}
	if shown != nil {
		respondJSON(w, status, map[string]any{"instance": shown})
		return
	}
	w.WriteHeader(status)
}

// registerCall is ApplicationResource.addInstance.
func (f *Eureka) registerCall(app string, body []byte, replicated bool) (int, *EurekaInstance) {
	var document struct {
		Instance *EurekaInstance `json:"instance"`
	}
	if decodeStrictly(body, &document) != nil || document.Instance == nil || document.Instance.Lacks() != "" || !strings.EqualFold(document.Instance.App, app) {
		return 400, nil
	}
	submitted := *document.Instance
	submitted.Status = f.Registry.register(*document.Instance, replicated).Status
	return 204, &submitted
}

func (f *Eureka) all() []*EurekaInstance {
	var all []*EurekaInstance
	for _, app := range slices.Sorted(maps.Keys(f.Registry.Apps)) {
		for _, id := range slices.Sorted(maps.Keys(f.Registry.Apps[app])) {
			all = append(all, f.Registry.Apps[app][id])
		}
	}
	return all
}

func (f *Eureka) list(w http.ResponseWriter, all []*EurekaInstance) {
	type application struct {
		Name     string            `json:"name"`
		Instance []*EurekaInstance `json:"instance"`
	}
	var apps []application
	for _, i := range all {
		apps = append(apps, application{i.App, []*EurekaInstance{i}})
	}
	respondJSON(w, 200, map[string]any{"applications": map[string]any{"versions__delta": "1", "apps__hashcode": "", "application": apps}})
}

func respondJSON(w http.ResponseWriter, status int, document any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(document)
}

// Show returns the registry as text, one line per instance, sorted.
func (f *Eureka) Show() string {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	var lines []string
	for _, i := range f.all() {
		line := i.App + "/" + i.id() + " " + i.Status + " " + strconv.FormatInt(int64(i.LastDirty), 10)
		if i.Overridden != "UNKNOWN" {
			line += " overridden " + i.Overridden
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// Actions returns the actions of all items received, in order, as "Action app/id".
func (f *Eureka) Actions() []string {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	var all []string
	for _, b := range f.batches {
		for _, i := range b.Items {
			all = append(all, i.Action+" "+i.App+"/"+i.ID)
		}
	}
	return all
}

// Received returns what was received so far, and clears it.
func (f *Eureka) Received() ([]fakeBatch, []fakeCall) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	batches, calls := f.batches, f.calls
	f.batches, f.calls = nil, nil
	return batches, calls
}

// Has checks the lines of Show.
func (f *Eureka) Has(t testing.TB, want ...string) {
	t.Helper()
	if got := f.Show(); got != strings.Join(want, "\n") {
		t.Errorf("the Eureka server has\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}
