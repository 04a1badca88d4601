package consul_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/consul"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestServicesAreReadLeniently(t *testing.T) {
	for _, row := range []struct{ name, body string }{
		{"as the official client writes it", `{"Name":"web","ID":"w1","Tags":["a"],"EnableTagOverride":true,"Check":null,"Checks":null}`},
		{"lower case", `{"name":"web","id":"w1","tags":["a"],"enabletagoverride":true}`},
		{"snake case", `{"Name":"web","Id":"w1","TAGS":["a"],"enable_tag_override":true}`},
		{"fields of newer versions", `{"Name":"web","ID":"w1","AI":{"x":[{}]},"Proxy":{"Mode":""},"Tags":["a"],"EnableTagOverride":true}`},
		{"null is absent", `{"Name":"web","ID":"w1","Port":null,"Meta":null,"Weights":null,"TaggedAddresses":null,"Tags":["a"],"Locality":null,"Ports":null,"EnableTagOverride":true}`},
		{"the last counts", `{"Name":"x","name":"web","ID":"w1","Tags":["a"],"EnableTagOverride":true}`},
		{"something follows", `{"Name":"web","ID":"w1","Tags":["a"],"EnableTagOverride":true} and more`},
		{"weights of nothing", `{"Name":"web","ID":"w1","Tags":["a"],"EnableTagOverride":true,"Weights":{"Passing":0,"Warning":0}}`},
	} {
		op, err := consul.DecodeService([]byte(row.body), "", "10.1.0.1")
		if err != nil {
			t.Errorf("%s: %v", row.name, err)
			continue
		}
		want := "&{Name:web ID:w1 Node: Tags:[a] Address: Port:0 Tagged:[] WeightPassing:1 WeightWarning:1 TagOverride:true Kind: SocketPath: Locality:[] Ports:[] Proxy:[] Native:false Checks:[] CreateIndex:0 ModifyIndex:0}"
		expect.Equal(t, fmt.Sprintf("%+v", op.Service), want, "%s:\ngot", row.name)
		expect.That(t, op.Instance.HostName == "10.1.0.1" && op.Instance.Key() == registry.NewKey("web", "w1") && op.KeepStatus && op.Node == nil,
			"%s: the instance is %+v", row.name, op.Instance)
	}
}

// A service may say its port in either way, and Eureka's clients know one.
func TestServicesWithoutAPortGetEurekasDefault(t *testing.T) {
	for body, want := range map[string]registry.Port{
		`{"Name":"x"}`:           {},
		`{"Name":"x","Port":80}`: {Number: 80, Enabled: true},
		`{"Name":"x","Ports":[{"Name":"a","Port":1},{"Name":"b","Port":2,"Default":true}]}`: {Number: 2, Enabled: true},
	} {
		op, err := consul.DecodeService([]byte(body), "", "h")
		expect.That(t, err == nil && op.Instance.Port == want, "%s: got %+v, %v; want %+v", body, op.Instance.Port, err, want)
	}
}

func TestServicesHaveTaggedAddressesOfAllFamilies(t *testing.T) {
	for address, want := range map[string]string{
		"10.0.0.1": "[{lan_ipv4 10.0.0.1 80} {wan_ipv4 10.0.0.1 80}]",
		"fd00::1":  "[{lan_ipv6 fd00::1 80} {wan_ipv6 fd00::1 80}]",
		"a.test":   "[]",
	} {
		op, err := consul.DecodeService(fmt.Appendf(nil, `{"Name":"x","Port":80,"Address":%q}`, address), "", "h")
		got := fmt.Sprint(op.Service.Tagged)
		expect.That(t, err == nil && got == want, "%s: got %s, %v; want %s", address, got, err, want)
	}
	op, err := consul.DecodeService([]byte(`{"Name":"x","Address":"10.0.0.1","TaggedAddresses":{"lan_ipv4":{"Address":"10.0.0.2","Port":1}}}`), "", "h")
	if got, want := fmt.Sprint(op.Service.Tagged), "[{lan_ipv4 10.0.0.2 1} {wan_ipv4 10.0.0.1 0}]"; err != nil || got != want {
		t.Errorf("what is given stays: got %s, %v; want %s", got, err, want)
	}
}

func TestServiceMetadataIsBoundedAsThatOfEurekasInstances(t *testing.T) {
	meta := map[string]string{}
	for i := range 257 {
		if i == 256 {
			expect.OKf(t, expect.Err(decodeMeta(meta)), "256 entries")
		}
		meta[fmt.Sprint(i)] = "x"
	}
	_, err := decodeMeta(meta)
	malformed := consul.Malformed("")
	expect.That(t, errors.As(err, &malformed) && strings.Contains(err.Error(), "more than 256 key/value pairs"), "257 entries: %v", err)
	if _, err := decodeMeta(map[string]string{"k": strings.Repeat("x", 64<<10)}); err == nil {
		t.Error("more than 64 KiB are accepted")
	}
}

func decodeMeta(meta map[string]string) (registry.RegisterCatalog, error) {
	body, _ := json.Marshal(map[string]any{"Name": "x", "Meta": meta})
	return consul.DecodeService(body, "", "h")
}

// A number is one of nanoseconds, as Go's clients write durations.
func TestCheckDurationsAreTextsOrNanoseconds(t *testing.T) {
	for text, want := range map[string]int64{`"10s"`: 10_000, `"1500ms"`: 1500, `1000000000`: 1000, `"1ns"`: 1, `"1h"`: 3_600_000} {
		op, err := consul.DecodeCheck([]byte(`{"Name":"c","TTL":` + text + `}`))
		expect.That(t, err == nil && op.Checks[0].TTL == want, "%s: got %+v, %v; want %d ms", text, op.Checks, err, want)
	}
}

func TestCheckWithoutAnIDHasItsNameForIt(t *testing.T) {
	for body, want := range map[string]string{
		`{"Name":"c","TTL":"1s"}`:               "c",
		`{"Name":"c","ID":"i","TTL":"1s"}`:      "i",
		`{"Name":"c","CheckID":"k","TTL":"1s"}`: "k",
	} {
		op, err := consul.DecodeCheck([]byte(body))
		expect.That(t, err == nil && op.Checks[0].ID == want, "%s: got %+v, %v; want the id %s", body, op.Checks, err, want)
	}
}

// An instance of another node has an id of its own: nodes name their services independently.
func TestServicesOfOtherNodesAreOtherInstances(t *testing.T) {
	addressOf := func(node string) string { return map[string]string{"": "10.1.0.1", "known": "10.2.0.1"}[node] }
	for body, want := range map[string]string{
		`{"Node":"rollcall","Address":"ignored","Service":{"Service":"Web"}}`:                                 "WEB/Web at 10.1.0.1 ()",
		`{"Node":"far","Address":"10.9.0.1","Service":{"Service":"web","ID":"w1"}}`:                           "WEB/far:w1 at 10.9.0.1 (far)",
		`{"Node":"known","SkipNodeUpdate":true,"Service":{"Service":"web","ID":"w1"}}`:                        "WEB/known:w1 at 10.2.0.1 (known)",
		`{"Node":"new","SkipNodeUpdate":true,"Service":{"Service":"web","ID":"w1"}}`:                          "WEB/new:w1 at new (new)",
		`{"Node":"far","Address":"10.9.0.1","Service":{"Service":"web","ID":"w1","Address":"10.9.0.2"}}`:      "WEB/far:w1 at 10.9.0.2 (far)",
		`{"Node":"far","Address":"10.9.0.1","Service":{"Service":"web","Meta":{"secure":"true"},"Port":443}}`: "WEB/far:web at 10.9.0.1 (far)",
	} {
		got, err := consul.DecodeRegistration([]byte(body), addressOf)
		if err != nil {
			t.Errorf("%s: %v", body, err)
			continue
		}
		i := got.Op.Instance
		shown := fmt.Sprintf("%s at %s (%s)", i.Key(), i.HostName, got.Op.Service.Node)
		expect.That(t, shown == want && i.IPAddr == i.HostName, "%s: got %s, want %s", body, shown, want)
	}
}

// The official client sends this of a check without a definition.
func TestCheckDefinitionThatSaysNothingIsNone(t *testing.T) {
	body := need.Got(json.Marshal(api.CatalogRegistration{Node: "n", Address: "a", Check: &api.AgentCheck{Name: "c"}}))(t)
	got, err := consul.DecodeRegistration(body, func(string) string { return "" })
	expect.That(t, err == nil && got.Op.Checks[0].Definition == nil && got.Op.Checks[0].Status == catalog.Critical && got.Op.Checks[0].ID == "c",
		"got %+v, %v", got.Op.Checks, err)
}

func TestCheckAggregateIsThatOfTheWorstCheck(t *testing.T) {
	check := func(id, status string) consul.Check { return consul.Check{CheckID: id, Status: status} }
	for _, row := range []struct {
		name   string
		checks []consul.Check
		want   string
	}{
		{"none", nil, "passing"},
		{"passing", []consul.Check{check("a", "passing")}, "passing"},
		{"warning", []consul.Check{check("a", "passing"), check("b", "warning")}, "warning"},
		{"critical", []consul.Check{check("a", "critical"), check("b", "warning")}, "critical"},
		{"service maintenance", []consul.Check{check("_service_maintenance:x", "critical"), check("b", "critical")}, "maintenance"},
		{"node maintenance", []consul.Check{check("a", "critical"), check("_node_maintenance", "critical")}, "maintenance"},
	} {
		got := consul.Aggregate(row.checks)
		var theirs api.HealthChecks
		for _, c := range row.checks {
			theirs = append(theirs, &api.HealthCheck{CheckID: c.CheckID, Status: c.Status})
		}
		expect.That(t, got == row.want && got == theirs.AggregatedStatus(), "%s: got %s, want %s; the official client says %s", row.name, got, row.want, theirs.AggregatedStatus())
	}
	order := []string{"passing", "warning", "critical", "maintenance"}
	for i, one := range order {
		for j, other := range order {
			expect.Equal(t, consul.Worse(one, other), i > j, "%s worse than %s:", one, other)
		}
	}
}

func TestLogicalNodeIsTheSameOnEveryServer(t *testing.T) {
	one := consul.Home{Epoch: "c1", Address: "10.1.0.1"}.NodeID()
	expect.Equal(t, (consul.Home{Epoch: "c1", Version: "2", Address: "10.1.0.2"}).NodeID(), one, "servers of one cluster say %s and", one)
	other := (consul.Home{Epoch: "c2"}).NodeID()
	expect.That(t, other != one, "two clusters have one id")
	expect.That(t, len(one) == 36 && one[14] == '8' && strings.ContainsAny(one[19:20], "89ab"), "%s is no UUID of version 8", one)
}
