package eureka_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// The domain values that the documents in testdata describe.

func ownInstance(id, host, ip, name string, port uint16) *registry.Instance {
	url := "http://" + host + ":" + map[uint16]string{8080: "8080", 8761: "8761", 9090: "9090"}[port] + "/"
	return &registry.Instance{
		InstanceID: id, HostName: host, IPAddr: ip, Status: registry.Up, VIP: name, SecureVIP: name, CountryID: 1,
		Port: registry.Port{Number: port, Enabled: true}, SecurePort: registry.Port{Number: 443},
		DataCenter: registry.DataCenter{Name: registry.MyOwn}, RenewalInterval: 30, Duration: 90,
		HomePageURL: url, StatusPageURL: url + "info", HealthCheckURL: url + "health",
	}
}

func lease(i *registry.Instance, updated int64, action registry.Action) *registry.Lease {
	return &registry.Lease{
		Instance: i, Interval: i.RenewalInterval, Duration: i.Duration, Action: action,
		RegisteredAt: 1767225600000, ServiceUpAt: 1767225600000, UpdatedAt: updated, RenewedAt: registry.Stamp{Wall: 1767225660000},
	}
}

func orders1() *registry.Lease {
	i := ownInstance("orders-1.example.internal:orders:8080", "orders-1.example.internal", "10.0.0.11", "orders", 8080)
	i.App, i.LastDirty = "ORDERS", 1767225599500
	i.Metadata = []registry.Pair{{Key: "zone", Value: "zone-a"}, {Key: "management.port", Value: "8081"}}
	return lease(i, 1767225600120, registry.ActionAdded)
}

func orders2() *registry.Lease {
	i := ownInstance("orders-2.example.internal:orders:8080", "orders-2.example.internal", "10.0.0.12", "orders", 8080)
	i.App, i.LastDirty = "ORDERS", 1767225599600
	i.Status, i.Overridden = registry.OutOfService, registry.OutOfService
	i.Metadata = []registry.Pair{{Key: "zone", Value: "zone-b"}, {Key: "owner_team", Value: `checkout & "carts"`}}
	return lease(i, 1767225630000, registry.ActionModified)
}

func orders2Back() *registry.Lease {
	l := orders2()
	l.Instance.Status, l.Instance.Overridden = registry.Up, registry.Unknown
	l.Instance.LastDirty, l.UpdatedAt = 1767225689000, 1767225690000
	return l
}

func orders3() *registry.Lease {
	i := ownInstance("orders-3.example.internal:orders:8080", "orders-3.example.internal", "10.0.0.13", "orders", 8080)
	i.App, i.LastDirty, i.Status = "ORDERS", 1767225694000, registry.Starting
	i.Metadata = []registry.Pair{{Key: "zone", Value: "zone-a"}}
	l := lease(i, 1767225695000, registry.ActionAdded)
	l.RegisteredAt, l.RenewedAt.Wall, l.ServiceUpAt = 1767225695000, 1767225695000, 0
	return l
}

func billing() *registry.Lease {
	host := "ec2-203-0-113-21.compute-1.example.net"
	i := ownInstance("i-0f00ba4", host, "10.0.0.21", "billing,billing-internal", 9090)
	i.App, i.AppGroup, i.ASG, i.LastDirty = "BILLING", "FINANCE", "billing-v012", 1767225599700
	i.RenewalInterval, i.Duration = 10, 30
	i.DataCenter = registry.DataCenter{Name: registry.Amazon, Metadata: []registry.Pair{
		{Key: "instance-id", Value: "i-0f00ba4"}, {Key: "availability-zone", Value: "us-east-1c"},
		{Key: "ami-id", Value: "ami-0a1b2c3d"}, {Key: "instance-type", Value: "m5.large"},
		{Key: "local-ipv4", Value: "10.0.0.21"}, {Key: "public-hostname", Value: host},
		{Key: "public-ipv4", Value: "203.0.113.21"},
	}}
	return lease(i, 1767225600200, registry.ActionAdded)
}

func billingGone() *registry.Lease {
	l := billing()
	l.EvictedAt, l.UpdatedAt, l.Action = 1767225700000, 1767225700000, registry.ActionDeleted
	return l
}

func billingNewer() *registry.Lease {
	l := billing()
	l.Instance.LastDirty = 1767225605000
	return l
}

func server() *registry.Lease {
	i := ownInstance("eureka-a.example.internal:eureka:8761", "eureka-a.example.internal", "10.0.0.1", "eureka", 8761)
	i.App, i.LastDirty = "EUREKA", 1767225591000
	return lease(i, 1767225592000, registry.ActionAdded)
}

func fixture(t testing.TB, name string) []byte {
	t.Helper()
	return need.Got(os.ReadFile(filepath.Join("testdata", name)))(t)
}

var betweenElements = regexp.MustCompile(`>\s+<`)

// tokens removes only the white space between a document's tokens, so that two results are equal exactly if the
// documents have the same tokens in the same order.
func tokens(t testing.TB, doc []byte) string {
	t.Helper()
	doc = bytes.TrimSpace(doc)
	if bytes.HasPrefix(doc, []byte("<")) {
		return string(betweenElements.ReplaceAll(doc, []byte("><")))
	}
	var out bytes.Buffer
	need.OKf(t, json.Compact(&out, doc), "not JSON: %s", doc)
	return out.String()
}

func TestApplicationsAreReadAsTheyWereWritten(t *testing.T) {
	tests := []struct {
		file string
		want eureka.Applications
	}{
		{"apps.json", eureka.Applications{Version: "1", HashCode: "OUT_OF_SERVICE_1_UP_2_", Leases: []*registry.Lease{orders1(), orders2(), billing()}}},
		{"apps-empty.json", eureka.Applications{Version: "1"}},
		{"delta.json", eureka.Applications{Version: "7", HashCode: "STARTING_1_UP_2_", Leases: []*registry.Lease{orders2Back(), orders3(), billingGone()}}},
		{"vip.json", eureka.Applications{Version: "-1", HashCode: "UP_1_", Leases: []*registry.Lease{billing()}}},
	}
	for _, tt := range tests {
		got, err := eureka.DecodeApplications(fixture(t, tt.file))
		need.OKf(t, err, "%s", tt.file)
		expect.Deep(t, *got, tt.want, "%s: got", tt.file)
	}
	leases, err := eureka.DecodeApplication(fixture(t, "application.json"))
	expect.That(t, err == nil && reflect.DeepEqual(leases, []*registry.Lease{orders1(), orders2()}), "application.json: got %+v, %v", leases, err)
	l, err := eureka.DecodeInstance(fixture(t, "heartbeat-conflict.json"), full)
	expect.That(t, err == nil && reflect.DeepEqual(l, billingNewer()), "heartbeat-conflict.json: got %+v, %v", l, err)
}

func TestApplicationsAreReadInTheCompactForm(t *testing.T) {
	apps, err := eureka.DecodeApplications(fixture(t, "apps-compact.json"))
	need.That(t, err == nil && len(apps.Leases) == 3 && apps.Version == "1", "got %+v, %v", apps, err)
	got, want := apps.Leases[2], billing()
	check(t, "id", got.Key(), want.Key())
	check(t, "port", got.Instance.Port, want.Instance.Port)
	check(t, "status", got.Instance.Status, want.Instance.Status)
	check(t, "lastUpdatedTimestamp", got.UpdatedAt, want.UpdatedAt)
	check(t, "actionType", got.Action, want.Action)
	check(t, "entries of the data center", len(got.Instance.DataCenter.Metadata), 5)
}

func TestApplicationsOfOlderServersAreRead(t *testing.T) {
	tests := []struct{ name, body, want string }{
		{"single objects", `{"applications":{"application":{"name":"a","instance":{"hostName":"h"}}}}`, "A/h"},
		{"no list", `{"applications":{"versions__delta":1}}`, ""},
		{"null lists", `{"applications":{"application":[{"name":"a","instance":null}]}}`, ""},
		{"null list of applications", `{"applications":{"application":null}}`, ""},
		{"name after the instances", `{"applications":{"application":[{"instance":[{"hostName":"h"},{"app":"b","hostName":"i"}],"name":"a"},{"name":"c","instance":{"hostName":"h"}}]}}`, "A/h B/i C/h"},
		{"a key that compact servers leak", `{"applications":{"application":[],"registeredApplicationsEmpty":true}}`, ""},
	}
	for _, tt := range tests {
		apps, err := eureka.DecodeApplications([]byte(tt.body))
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		var keys []string
		for _, l := range apps.Leases {
			keys = append(keys, l.Key().String())
		}
		check(t, tt.name, strings.Join(keys, " "), tt.want)
	}
	for _, body := range []string{`{}`, `[]`, `{"applications":[]}`, `{"applications":{}} x`, `{"applications":{"application":3}}`, `{"application":{}}`} {
		expect.ErrorIs(t, expect.Err(eureka.DecodeApplications([]byte(body))), eureka.ErrUnparsable, "%s: error", body)
	}
	for _, body := range []string{`{}`, `{"application":[]}`, `{"application":{}}{}`} {
		expect.ErrorIs(t, expect.Err(eureka.DecodeApplication([]byte(body))), eureka.ErrUnparsable, "%s: error", body)
	}
}

func TestBatchesAreReadAsTheyWereWritten(t *testing.T) {
	items, err := eureka.DecodeBatch(fixture(t, "batch-request.json"))
	want := batchItems()
	expect.That(t, err == nil && reflect.DeepEqual(items, want), "got %+v, %v, want %+v", items, err, want)
	results, err := eureka.DecodeBatchResponse(fixture(t, "batch-response.json"))
	if want := batchResults(); err != nil || !reflect.DeepEqual(results, want) {
		t.Errorf("got %+v, %v, want %+v", results, err, want)
	}
}

func TestBatchResponsesOfOtherServersAreReadTolerantly(t *testing.T) {
	got, err := eureka.DecodeBatchResponse([]byte(`{"x":1,"responseList":[{"statusCode":"200","y":{}},{"statusCode":409,"responseEntity":null}]}`))
	expect.That(t, err == nil && reflect.DeepEqual(got, []eureka.ItemResult{{Status: 200}, {Status: 409}}), "got %+v, %v", got, err)
	for _, body := range []string{``, `[]`, `{"responseList":[3]}`, `{"responseList":[{"statusCode":"x"}]}`, `{"responseList":[{"responseEntity":3}]}`} {
		expect.ErrorIs(t, expect.Err(eureka.DecodeBatchResponse([]byte(body))), eureka.ErrUnparsable, "%s: error", body)
	}
}

func TestBatchIsReadStrictly(t *testing.T) {
	tests := []struct{ name, body string }{
		{"unknown key beside the list", `{"replicationList":[],"x":1}`},
		{"unknown key in an item", `{"replicationList":[{"appName":"A","id":"i","action":"Cancel","x":null}]}`},
		{"unknown action", `{"replicationList":[{"appName":"A","id":"i","action":"cancel"}]}`},
		{"no list", `{}`},
		{"list null", `{"replicationList":null}`},
		{"list an object", `{"replicationList":{}}`},
		{"item null", `{"replicationList":[null]}`},
		{"text an object", `{"replicationList":[{"appName":{}}]}`},
		{"timestamp a word", `{"replicationList":[{"lastDirtyTimestamp":"x"}]}`},
		{"instance not well-formed", `{"replicationList":[{"instanceInfo":{"port":}}]}`},
		{"duplicate key in an instance", `{"replicationList":[{"instanceInfo":{"x":1,"x":1}}]}`},
		{"trailing data", `{"replicationList":[]}1`},
	}
	for _, tt := range tests {
		items, err := eureka.DecodeBatch([]byte(tt.body))
		expect.That(t, errors.Is(err, eureka.ErrUnparsable), "%s: got %+v and error %v, want ErrUnparsable", tt.name, items, err)
	}
}

func TestBatchItemsAreReadAsPeersSpellThem(t *testing.T) {
	item := func(members string) eureka.Item {
		t.Helper()
		items, err := eureka.DecodeBatch([]byte(`{"replicationList":[{"appName":"orders","id":"i1",` + members + `}]}`))
		need.That(t, err == nil && len(items) == 1, "%s: %v", members, err)
		return items[0]
	}
	key := eureka.Item{App: "ORDERS", ID: "i1"}
	heartbeat, update := key, key
	heartbeat.Action, heartbeat.LastDirty = eureka.Heartbeat, 5
	update.Action, update.Status, update.HasStatus = eureka.StatusUpdate, registry.Unknown, true
	tests := []struct {
		members string
		want    eureka.Item
	}{
		{`"action":"Heartbeat","lastDirtyTimestamp":"5","overriddenStatus":null,"status":null,"instanceInfo":null`, heartbeat},
		{`"action":"Heartbeat","lastDirtyTimestamp":5,"overriddenStatus":"WEIRD","status":"up"`, heartbeat},
		{`"action":"StatusUpdate","status":"UNKNOWN"`, update},
		{`"action":null`, key},
	}
	for _, tt := range tests {
		expect.Deep(t, item(tt.members), tt.want, "%s: got", tt.members)
	}
}

// TestBatchItemThatIsBadSpoilsNoOther gives each item its own result.
func TestBatchItemThatIsBadSpoilsNoOther(t *testing.T) {
	const key = `"appName":"orders","id":"i1",`
	tests := []struct {
		name, item string
		want       int
	}{
		{"good", `{` + key + `"action":"Register","instanceInfo":{` + minimal + `}}`, 0},
		{"port a word", `{` + key + `"action":"Register","instanceInfo":{` + minimal + `,"port":"x"}}`, 400},
		{"instance too deep for its fields", `{` + key + `"action":"Register","instanceInfo":{` + minimal + `,"metadata":{"a":{}}}}`, 400},
		{"instance of another application", `{"appName":"PAY","id":"i1","action":"Register","instanceInfo":{` + minimal + `}}`, 400},
		{"instance an array", `{` + key + `"action":"Register","instanceInfo":[]}`, 400},
		{"instance without host name", `{` + key + `"action":"Register","instanceInfo":{"instanceId":"i1"}}`, 400},
		{"instance lacking", `{` + key + `"action":"Register"}`, 500},
		{"instance null", `{` + key + `"action":"Register","instanceInfo":null}`, 500},
		{"application lacking", `{"id":"i","action":"Cancel"}`, 400},
		{"id lacking", `{"appName":"A","action":"Heartbeat"}`, 400},
		{"id of two dots", `{"appName":"A","id":"..","action":"Cancel"}`, 400},
		{"action lacking", `{` + key + `"status":"UP"}`, 500},
		{"heartbeat", `{` + key + `"action":"Heartbeat"}`, 0},
		{"cancel", `{` + key + `"action":"Cancel"}`, 0},
		{"status update", `{` + key + `"action":"StatusUpdate","status":"DOWN"}`, 0},
		{"status update without status", `{` + key + `"action":"StatusUpdate"}`, 500},
		{"status update to another word", `{` + key + `"action":"StatusUpdate","status":"Down"}`, 500},
		{"override deletion", `{` + key + `"action":"DeleteStatusOverride","status":"UNKNOWN","lastDirtyTimestamp":1}`, 0},
		{"override deletion without timestamp", `{` + key + `"action":"DeleteStatusOverride","status":"UNKNOWN"}`, 500},
	}
	body := `{"replicationList":[`
	for i, tt := range tests {
		if i > 0 {
			body += ","
		}
		body += tt.item
	}
	items, err := eureka.DecodeBatch([]byte(body + `]}`))
	need.That(t, err == nil && len(items) == len(tests), "%d items, %v", len(items), err)
	for i, tt := range tests {
		expect.Equal(t, items[i].Refusal(), tt.want, "%s (%v): got", tt.name, items[i].Invalid)
	}
	expect.That(t, items[0].Lease != nil && items[0].Lease.Key() == registry.NewKey("orders", "i1"), "good item: got %+v", items[0].Lease)
}

func seeds(f *testing.F, pattern string) {
	f.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", pattern))
	need.That(f, err == nil && len(files) != 0, "no seeds for %s: %v", pattern, err)
	for _, file := range files {
		f.Add(fixture(f, filepath.Base(file)))
	}
}

// FuzzDecodeJSON: no panic, no errors but the two, and whatever was read reads the same after being written.
func FuzzDecodeJSON(f *testing.F) {
	seeds(f, "register-*.json")
	seeds(f, "apps*.json")
	for _, v := range matrix(f) {
		f.Add([]byte(v.Body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		fuzzInstance(t, body, full)
		if apps, err := eureka.DecodeApplications(body); err == nil {
			for _, l := range apps.Leases {
				checkReadsTheSame(t, l, full)
			}
		}
	})
}

// FuzzDecodeXML is FuzzDecodeJSON for XML.
func FuzzDecodeXML(f *testing.F) {
	seeds(f, "register-*.xml")
	seeds(f, "instance.xml")
	f.Add([]byte(withXML(`<metadata><_.00e9_-__a_>&#x1F600;&#xd;</_.00e9_-__a_></metadata>`)))
	f.Fuzz(func(t *testing.T, body []byte) { fuzzInstance(t, body, inXML) })
}

func fuzzInstance(t *testing.T, body []byte, f eureka.Format) {
	if _, err := eureka.DecodeRegistration(body, f, "ORDERS"); err != nil && !isRefusal(err) {
		t.Fatalf("an error that no status belongs to: %v", err)
	}
	if l, err := eureka.DecodeInstance(body, f); err == nil {
		checkReadsTheSame(t, l, f)
	}
}

func isRefusal(err error) bool {
	var refused *eureka.ValidationError
	return errors.Is(err, eureka.ErrUnparsable) || errors.As(err, &refused)
}

// checkReadsTheSame writes a lease and reads it back. Only the lease's times may differ, because they are written
// clamped.
func checkReadsTheSame(t *testing.T, l *registry.Lease, f eureka.Format) {
	t.Helper()
	want := *l.Instance
	want.RenewalInterval, want.Duration = l.Interval, l.Duration
	doc := eureka.AppendInstanceDocument(nil, f, l, l.RenewedAt)
	got, err := eureka.DecodeInstance(doc, f)
	need.That(t, err == nil, "cannot read what was written: %v\n%s", err, doc)
	need.That(t, reflect.DeepEqual(*got.Instance, want), "%s\nread as %+v\nnot as  %+v", doc, *got.Instance, want)
	times := *l
	times.Instance = got.Instance
	need.That(t, reflect.DeepEqual(*got, times), "%s\nread as %+v\nnot as  %+v", doc, *got, times)
}

// FuzzDecodeBatch checks the same for the documents of replication.
func FuzzDecodeBatch(f *testing.F) {
	seeds(f, "batch-*.json")
	f.Fuzz(func(t *testing.T, body []byte) {
		if items, err := eureka.DecodeBatch(body); err == nil {
			checkBatchReadsTheSame(t, items)
		} else if !errors.Is(err, eureka.ErrUnparsable) {
			t.Fatalf("an error that no status belongs to: %v", err)
		}
		if results, err := eureka.DecodeBatchResponse(body); err == nil {
			for _, r := range results {
				if r.Lease != nil {
					checkReadsTheSame(t, r.Lease, full)
				}
			}
		}
	})
}

func checkBatchReadsTheSame(t *testing.T, items []eureka.Item) {
	again, err := eureka.DecodeBatch(eureka.AppendBatch(nil, items))
	need.That(t, err == nil && len(again) == len(items), "%d of %d items, %v", len(again), len(items), err)
	for i, item := range items {
		if item.Lease != nil {
			checkReadsTheSame(t, item.Lease, full)
			item.Lease, again[i].Lease = nil, nil
		}
		if item.Invalid != nil && again[i].Invalid == nil {
			item.Invalid = nil // the refused instance was not kept
		}
		need.Deep(t, again[i], item, "item %d: got", i)
	}
}

// FuzzXMLName: any key survives as the name of an element.
func FuzzXMLName(f *testing.F) {
	for _, key := range []string{"a b", "9x", "owner_team", "$_.0041", "_", "é\U0001F600", "xml:lang", "-"} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		if key == "" || key == "@class" || strings.ToValidUTF8(key, "") != key {
			return
		}
		l := orders1()
		l.Instance.Metadata = []registry.Pair{{Key: key, Value: "v"}, {Key: key + "'", Value: ""}}
		checkReadsTheSame(t, l, inXML)
	})
}
