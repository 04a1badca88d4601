package list

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/client/internal/transport"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func orders(id string, status registry.Status) *registry.Instance {
	return listed("ORDERS", id, withStatus(status))
}

func billing(id string) *registry.Instance { return listed("BILLING", id) }

// words are the instances of a list, such as "ORDERS/o1=UP".
func words(l *List) string {
	var all []string
	for i := range l.All() {
		all = append(all, fmt.Sprintf("%s=%s", i.Key(), i.Status))
	}
	return strings.Join(all, " ")
}

func responding(status int, body []byte) *transport.Cluster {
	return transport.New(transport.Config{
		Servers: []string{"http://a"}, Timeout: time.Second, Refused: func(transport.Refusal) error { return errors.New("refused") },
		HTTPClient: &http.Client{Transport: roundTripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: status, Header: make(http.Header), Body: io.NopCloser(bytes.NewReader(body))}, nil
		})},
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func deltaOf(version, hash string, changes ...*registry.Lease) []byte {
	return eureka.AppendApplications(nil, eureka.Format{}, version, hash, slices.Values(changes))
}

func deltaChange(action registry.Action, i *registry.Instance) *registry.Lease {
	return &registry.Lease{Instance: i, Action: action}
}

func TestDeltaIsApplied(t *testing.T) {
	for _, tc := range []struct {
		name    string
		changes []*registry.Lease
		want    string
		named   int
	}{
		{name: "nothing", want: "ORDERS/o1=UP ORDERS/o2=UP"},
		{name: "added", changes: []*registry.Lease{deltaChange(registry.ActionAdded, orders("o3", registry.Starting))}, want: "ORDERS/o1=UP ORDERS/o2=UP ORDERS/o3=STARTING", named: 1},
		{name: "modified", changes: []*registry.Lease{deltaChange(registry.ActionModified, orders("o2", registry.Down))}, want: "ORDERS/o1=UP ORDERS/o2=DOWN", named: 1},
		{name: "modified, of one that is not known", changes: []*registry.Lease{deltaChange(registry.ActionModified, billing("b1"))}, want: "BILLING/b1=UP ORDERS/o1=UP ORDERS/o2=UP", named: 1},
		{name: "deleted", changes: []*registry.Lease{deltaChange(registry.ActionDeleted, orders("o2", registry.Up))}, want: "ORDERS/o1=UP", named: 1},
		{name: "deleted, of one that is not known", changes: []*registry.Lease{deltaChange(registry.ActionDeleted, billing("b1"))}, want: "ORDERS/o1=UP ORDERS/o2=UP", named: 1},
		{name: "the last instance of its application", changes: []*registry.Lease{
			deltaChange(registry.ActionDeleted, orders("o1", registry.Up)), deltaChange(registry.ActionDeleted, orders("o2", registry.Up)),
		}, want: "", named: 2},
		{name: "one after the other", changes: []*registry.Lease{
			deltaChange(registry.ActionDeleted, orders("o1", registry.Up)), deltaChange(registry.ActionAdded, orders("o1", registry.Down)),
		}, want: "ORDERS/o1=DOWN ORDERS/o2=UP", named: 2},
		{name: "no action", changes: []*registry.Lease{deltaChange(registry.ActionNone, orders("o3", registry.Up))}, want: "ORDERS/o1=UP ORDERS/o2=UP"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := listOf(orders("o1", registry.Up), orders("o2", registry.Up))
			named := 0
			document := need.Got(eureka.DecodeApplications(deltaOf("7", "", tc.changes...)))(t)
			got := words(withDelta(before, document.Leases, func(registry.Key) { named++ }))
			expect.That(t, got == tc.want && named == tc.named, "the list is %q, %d named, want %q, %d", got, named, tc.want, tc.named)
			expect.That(t, words(before) == "ORDERS/o1=UP ORDERS/o2=UP", "the list before is %q now", words(before))
		})
	}
}

// FuzzApplyDelta: after any response to the fetch of a delta the list has the hash of the response,
// or everything is fetched.
func FuzzApplyDelta(f *testing.F) {
	f.Add(200, deltaOf("7", "UP_2_"))
	f.Add(200, deltaOf("7", "UP_3_", deltaChange(registry.ActionAdded, orders("o3", registry.Up))))
	f.Add(200, deltaOf("7", "DOWN_1_", deltaChange(registry.ActionDeleted, orders("o1", registry.Up)), deltaChange(registry.ActionModified, orders("o2", registry.Down))))
	f.Add(200, deltaOf("", "UP_2_"))
	f.Add(200, []byte(`{"applications":{"versions__delta":1,"apps__hashcode":"UP_2_","application":{"name":"x","instance":{"actionType":"ADDED"}}}}`))
	f.Add(200, []byte(`{"applications":null}`))
	f.Add(403, []byte(nil))
	f.Add(500, []byte(`{`))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		if status < 200 || status > 599 {
			return
		}
		r := newRefresher(NewKeeper(Config{Cluster: responding(status, body), Interval: 1, Publish: func(*List) {}}))
		before := listOf(orders("o1", registry.Up), orders("o2", registry.Up))
		r.list.Store(before)
		a, document, err := r.getDelta(t.Context())
		if err == nil {
			err = r.applyDelta(a, document)
		}
		switch after := r.list.Load(); {
		case err == nil && after.HashCode() != document.HashCode:
			t.Errorf("the list has the hash %q, the document %q", after.HashCode(), document.HashCode)
		case err != nil && document == nil && after != before:
			t.Errorf("the list has changed to %q without a document: %v", words(after), err)
		}
		again := applyTwice(r, document)
		expect.That(t, again == r.list.Load(), "applied again, the list is %q, and was %q", words(again), words(r.list.Load()))
	})
}

func applyTwice(r *refresher, document *eureka.Applications) *List {
	if document == nil {
		return r.list.Load()
	}
	return withDelta(r.list.Load(), document.Leases, func(registry.Key) {})
}
