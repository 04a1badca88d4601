package client

import (
	"net/http"
	"slices"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// deltaOf is the document of a delta.
func deltaOf(version, hash string, entries ...*registry.Lease) []byte {
	return eureka.AppendApplications(nil, eureka.Format{}, version, hash, slices.Values(entries))
}

func deltaEntry(action registry.Action, i *registry.Instance) *registry.Lease {
	return &registry.Lease{Instance: i, Action: action}
}

func TestADeltaIsApplied(t *testing.T) {
	for _, tc := range []struct {
		name    string
		entries []*registry.Lease
		want    string
		told    int
	}{
		{name: "nothing", want: "ORDERS/o1=UP ORDERS/o2=UP"},
		{name: "added", entries: []*registry.Lease{deltaEntry(registry.ActionAdded, orders("o3", registry.Starting))}, want: "ORDERS/o1=UP ORDERS/o2=UP ORDERS/o3=STARTING", told: 1},
		{name: "modified", entries: []*registry.Lease{deltaEntry(registry.ActionModified, orders("o2", registry.Down))}, want: "ORDERS/o1=UP ORDERS/o2=DOWN", told: 1},
		{name: "modified, of one that is not known", entries: []*registry.Lease{deltaEntry(registry.ActionModified, billing("b1"))}, want: "BILLING/b1=UP ORDERS/o1=UP ORDERS/o2=UP", told: 1},
		{name: "deleted", entries: []*registry.Lease{deltaEntry(registry.ActionDeleted, orders("o2", registry.Up))}, want: "ORDERS/o1=UP", told: 1},
		{name: "deleted, of one that is not known", entries: []*registry.Lease{deltaEntry(registry.ActionDeleted, billing("b1"))}, want: "ORDERS/o1=UP ORDERS/o2=UP", told: 1},
		{name: "the last instance of its application", entries: []*registry.Lease{
			deltaEntry(registry.ActionDeleted, orders("o1", registry.Up)), deltaEntry(registry.ActionDeleted, orders("o2", registry.Up)),
		}, want: "", told: 2},
		{name: "one after the other", entries: []*registry.Lease{
			deltaEntry(registry.ActionDeleted, orders("o1", registry.Up)), deltaEntry(registry.ActionAdded, orders("o1", registry.Down)),
		}, want: "ORDERS/o1=DOWN ORDERS/o2=UP", told: 2},
		{name: "no action", entries: []*registry.Lease{deltaEntry(registry.ActionNone, orders("o3", registry.Up))}, want: "ORDERS/o1=UP ORDERS/o2=UP"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := listOf(orders("o1", registry.Up), orders("o2", registry.Up))
			told := 0
			document := need.Got(eureka.DecodeApplications(deltaOf("7", "", tc.entries...)))(t)
			after := applyDelta(before, document.Leases, func(registry.Key) { told++ })
			got := words(after)
			expect.That(t, got == tc.want && told == tc.told, "the list is %q, %d told of, want %q, %d", got, told, tc.want, tc.told)
			if words(before) != "ORDERS/o1=UP ORDERS/o2=UP" {
				t.Errorf("the list before is %q now", words(before))
			}
		})
	}
}

// FuzzApplyDelta: whatever a server answers to the question for a delta, the list has its hash afterwards,
// or everything is fetched.
func FuzzApplyDelta(f *testing.F) {
	f.Add(200, deltaOf("7", "UP_2_"))
	f.Add(200, deltaOf("7", "UP_3_", deltaEntry(registry.ActionAdded, orders("o3", registry.Up))))
	f.Add(200, deltaOf("7", "DOWN_1_", deltaEntry(registry.ActionDeleted, orders("o1", registry.Up)), deltaEntry(registry.ActionModified, orders("o2", registry.Down))))
	f.Add(200, deltaOf("", "UP_2_"))
	f.Add(200, []byte(`{"applications":{"versions__delta":1,"apps__hashcode":"UP_2_","application":{"name":"x","instance":{"actionType":"ADDED"}}}}`))
	f.Add(200, []byte(`{"applications":null}`))
	f.Add(403, []byte(nil))
	f.Add(500, []byte(`{`))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		if status < 200 || status > 599 {
			return
		}
		c := need.Got(New(Config{Servers: []string{"http://a"}, HTTPClient: &http.Client{Transport: servers{"a": always(status, string(body))}}}))(t)
		r := newRefresher(&Discovery{client: c, config: DiscoveryConfig{Interval: 1}, ready: make(chan struct{})})
		before := listOf(orders("o1", registry.Up), orders("o2", registry.Up))
		r.list.Store(before)
		a, document, err := r.fetchDelta(t.Context())
		if err == nil {
			err = r.takeDelta(a, document)
		}
		switch after := r.list.Load(); {
		case err == nil && after.HashCode() != document.HashCode:
			t.Errorf("the list has the hash %q, the document %q", after.HashCode(), document.HashCode)
		case err != nil && document == nil && after != before:
			t.Errorf("the list has changed to %q without a document: %v", words(after), err)
		}
		if again := applyTwice(r, document); again != r.list.Load() {
			t.Errorf("applied again, the list is %q, and was %q", words(again), words(r.list.Load()))
		}
	})
}

// applyTwice applies a document a second time.
func applyTwice(r *refresher, document *eureka.Applications) *Snapshot {
	if document == nil {
		return r.list.Load()
	}
	return applyDelta(r.list.Load(), document.Leases, func(registry.Key) {})
}
