package eureka_test

import (
	"errors"
	"reflect"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

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
	want := []eureka.ItemResult{{Status: 200}, {Status: 409}}
	expect.That(t, err == nil && reflect.DeepEqual(got, want), "got %+v, %v", got, err)
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

// TestBatchItemThatIsBadSpoilsNoOther gives each item a result of its own.
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
