package client

import (
	"net/http"
	"os"
	"testing"

	"github.com/seed-20419f34/rollcall/client/internal/fake"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func fixture(t *testing.T, name string) string {
	t.Helper()
	return string(need.Got(os.ReadFile("../httpd/eureka/testdata/" + name))(t))
}

func TestAppsReadsTheRegistry(t *testing.T) {
	apps := need.Got(clientOf(t, fake.Servers{"a": fake.Always(200, fixture(t, "apps.json"))}, "a").Apps(t.Context()))(t)
	got := make(map[string]int)
	for _, app := range apps {
		got[app.Name] = len(app.Leases)
	}
	expect.Deep(t, got, map[string]int{"BILLING": 1, "ORDERS": 2}, "got")
}

func TestInstancesOfAnUnknownApplicationAreNone(t *testing.T) {
	got, err := clientOf(t, fake.Servers{"a": fake.Always(404, "")}, "a").Instances(t.Context(), "nobody")
	expect.That(t, err == nil && len(got) == 0, "got %v, %v, want none and no error", got, err)
}

func TestInstancesReadsOneApplication(t *testing.T) {
	got, err := clientOf(t, fake.Servers{"a": fake.Always(200, fixture(t, "application.json"))}, "a").Instances(t.Context(), "orders")
	expect.That(t, err == nil && len(got) == 2 && got[0].Key() == registry.NewKey("ORDERS", "orders-1.example.internal:orders:8080"),
		"got %v, %v, want the two of the fixture", got, err)
}

func TestAppsReturnsAnErrorForAnUnreadableDocument(t *testing.T) {
	c := clientOf(t, fake.Servers{"a": fake.Always(200, "<html>")}, "a")
	expect.That(t, expect.Err(c.Apps(t.Context())) != nil, "Apps: no error")
	expect.That(t, expect.Err(c.Instances(t.Context(), "orders")) != nil, "Instances: no error")
	expect.That(t, expect.Err(c.Status(t.Context())) != nil, "Status: no error")
}

func TestReadsAskForTheConsistencyThatWasConfigured(t *testing.T) {
	var query string
	transport := fake.Servers{"a": func(r *http.Request) (*http.Response, error) {
		query = r.URL.RawQuery
		return fake.Respond(404, "")
	}}
	c := need.Got(New(Config{Servers: []string{"http://a/"}, HTTPClient: &http.Client{Transport: transport}, Consistency: "stale"}))(t)
	need.Got(c.Instances(t.Context(), "orders"))(t)
	expect.Equal(t, query, "consistency=stale", "query")
}
