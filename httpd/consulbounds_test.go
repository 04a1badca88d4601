package httpd_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/kv"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// bounded is a node of a cluster that writes level 2, with what is at its bounds: 1,000 alias checks on t, two more nodes
// and more keys than one operation deletes.
func bounded(t *testing.T) *coordinated {
	t.Helper()
	c := newCoordinated(t, httpd.Config{})
	c.Memory.Registry.SetLevel(2)
	c.kv.state.SetLevel(2)
	put := func(target, body string) {
		c.send("PUT", target, body).says(t, 200, "", "%s", target)
	}
	put("/v1/agent/service/register", `{"Name":"t","Check":{"CheckID":"ttl","TTL":"1h"}}`)
	for i := range 20 {
		put("/v1/agent/service/register", aliasing(fmt.Sprint("f", i), 50))
	}
	return c
}

// aliasing registers a service with alias checks on t.
func aliasing(id string, checks int) string {
	return fmt.Sprintf(`{"Name":"f","ID":%q,"Checks":[%s{"AliasService":"t"}]}`, id, strings.Repeat(`{"AliasService":"t"},`, checks-1))
}

// Whatever route an alias check beyond the bound comes by, its refusal names the bound, and nothing changes.
func TestAliasBeyondTheBoundIsRefusedWithTheBound(t *testing.T) {
	c := bounded(t)
	const text = "Invalid check: at most 1000 alias checks may follow one service, or from other nodes one node, directly or through the services that they belong to; …"
	listed := c.send("GET", "/v1/agent/checks", "").body
	for _, row := range []struct {
		name, target, body string
		status             int
		text               string
	}{
		{"service", "/v1/agent/service/register", aliasing("more", 1), 400, text},
		{"with many checks", "/v1/agent/service/register", aliasing("more", 64), 400, text},
		{"with another one first", "/v1/agent/service/register", `{"Name":"more","Checks":[{"TTL":"1s"},{"AliasService":"t"}]}`, 400, text},
		{"check", "/v1/agent/check/register", `{"Name":"c","AliasService":"t"}`, 400, text},
		{"check of a service", "/v1/agent/check/register", `{"Name":"c","AliasService":"t","ServiceID":"f1"}`, 400, text},
		{"by its node", "/v1/agent/check/register", `{"Name":"c","AliasService":"t","AliasNode":"rollcall","ServiceID":"f1"}`, 400, text},
		{"of a follower", "/v1/agent/service/register", `{"Name":"more","Check":{"AliasService":"f3"}}`, 400, text},
		{"again", "/v1/agent/service/register", aliasing("f1", 50), 200, ""},
		{"of what is not there", "/v1/agent/check/register", `{"Name":"free","AliasService":"none","ServiceID":"f1"}`, 200, ""},
	} {
		got := c.send("PUT", row.target, row.body)
		begins, _, cut := strings.Cut(row.text, "…")
		expect.That(t, got.status == row.status && strings.HasPrefix(got.body, begins) && (cut || got.body == row.text), "%s: got %d %s", row.name, got.status, got.body)
		if row.status != 200 {
			now := c.send("GET", "/v1/agent/checks", "").body
			expect.That(t, now == listed, "%s: the checks are other ones", row.name)
		}
	}
}

// FuzzAliases: whatever a check's definition says that is more than there may be, the answer is 400 or the check follows
// nothing that is at its bound.
func FuzzAliases(f *testing.F) {
	for _, body := range []string{aliasing("x", 1), `{"Name":"x","Check":{"AliasService":"T"}}`, `{"name":"x","check":{"alias_service":"t"}}`,
		`{"Name":"x","Check":{"AliasService":"t","AliasNode":""}}`, `{"Name":"x","Checks":[null,{"AliasService":"t"}]}`, `{"Name":"x","ID":"t","Check":{"AliasService":"x"}}`} {
		f.Add(body)
	}
	c := newCoordinated(f, httpd.Config{})
	c.Memory.Registry.SetLevel(2)
	c.send("PUT", "/v1/agent/service/register", `{"Name":"t","Check":{"CheckID":"ttl","TTL":"1h"}}`)
	for i := range 20 {
		c.send("PUT", "/v1/agent/service/register", aliasing(fmt.Sprint("f", i), 50))
	}
	f.Fuzz(func(t *testing.T, body string) {
		before := need.Got(c.View(t.Context(), registry.Stale))(t).AliasFigures().Refused.Load()
		got := c.send("PUT", "/v1/agent/service/register", body)
		refused := need.Got(c.View(t.Context(), registry.Stale))(t).AliasFigures().Refused.Load() > before
		expect.That(t, got.status == 200 || got.status >= 400 && got.status < 500, "%s: %d %s", body, got.status, got.body)
		expect.That(t, refused == (got.status == 400 && strings.Contains(got.body, "at most 1000 alias checks")), "%s: %d %s", body, got.status, got.body)
		c.send("PUT", "/v1/agent/check/pass/ttl", "")
		c.send("PUT", "/v1/agent/check/fail/ttl", "")
		most := need.Got(c.View(t.Context(), registry.Stale))(t).AliasFigures().Largest.Load()
		expect.That(t, most <= 1000, "%s: %d alias checks follow one heartbeat", body, most)
	})
}

func TestWhatIsTooMuchForOneOperationIsRemovedInSteps(t *testing.T) {
	c := bounded(t)
	set := make([]kv.Op, kv.MaxDeleted+2500)
	for i := range set {
		set[i] = kv.KeyOp{Verb: kv.Set, Key: fmt.Sprintf("tree/%05d", i)}
	}
	_, err := c.kv.Apply(t.Context(), set...)
	expect.OKf(t, err, "set")
	c.send("PUT", "/v1/kv/tree/00000", "newest")
	c.send("DELETE", "/v1/kv/tree/0?recurse", "").is(t, 200, "true", "10,000 keys go in one step").with(t, "X-Rollcall-Parts", "")
	_, err = c.kv.Apply(t.Context(), set...)
	expect.OKf(t, err, "set again")
	index := c.kv.state.View().Index()
	c.send("DELETE", "/v1/kv/tree?recurse", "").is(t, 200, "true", "12,500 keys").with(t, "X-Rollcall-Parts", "4")
	expect.That(t, c.kv.state.View().Index() == index+2501, "took %d indexes, want one for each key of the first steps and one for the rest", c.kv.state.View().Index()-index)
	got := c.send("GET", "/v1/kv/tree?keys", "")
	expect.Equal(t, got.status, 404, "keys that are left:")

	const services = registry.MaxRemoved + 300
	for i := range services {
		body := fmt.Sprintf(`{"Node":"far","Address":"10.0.0.1","Service":{"Service":"s","ID":"s%d"}}`, i)
		c.send("PUT", "/v1/catalog/register", body).says(t, 200, "", "register")
	}
	c.send("PUT", "/v1/catalog/deregister", `{"Node":"far"}`).says(t, 200, "", "2,800 services").with(t, "X-Rollcall-Parts", "3")
	got = c.send("GET", "/v1/catalog/node-services/far", "")
	expect.That(t, strings.Contains(got.body, `"Node":null`), "left: %.200s", got.body)
}
