package consul

import (
	"bufio"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/hashicorp/consul/api"
	"github.com/hashicorp/go-bexpr"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/web"
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
		op, err := decodeService([]byte(row.body), "", "10.1.0.1")
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

func TestServicesHaveTaggedAddressesOfAllFamilies(t *testing.T) {
	for address, want := range map[string]string{
		"10.0.0.1": "[{lan_ipv4 10.0.0.1 80} {wan_ipv4 10.0.0.1 80}]",
		"fd00::1":  "[{lan_ipv6 fd00::1 80} {wan_ipv6 fd00::1 80}]",
		"a.test":   "[]",
	} {
		op, err := decodeService(fmt.Appendf(nil, `{"Name":"x","Port":80,"Address":%q}`, address), "", "h")
		got := fmt.Sprint(op.Service.Tagged)
		expect.That(t, err == nil && got == want, "%s: got %s, %v; want %s", address, got, err, want)
	}
	op, err := decodeService([]byte(`{"Name":"x","Address":"10.0.0.1","TaggedAddresses":{"lan_ipv4":{"Address":"10.0.0.2","Port":1}}}`), "", "h")
	got, want := fmt.Sprint(op.Service.Tagged), "[{lan_ipv4 10.0.0.2 1} {wan_ipv4 10.0.0.1 0}]"
	expect.That(t, err == nil && got == want, "what is given stays: got %s, %v; want %s", got, err, want)
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
	expect.That(t, err != nil && web.RefusalOf(err).Status == 400 && strings.Contains(err.Error(), "more than 256 key/value pairs"), "257 entries: %v", err)
	if _, err := decodeMeta(map[string]string{"k": strings.Repeat("x", 64<<10)}); err == nil {
		t.Error("more than 64 KiB are accepted")
	}
}

func decodeMeta(meta map[string]string) (registry.RegisterCatalog, error) {
	body, _ := json.Marshal(map[string]any{"Name": "x", "Meta": meta})
	return decodeService(body, "", "h")
}

func TestCheckWithoutAnIDHasItsNameForIt(t *testing.T) {
	for body, want := range map[string]string{
		`{"Name":"c","TTL":"1s"}`:               "c",
		`{"Name":"c","ID":"i","TTL":"1s"}`:      "i",
		`{"Name":"c","CheckID":"k","TTL":"1s"}`: "k",
	} {
		op, err := decodeCheck([]byte(body))
		expect.That(t, err == nil && op.Checks[0].ID == want, "%s: got %+v, %v; want the id %s", body, op.Checks, err, want)
	}
}

// An instance of another node has its own id: nodes name their services independently.
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
		got, _, err := decodeRegistration([]byte(body), addressOf)
		if err != nil {
			t.Errorf("%s: %v", body, err)
			continue
		}
		i := got.Instance
		shown := fmt.Sprintf("%s at %s (%s)", i.Key(), i.HostName, got.Service.Node)
		expect.That(t, shown == want && i.IPAddr == i.HostName, "%s: got %s, want %s", body, shown, want)
	}
}

// The official client sends this for a check without a definition.
func TestCheckDefinitionThatSaysNothingIsNone(t *testing.T) {
	body := need.Got(json.Marshal(api.CatalogRegistration{Node: "n", Address: "a", Check: &api.AgentCheck{Name: "c"}}))(t)
	got, _, err := decodeRegistration(body, func(string) string { return "" })
	expect.That(t, err == nil && got.Checks[0].Definition == nil && got.Checks[0].Status == catalog.Critical && got.Checks[0].ID == "c",
		"got %+v, %v", got.Checks, err)
}

func TestLogicalNodeIsTheSameOnEveryServer(t *testing.T) {
	one := place{Epoch: "c1", Address: "10.1.0.1"}.nodeID()
	expect.Equal(t, (place{Epoch: "c1", Version: "2", Address: "10.1.0.2"}).nodeID(), one, "servers of one cluster say %s and", one)
	expect.That(t, (place{Epoch: "c2"}).nodeID() != one, "two clusters have one id")
	expect.That(t, len(one) == 36 && one[14] == '8' && strings.ContainsAny(one[19:20], "89ab"), "%s is no UUID of version 8", one)
}

// Programs send configuration files unchanged, so names come in both spellings; the content of Config is the proxy's.
func TestProxySettingsAreKeptByConsulsNames(t *testing.T) {
	const kept = `{"TransparentProxy":{"OutboundListenerPort":5,"DialedDirectly":true},"AccessLogs":{"Enabled":true,"JSONFormat":"{}"},` +
		`"EnvoyExtensions":[{"Name":"e","Required":true,"Arguments":{"a_b":1},"ConsulVersion":"","EnvoyVersion":""}],` +
		`"DestinationServiceName":"web","DestinationServiceID":"w1","LocalServiceAddress":"::1","LocalServicePort":80,"LocalServiceSocketPath":"/s","Mode":"direct",` +
		`"Config":{"a_b":{"c_d":1.50}},"Upstreams":[{"DestinationType":"service","DestinationPeer":"p","DestinationName":"db","Datacenter":"dc2","LocalBindAddress":"::1","LocalBindPort":1,` +
		`"LocalBindSocketPath":"/u","LocalBindSocketMode":"600","Config":{"x_y":null},"MeshGateway":{"Mode":"local"}}],"MeshGateway":{"Mode":"none"},` +
		`"Expose":{"Checks":true,"Paths":[{"ListenerPort":1,"Path":"/","LocalPathPort":2,"Protocol":"http","ParsedFromCheck":true}]}}`
	snake := `{"transparent_proxy":{"outbound_listener_port":5,"dialed_directly":true},"access_logs":{"enabled":true,"json_format":"{}"},` +
		`"envoy_extensions":[{"Name":"e","Required":true,"Arguments":{"a_b":1}}],"destination_service_name":"web","destination_service_id":"w1","local_service_address":"::1","local_service_port":80,` +
		`"local_service_socket_path":"/s","mode":"direct","config":{"a_b":{"c_d":1.50}},"upstreams":[{"destination_type":"service","destination_peer":"p","destination_name":"db",` +
		`"destination_namespace":"default","destination_partition":"","datacenter":"dc2","local_bind_address":"::1","local_bind_port":1,"local_bind_socket_path":"/u","local_bind_socket_mode":"600",` +
		`"config":{"x_y":null},"mesh_gateway":{"mode":"local"}}],"mesh_gateway":{"mode":"none"},` +
		`"expose":{"checks":true,"paths":[{"listener_port":1,"path":"/","local_path_port":2,"protocol":"http","parsed_from_check":true}]},"unknown":1}`
	for _, body := range []string{kept, snake} {
		op := need.Got(decodeService([]byte(`{"Name":"p","Port":1,"Kind":"connect-proxy","Proxy":`+body+`}`), "", ""))(t)
		expect.Equal(t, string(op.Service.Proxy), kept, "of %s:\ngot", body)
	}
	for _, body := range []string{`null`, `{}`, `{"Mode":"","Config":null,"Upstreams":null}`} {
		op := need.Got(decodeService([]byte(`{"Name":"p","Port":1,"Proxy":`+body+`}`), "", ""))(t)
		expect.That(t, op.Service.Proxy == nil, "%s: %s is kept, want nothing", body, op.Service.Proxy)
	}
	_, err := decodeService([]byte(`{"Name":"p","Proxy":{"Upstreams":[{"DestinationNamespace":"stage"}]}}`), "", "")
	expect.That(t, err != nil && err.Error() == `Invalid field: "Namespace" - Namespaces are a Consul Enterprise feature`, "another namespace: got %v", err)
}

//go:embed testdata/selectors.txt
var selectorsText string

// consulsSelectors are the selectors of Consul's types with their operators, as texts: by type, and by selector.
func consulsSelectors(t testing.TB) map[string]map[string]string {
	t.Helper()
	types := map[string]map[string]string{}
	var of map[string]string
	for lines := bufio.NewScanner(strings.NewReader(selectorsText)); lines.Scan(); {
		line := lines.Text()
		if line == "" || line[0] == '#' {
			continue
		}
		if name, ok := strings.CutPrefix(line, "== "); ok {
			of = map[string]string{}
			types[name] = of
			continue
		}
		selector, operators, ok := strings.Cut(line, ": ")
		need.That(t, ok && of != nil, "the line %q is no selector", line)
		of[selector] = sorted(strings.Split(operators, ", "))
	}
	return types
}

func sorted(operators []string) string {
	slices.Sort(operators)
	return strings.Join(operators, ", ")
}

// selectors returns those of one of our types.
func selectors(t testing.TB, of any) map[string]string {
	t.Helper()
	fields := need.Got(bexpr.GenerateFieldConfigurations(of))(t)
	all := map[string]string{}
	fields.Walk(func(path bexpr.FieldPath, field *bexpr.FieldConfiguration) bool {
		var operators []string
		for _, o := range field.SupportedOperations {
			operators = append(operators, o.String())
		}
		if operators != nil {
			all[path.String()] = sorted(operators)
		}
		return true
	})
	return all
}

// tried builds a filter for each operator of each selector and applies it to a value.
func tried[T any](t *testing.T, all map[string]string, value T) {
	t.Helper()
	for selector, operators := range all {
		selector = strings.ReplaceAll(selector, "<any>", "lan")
		for operator := range strings.SplitSeq(operators, ", ") {
			text := map[string]string{
				"Equal": `%s == 1`, "Not Equal": `%s != 1`, "In": `1 in %s`, "Not In": `1 not in %s`, "Matches": "%s matches `1`", "Not Matches": "%s not matches `1`",
				"Is Empty": `%s is empty`, "Is Not Empty": `%s is not empty`,
			}[operator]
			filter, err := evaluatorOf(fmt.Sprintf(text, selector), (*T)(nil))
			if need.OKf(t, err, "%s %s", selector, operator); err == nil {
				_, err = filter.Evaluate(&value)
				expect.OKf(t, err, "%s %s on a value", selector, operator)
			}
		}
	}
}

func TestFiltersNameWhatConsulsMayName(t *testing.T) {
	service := listedService{Node: "n", ID: "i", Name: "s", Proxy: &proxy{}, Tagged: map[string]listedAddress{"lan": {Address: "a", Port: 1}}, Meta: map[string]string{"lan": "1"}}
	home := place{}
	node := home.node(nil)
	health := healthOf(node, []listedCheck{{CheckID: "c"}}, service)
	theirs := consulsSelectors(t)
	check := func(name string, ours any, try func(all map[string]string)) {
		t.Run(name, func(t *testing.T) {
			want, got := theirs[name], selectors(t, ours)
			for _, selector := range slices.Sorted(maps.Keys(want)) {
				expect.Equal(t, got[selector], want[selector], "operators of %s:", selector)
			}
			for selector := range got {
				expect.That(t, want[selector] != "", "%s is a selector here, and none of Consul's", selector)
			}
			try(want)
		})
	}
	check("Node", node, func(all map[string]string) { tried(t, all, node) })
	check("NodeService", service.onNode(), func(all map[string]string) { tried(t, all, service.onNode()) })
	check("ServiceNode", service.with(node), func(all map[string]string) { tried(t, all, service.with(node)) })
	check("HealthCheck", listedCheck{}, func(all map[string]string) { tried(t, all, listedCheck{}) })
	check("CheckServiceNode", health, func(all map[string]string) { tried(t, all, health) })
	check("api.AgentService", service.onNode(), func(all map[string]string) { tried(t, all, service.onNode()) })
}

// The fuzzer's own limit bounds the parser's time.
func FuzzFilter(f *testing.F) {
	for _, seed := range []string{
		`Service.ID == w1`, "not (\"v1\" in Service.Tags or Node.Meta[\"a b\"] != `2`)", `Checks.Status matches "^c" and Checks is not empty`, `Service.Port == -0.5`,
		`Service.TaggedAddresses.lan.Port == 0x50`, `(((((((Node.Node == x)))))))`, `not not not Node.ID == "`, "Service.Meta.x matches `(a{1000}){1000}`", `"\x" in Node.Meta`, "\xff(",
	} {
		f.Add(seed)
	}
	service := listedService{ID: "w1", Tags: []string{"v1"}, Proxy: &proxy{}, Tagged: map[string]listedAddress{"lan": {Port: 80}}, Meta: map[string]string{"x": "aaaa"}}
	value := healthOf(place{}.node(nil), []listedCheck{{Status: "critical"}}, service)
	f.Fuzz(func(t *testing.T, expression string) {
		filter, err := evaluatorOf(expression, (*listedHealth)(nil))
		switch {
		case err != nil:
			checkRefusal(t, err)
			expect.That(t, strings.HasPrefix(err.Error(), "Failed to create boolean expression evaluator: "), "the error is %v", err)
		case expression != "":
			expect.OKf(t, expect.Err(filter.Evaluate(&value)), "what was accepted cannot be evaluated")
		}
	})
}

var seeds = []string{
	``, `null`, `{}`, `[]`, `{"Name":"web"}`, `{"Name":"web","Checks":[null,{"TTL":"1s"}],"Check":{}}`, `{"Name":"web","Check":{"HTTP":"h","Interval":1e9}}`,
	`{"Name":"a","ID":"b","Port":65535,"Meta":{"a":"b"},"TaggedAddresses":{"lan":{"Port":1}},"Weights":{"Passing":2},"Locality":{"Zone":"z"},"Ports":[{"Port":1,"Default":true}]}`,
	`{"Node":"n","Address":"a","Service":{"Service":"s"},"Check":{"Name":"c","Definition":{"Interval":"1s","TCP":7}},"Checks":[{"Name":"d"}]}`,
	`{"Name":"p","Port":1,"Kind":"connect-proxy","Proxy":{"destination_service_name":"a","Config":{"a_b":[1]},"Upstreams":[{"DestinationName":"d","LocalBindPort":1}],"Expose":{"Paths":[{"Path":"/"}]}},"Connect":{"Native":false}}`,
	`{"Name":"web","Checks":[{"GRPC":"h:1/s","GRPCUseTLS":true,"Interval":"1s"},{"UDP":"h:1","Interval":"1s"},{"H2PING":"h:1","H2PingUseTLS":false,"Interval":"1s"},{"AliasNode":"n","AliasService":"s"}]}`,
	`{"Node":"rollcall","ServiceID":"s","CheckID":"c"}`, `{"Status":"passing","Output":"\ud800"}`, `{"name":"ſ"}`, `{"Name":"x","Check":{"TTL":1e300}}`,
}

// checkRefusal fails unless an error is one of the two that the API has words for.
func checkRefusal(t *testing.T, err error) {
	t.Helper()
	var refused *web.Refusal
	expect.That(t, errors.As(err, &refused) && (refused.Status == 400 || refused.Status == 500) && refused.Text != "", "the error is %#v", err)
}

// checkRegistration fails if the registry could not store what was read.
func checkRegistration(t *testing.T, op registry.RegisterCatalog) {
	t.Helper()
	need.That(t, (op.Service == nil) == (op.Instance == nil), "service %v and instance %v", op.Service, op.Instance)
	if s := op.Service; s != nil {
		key := op.Instance.Key()
		expect.That(t, s.Name != "" && s.ID != "" && key == registry.NewKey(s.Name, op.Instance.InstanceID) && len(key.App) <= 255 && len(key.ID) <= 255 && utf8.ValidString(key.ID),
			"service %+v is the instance %s", s, key)
		expect.That(t, (s.Locality == nil || json.Valid(s.Locality)) && (s.Ports == nil || json.Valid(s.Ports)) && (s.Proxy == nil || json.Valid(s.Proxy)), "locality %s, ports %s and proxy %s are no JSON", s.Locality, s.Ports, s.Proxy)
		shown := serviceOf(&registry.Lease{Instance: op.Instance, Service: s}, s.Name)
		expect.OKf(t, expect.Err(json.Marshal(healthOf(listedNode{}, nil, shown))), "it cannot be shown")
	}
	for _, c := range op.Checks {
		expect.That(t, c.ID != "" && c.TTL >= 0 && (c.ReapAfter == 0 || c.ReapAfter >= 60_000) && (c.Definition == nil || json.Valid(c.Definition)), "check %+v", c)
		p := c.Probe
		expect.That(t, p == nil || p.Interval >= 1 && p.Timeout >= 0, "probe %+v", p)
		a := c.Alias
		expect.That(t, a == nil || c.Probe == nil && c.TTL == 0 && len(a.Node) <= 255 && len(a.Service) <= 255 && (a.Named || a.Service != ""), "alias check %+v of %+v", c, a)
	}
}

func FuzzDecodeService(f *testing.F) {
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		op, err := decodeService(body, "", "h")
		if err != nil {
			checkRefusal(t, err)
			return
		}
		checkRegistration(t, op)
	})
}

func FuzzDecodeRegistration(f *testing.F) {
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, _, err := decodeRegistration(body, func(string) string { return "" })
		if err != nil {
			checkRefusal(t, err)
			return
		}
		checkRegistration(t, got)
	})
}

func FuzzDecodeAct(f *testing.F) {
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if op, err := decodeCheck(body); err != nil {
			checkRefusal(t, err)
		} else {
			checkRegistration(t, op)
		}
		if _, _, err := decodeStatus(body); err != nil {
			checkRefusal(t, err)
		}
		if got, _, err := decodeDeregistration(body); err != nil {
			checkRefusal(t, err)
		} else if got.Service != "" && got.Check != "" {
			t.Errorf("both a service and a check: %+v", got)
		}
	})
}
