package eureka_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// node is a JSON value with the order of its keys.
type node struct {
	kind   string // string, number, bool, null, object, array
	text   string
	keys   []string
	values []node
}

func (n node) member(key string) (node, bool) {
	if i := slices.Index(n.keys, key); i >= 0 {
		return n.values[i], true
	}
	return node{}, false
}

func parse(t testing.TB, doc []byte) node {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.UseNumber()
	n, err := parseNode(dec)
	need.That(t, err == nil, "%v\n%s", err, doc)
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		t.Fatalf("trailing data\n%s", doc)
	}
	return n
}

func parseNode(dec *json.Decoder) (n node, err error) {
	token, err := dec.Token()
	if err != nil {
		return n, err
	}
	switch v := token.(type) {
	case string:
		return node{kind: "string", text: v}, nil
	case json.Number:
		return node{kind: "number", text: v.String()}, nil
	case bool:
		return node{kind: "bool"}, nil
	case nil:
		return node{kind: "null"}, nil
	case json.Delim:
		n.kind = map[json.Delim]string{'{': "object", '[': "array"}[v]
	}
	for dec.More() {
		if n.kind == "object" {
			key, err := dec.Token()
			if err != nil {
				return n, err
			}
			n.keys = append(n.keys, key.(string))
		}
		value, err := parseNode(dec)
		if err != nil {
			return n, err
		}
		n.values = append(n.values, value)
	}
	_, err = dec.Token()
	return n, err
}

// field is a row of the table of an object's keys: in this order, no others, of this type.
type field struct {
	name     string
	required bool
	kind     string
	check    func(*testing.T, string, node) // nil: nothing beyond the type
}

const must, may = true, false

var fullInstance = []field{
	{"instanceId", may, "string", nil}, {"hostName", must, "string", nil}, {"app", must, "string", isUpper},
	{"ipAddr", must, "string", nil}, {"sid", may, "string", nil}, {"status", must, "string", isStatus},
	{"overriddenStatus", must, "string", isStatus}, {"port", must, "object", isPort}, {"securePort", must, "object", isPort},
	{"countryId", must, "number", nil}, {"dataCenterInfo", must, "object", isDataCenter}, {"leaseInfo", must, "object", isLeaseInfo},
	{"metadata", must, "object", isMetadata}, {"appGroupName", may, "string", isUpper}, {"homePageUrl", may, "string", nil},
	{"statusPageUrl", may, "string", nil}, {"healthCheckUrl", may, "string", nil}, {"secureHealthCheckUrl", may, "string", nil},
	{"vipAddress", may, "string", nil}, {"secureVipAddress", may, "string", nil},
	{"isCoordinatingDiscoveryServer", must, "string", isBool}, {"lastUpdatedTimestamp", must, "string", isDecimal},
	{"lastDirtyTimestamp", must, "string", isDecimal}, {"actionType", may, "string", isAction}, {"asgName", may, "string", nil},
}

var compactInstance = []field{
	{"instanceId", may, "string", nil}, {"app", must, "string", isUpper}, {"ipAddr", must, "string", nil},
	{"vipAddress", may, "string", nil}, {"secureVipAddress", may, "string", nil}, {"dataCenterInfo", must, "object", isCompactDataCenter},
	{"hostName", must, "string", nil}, {"status", must, "string", isStatus}, {"lastUpdatedTimestamp", must, "number", nil},
	{"actionType", may, "string", isAction}, {"asgName", may, "string", nil}, {"port", must, "object", isPort}, {"securePort", must, "object", isPort},
}

func conforms(t *testing.T, where string, n node, fields []field) {
	t.Helper()
	var order []string
	for _, f := range fields {
		value, ok := n.member(f.name)
		if !ok {
			expect.That(t, !f.required, "%s lacks %s", where, f.name)
			continue
		}
		order = append(order, f.name)
		expect.That(t, value.kind == f.kind, "%s.%s is a %s, want a %s", where, f.name, value.kind, f.kind)
		if f.check != nil {
			f.check(t, where+"."+f.name, value)
		}
	}
	expect.Slice(t, n.keys, order, "%s has the keys", where)
}

func oneOf(words ...string) func(*testing.T, string, node) {
	return func(t *testing.T, where string, n node) {
		expect.That(t, slices.Contains(words, n.text), "%s is %q, want one of %q", where, n.text, words)
	}
}

var (
	isStatus = oneOf("UP", "DOWN", "STARTING", "OUT_OF_SERVICE", "UNKNOWN")
	isAction = oneOf("ADDED", "MODIFIED", "DELETED")
	isBool   = oneOf("true", "false")
)

func isUpper(t *testing.T, where string, n node) {
	expect.That(t, n.text != "" && n.text == strings.ToUpper(n.text), "%s is %q, want upper case", where, n.text)
}

func isDecimal(t *testing.T, where string, n node) {
	expect.That(t, n.text != "" && strings.Trim(n.text, "0123456789") == "", "%s is %q, want decimal digits", where, n.text)
}

func isPort(t *testing.T, where string, n node) {
	conforms(t, where, n, []field{{"$", must, "number", isDecimal}, {"@enabled", must, "string", isBool}})
}

func isLeaseInfo(t *testing.T, where string, n node) {
	conforms(t, where, n, []field{
		{"renewalIntervalInSecs", must, "number", isDecimal}, {"durationInSecs", must, "number", isDecimal},
		{"registrationTimestamp", must, "number", isDecimal}, {"lastRenewalTimestamp", must, "number", isDecimal},
		{"evictionTimestamp", must, "number", isDecimal}, {"serviceUpTimestamp", must, "number", isDecimal},
	})
}

func isMap(t *testing.T, where string, n node) {
	for i, v := range n.values {
		expect.That(t, v.kind == "string", "%s.%s is a %s, want a string", where, n.keys[i], v.kind)
	}
}

// isMetadata wants the mark of an empty map exactly where the map is empty.
func isMetadata(t *testing.T, where string, n node) {
	isMap(t, where, n)
	class, ok := n.member("@class")
	expect.That(t, len(n.keys) != 0 && (!ok || len(n.keys) <= 1 && class.text == "java.util.Collections$EmptyMap"), "%s has the keys %v; an empty map has its mark alone, another none", where, n.keys)
}

func isDataCenter(t *testing.T, where string, n node) {
	if name, _ := n.member("name"); name.text == "Amazon" {
		conforms(t, where, n, []field{{"@class", must, "string", oneOf("com.netflix.appinfo.AmazonInfo")},
			{"name", must, "string", nil}, {"metadata", must, "object", isMap}})
		return
	}
	conforms(t, where, n, []field{{"@class", must, "string", oneOf("com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo")},
		{"name", must, "string", oneOf("MyOwn", "Netflix")}})
}

func isCompactDataCenter(t *testing.T, where string, n node) {
	isDataCenter(t, where, n)
	metadata, _ := n.member("metadata")
	for _, key := range metadata.keys {
		expect.That(t, slices.Contains([]string{"instance-id", "public-ipv4", "public-hostname", "local-ipv4", "availability-zone"}, key),
			"%s.metadata has %s, which the compact form leaves out", where, key)
	}
}

// eachIs makes a check of an array's elements.
func eachIs(fields []field) func(*testing.T, string, node) {
	return func(t *testing.T, where string, n node) {
		for _, v := range n.values {
			conforms(t, where+"[]", v, fields)
		}
	}
}

func applicationSchema(instance []field) []field {
	return []field{{"name", must, "string", isUpper}, {"instance", must, "array", eachIs(instance)}}
}

func applicationsSchema(compact bool) []field {
	version := []field{{"versions__delta", must, "string", nil}, {"apps__hashcode", must, "string", nil}}
	list := func(instance []field) field {
		return field{"application", must, "array", eachIs(applicationSchema(instance))}
	}
	if compact {
		return append([]field{list(compactInstance)}, version...)
	}
	return append(version, list(fullInstance))
}

// TestDocumentsHaveExactlyTheProtocolsKeys writes what real clients registered, and odd instances,
// alone and in all lists. Strict clients refuse a document for one key too many, others for one too few.
func TestDocumentsHaveExactlyTheProtocolsKeys(t *testing.T) {
	amazonWithout := orders1()
	amazonWithout.Instance.DataCenter = registry.DataCenter{Name: registry.Amazon}
	netflix := orders1()
	netflix.Instance.DataCenter = registry.DataCenter{Name: registry.Netflix, Metadata: []registry.Pair{{Key: "stray", Value: "x"}}}
	everything := billing()
	everything.Instance.SID, everything.Instance.SecureHealthURL = "s", "https://h/"
	leases := []*registry.Lease{orders1(), orders2(), orders3(), billing(), billingGone(), amazonWithout, netflix, everything}
	for file, want := range registered() {
		i := need.Got(eureka.DecodeRegistration(fixture(t, file), formatOf(file), want.App))(t)
		leases = append(leases, &registry.Lease{Instance: i})
	}
	for _, l := range leases {
		for name, f := range map[string]eureka.Format{"full": full, "compact": compact} {
			schema := fullInstance
			if f.Compact {
				schema = compactInstance
			}
			where := name + " " + l.Key().String()
			conforms(t, where, parse(t, eureka.AppendInstance(nil, f, l, l.RenewedAt)), schema)
			one := slices.Values([]*registry.Lease{l})
			conforms(t, where+" applications", root(t, eureka.AppendVIP(nil, f, one), "applications"), applicationsSchema(f.Compact))
			conforms(t, where+" application", root(t, eureka.AppendApplication(nil, f, l.Instance.App, one), "application"), applicationSchema(schema))
		}
	}
	none := eureka.AppendDelta(nil, full, registry.Delta{})
	conforms(t, "empty delta", root(t, none, "applications"), applicationsSchema(false))
	none = eureka.AppendDelta(nil, compact, registry.Delta{})
	conforms(t, "empty compact delta", root(t, none, "applications"), applicationsSchema(true))
}

// root returns the value under the only key of a document.
func root(t *testing.T, doc []byte, key string) node {
	t.Helper()
	n := parse(t, doc)
	need.That(t, len(n.keys) == 1 && n.keys[0] == key, "the root keys are %v, want %s", n.keys, key)
	return n.values[0]
}

// TestBatchDocumentsHaveExactlyTheProtocolsKeys: for one key too many a peer drops the whole batch.
func TestBatchDocumentsHaveExactlyTheProtocolsKeys(t *testing.T) {
	item := []field{{"appName", must, "string", isUpper}, {"id", must, "string", nil}, {"lastDirtyTimestamp", may, "number", nil},
		{"overriddenStatus", may, "string", isStatus}, {"status", may, "string", isStatus},
		{"instanceInfo", may, "object", func(t *testing.T, where string, n node) { conforms(t, where, n, fullInstance) }},
		{"action", must, "string", oneOf("Register", "Heartbeat", "Cancel", "StatusUpdate", "DeleteStatusOverride")}}
	eachIs(item)(t, "item", root(t, eureka.AppendBatch(nil, batchItems()), "replicationList"))
	response := []field{{"statusCode", must, "number", isDecimal},
		{"responseEntity", may, "object", func(t *testing.T, where string, n node) { conforms(t, where, n, fullInstance) }}}
	eachIs(response)(t, "result", root(t, eureka.AppendBatchResponse(nil, batchResults()), "responseList"))
	for _, doc := range [][]byte{eureka.AppendBatch(nil, nil), eureka.AppendBatchResponse(nil, nil)} {
		n := parse(t, doc)
		expect.That(t, len(n.values) == 1 && n.values[0].kind == "array", "an empty batch is %s, want an empty array", doc)
	}
}

func TestDocumentsEscapeTextsThatCannotStandForThemselves(t *testing.T) {
	l := orders1()
	l.Instance.VIP = "a\x00\x1f\xff\u2028\"\\<&>'\r\n\t\ufffe"
	l.Instance.Metadata = []registry.Pair{{Key: "", Value: "no name"}, {Key: "a\x01-:.é\U0001F600", Value: "v"}, {Key: "-x", Value: ""}}
	wantJSON := `"vipAddress":"a\u0000\u001f\ufffd` + "\u2028" + `\"\\<&>'\r\n\t` + "\ufffe" + `"`
	doc := eureka.AppendInstance(nil, full, l, l.RenewedAt)
	expect.That(t, strings.Contains(string(doc), wantJSON) && json.Valid(doc), "JSON %s lacks %s", doc, wantJSON)
	doc = eureka.AppendInstance(nil, inXML, l, l.RenewedAt)
	for _, want := range []string{
		"<vipAddress>a\ufffd\ufffd\ufffd\u2028&quot;\\&lt;&amp;&gt;&apos;&#xd;\n\t\ufffd</vipAddress>",
		"<metadata><a_.0001-_.003a.é_.d83d_.de00>v</a_.0001-_.003a.é_.d83d_.de00><_.002dx></_.002dx></metadata>",
	} {
		expect.That(t, strings.Contains(string(doc), want), "XML %s lacks %s", doc, want)
	}
}

func TestDocumentsShowAnUnknownHostAsNullInJSONAndNotInXML(t *testing.T) {
	l := orders1()
	l.Instance.HostName, l.Instance.IPAddr = "", ""
	for f, want := range map[eureka.Format]string{full: `"hostName":null,"app":"ORDERS","ipAddr":null,`, compact: `"ipAddr":null,`} {
		got := string(eureka.AppendInstance(nil, f, l, l.RenewedAt))
		expect.That(t, strings.Contains(got, want), "%s lacks %s", got, want)
	}
	if got := string(eureka.AppendInstance(nil, inXML, l, l.RenewedAt)); strings.Contains(got, "<hostName") || strings.Contains(got, "<ipAddr") {
		t.Errorf("XML has an empty element: %s", got)
	}
}

func TestOverridesAreShownOncePerID(t *testing.T) {
	other := orders2()
	other.Instance.App, other.Instance.Overridden = "OTHER", registry.Down
	got := string(eureka.AppendStatusOverrides(nil, slices.Values([]*registry.Lease{orders1(), orders2(), other})))
	expect.Equal(t, got, `{"orders-2.example.internal:orders:8080":"OUT_OF_SERVICE"}`, "got")
}

func TestAppsHashCodeCountsByStatusInAlphabeticalOrder(t *testing.T) {
	var leases []*registry.Lease
	for status, count := range map[registry.Status]int{registry.Up: 10, registry.OutOfService: 2, registry.Down: 1, registry.Starting: 3, registry.Unknown: 1} {
		for range count {
			l := orders1()
			l.Instance.Status = status
			leases = append(leases, l)
		}
	}
	doc := root(t, eureka.AppendVIP(nil, full, slices.Values(leases)), "applications")
	hash, _ := doc.member("apps__hashcode")
	expect.That(t, hash.text == "DOWN_1_OUT_OF_SERVICE_2_STARTING_3_UNKNOWN_1_UP_10_", "got %s", hash.text)
}
