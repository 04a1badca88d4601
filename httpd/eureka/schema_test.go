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
	check    func(*testing.T, string, node) // nil if only the type matters
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
	isStatus = oneOf(registry.StatusWords()...)
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

// TestDocumentsHaveExactlyTheProtocolsKeys writes what real clients registered, and odd instances, alone and in all
// lists. Strict clients refuse a document for one key too many, others for one too few.
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

// TestBatchDocumentsHaveExactlyTheProtocolsKeys: a peer drops the whole batch for one key too many.
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
	got := string(eureka.AppendInstance(nil, inXML, l, l.RenewedAt))
	expect.That(t, !strings.Contains(got, "<hostName") && !strings.Contains(got, "<ipAddr"), "XML has an empty element: %s", got)
}

func TestOverridesAreShownOncePerID(t *testing.T) {
	other := orders2()
	other.Instance.App, other.Instance.Overridden = "OTHER", registry.Down
	got := string(eureka.AppendStatusOverrides(nil, slices.Values([]*registry.Lease{orders1(), orders2(), other})))
	expect.Equal(t, got, `{"orders-2.example.internal:orders:8080":"OUT_OF_SERVICE"}`, "got")
}

var (
	full    = eureka.Format{}
	compact = eureka.Format{Compact: true}
	inXML   = eureka.Format{XML: true}
)

// TestDocumentsEqualTheReferenceDocuments compares with documents that upstream's own codecs, and
// the JavaScript and Go clients, have read: same tokens, in the same order, of the same types.
func TestDocumentsEqualTheReferenceDocuments(t *testing.T) {
	apps := []*registry.Lease{orders1(), orders2(), billing()}
	after := []*registry.Lease{orders1(), orders2Back(), orders3()}
	const hash, hashAfter = "OUT_OF_SERVICE_1_UP_2_", "STARTING_1_UP_2_"
	delta := registry.Delta{Leases: []*registry.Lease{orders2Back(), orders3(), billingGone()}, HashCode: hashAfter, Version: 7}
	healthy := true
	status := &eureka.StatusInfo{
		General: []registry.Pair{
			{Key: "environment", Value: "test"}, {Key: "num-of-cpus", Value: "4"}, {Key: "total-avail-memory", Value: "388mb"},
			{Key: "current-memory-usage", Value: "112mb (28%)"}, {Key: "server-uptime", Value: "1 day 03:07"},
		},
		RegisteredReplicas: "http://eureka-b.example.internal:8761/eureka/",
		AvailableReplicas:  "http://eureka-b.example.internal:8761/eureka/,",
		Instance:           server(),
		Healthy:            &healthy,
	}
	statusWithoutMinimum := *status
	statusWithoutMinimum.Healthy = nil
	all := func(f eureka.Format) []byte {
		return eureka.AppendApplications(nil, f, eureka.FullVersion, hash, slices.Values(apps))
	}
	none := slices.Values([]*registry.Lease(nil))
	tests := []struct {
		file string
		got  []byte
	}{
		{"apps.json", all(full)},
		{"apps.xml", all(inXML)},
		{"apps-compact.json", all(compact)},
		{"apps-compact.xml", all(eureka.Format{XML: true, Compact: true})},
		{"apps-empty.json", eureka.AppendApplications(nil, full, eureka.FullVersion, "", none)},
		{"apps-empty.xml", eureka.AppendApplications(nil, inXML, eureka.FullVersion, "", none)},
		{"apps-after-delta.json", eureka.AppendApplications(nil, full, eureka.FullVersion, hashAfter, slices.Values(after))},
		{"delta.json", eureka.AppendDelta(nil, full, delta)},
		{"delta.xml", eureka.AppendDelta(nil, inXML, delta)},
		{"delta-empty.json", eureka.AppendDelta(nil, full, registry.Delta{HashCode: hashAfter, Version: 8})},
		{"application.json", eureka.AppendApplication(nil, full, "ORDERS", slices.Values(apps[:2]))},
		{"application.xml", eureka.AppendApplication(nil, inXML, "ORDERS", slices.Values(apps[:2]))},
		{"instance.json", eureka.AppendInstanceDocument(nil, full, apps[0], apps[0].RenewedAt)},
		{"instance.xml", eureka.AppendInstanceDocument(nil, inXML, apps[0], apps[0].RenewedAt)},
		{"vip.json", eureka.AppendVIP(nil, full, slices.Values(apps[2:]))},
		{"vip.xml", eureka.AppendVIP(nil, inXML, slices.Values(apps[2:]))},
		{"heartbeat-conflict.json", eureka.AppendInstanceDocument(nil, full, billingNewer(), billingNewer().RenewedAt)},
		{"batch-request.json", eureka.AppendBatch(nil, batchItems())},
		{"batch-response.json", eureka.AppendBatchResponse(nil, batchResults())},
		{"status.json", eureka.AppendStatusInfo(nil, full, status)},
		{"status.xml", eureka.AppendStatusInfo(nil, inXML, &statusWithoutMinimum)},
		{"statusoverrides.json", eureka.AppendStatusOverrides(nil, slices.Values(apps))},
	}
	for _, tt := range tests {
		t.Run(tt.file, func(t *testing.T) {
			expect.Equal(t, tokens(t, tt.got), tokens(t, fixture(t, tt.file)), "got")
		})
	}
}

func batchItems() []eureka.Item {
	item := func(action eureka.ItemAction, l *registry.Lease, status registry.Status) eureka.Item {
		return eureka.Item{Action: action, App: l.Instance.App, ID: l.Instance.ID(), LastDirty: l.Instance.LastDirty,
			Overridden: l.Instance.Overridden, Status: status, HasStatus: true}
	}
	register := item(eureka.Register, orders1(), registry.Up)
	register.Lease = orders1()
	return []eureka.Item{
		register,
		item(eureka.Heartbeat, orders2(), registry.OutOfService),
		item(eureka.Heartbeat, billing(), registry.Up),
		{Action: eureka.Heartbeat, App: "CATALOG", ID: "catalog-1:8080", LastDirty: 1767225599800, Status: registry.Up, HasStatus: true},
		item(eureka.StatusUpdate, orders1(), registry.OutOfService),
		item(eureka.DeleteStatusOverride, orders1(), registry.Unknown),
		{Action: eureka.Cancel, App: "LEDGER", ID: "ledger-1.example.internal"},
	}
}

func batchResults() []eureka.ItemResult {
	conflict := billingNewer()
	return []eureka.ItemResult{{Status: 200}, {Status: 200}, {Status: 409, Lease: conflict, Renewed: conflict.RenewedAt},
		{Status: 404}, {Status: 200}, {Status: 200}, {Status: 404}}
}

func TestStatusDocumentHasHealthyOnlyWithAMinimumOfPeers(t *testing.T) {
	healthy := false
	with := eureka.StatusInfo{Instance: server(), Healthy: &healthy}
	got := string(eureka.AppendStatusInfo(nil, inXML, &with))
	expect.That(t, strings.HasSuffix(got, `<isHeathly>false</isHeathly></com.netflix.eureka.util.StatusInfo>`), "XML with a minimum of peers: %s", got)
	without := eureka.StatusInfo{Instance: server()}
	got = string(eureka.AppendStatusInfo(nil, full, &without))
	expect.That(t, !strings.Contains(got, `"healthy"`), "JSON without a minimum of peers: %s", got)
}

// TestDocumentMadeOfChunksIsTheSameAsAWhole proves that a document may be assembled from cached parts.
func TestDocumentMadeOfChunksIsTheSameAsAWhole(t *testing.T) {
	leases := []*registry.Lease{orders1(), orders2(), billing()}
	for _, f := range []eureka.Format{full, compact, inXML, {XML: true, Compact: true}, {XML: true, V1: true}} {
		part := func(l *registry.Lease) []byte { return eureka.AppendInstance(nil, f, l, l.RenewedAt) }
		doc := eureka.AppendApplicationsHead(nil, f, "1", "H_1_")
		doc = eureka.AppendApplicationHead(doc, f, "ORDERS")
		doc = append(doc, part(leases[0])...)
		doc = append(eureka.AppendSeparator(doc, f), part(leases[1])...)
		doc = eureka.AppendSeparator(eureka.AppendApplicationTail(doc, f), f)
		doc = append(eureka.AppendApplicationHead(doc, f, "BILLING"), part(leases[2])...)
		doc = eureka.AppendApplicationsTail(eureka.AppendApplicationTail(doc, f), f, "1", "H_1_")
		want := eureka.AppendApplications(nil, f, "1", "H_1_", slices.Values(leases))
		expect.That(t, string(doc) == string(want), "%+v: got\n%s\nwant\n%s", f, doc, want)
	}
}

func TestDocumentOfVersion1HasThreeStatusesInXML(t *testing.T) {
	tests := []struct {
		format eureka.Format
		status registry.Status
		want   string
	}{
		{eureka.Format{XML: true, V1: true}, registry.Up, "<status>UP</status><overriddenstatus>OUT_OF_SERVICE<"},
		{eureka.Format{XML: true, V1: true}, registry.Starting, "<status>STARTING</status>"},
		{eureka.Format{XML: true, V1: true}, registry.Down, "<status>DOWN</status>"},
		{eureka.Format{XML: true, V1: true}, registry.OutOfService, "<status>DOWN</status><overriddenstatus>OUT_OF_SERVICE<"},
		{eureka.Format{XML: true, V1: true}, registry.Unknown, "<status>DOWN</status>"},
		{eureka.Format{XML: true, V1: true, Compact: true}, registry.OutOfService, "<status>DOWN</status>"},
		{inXML, registry.OutOfService, "<status>OUT_OF_SERVICE</status>"},
		{eureka.Format{V1: true}, registry.OutOfService, `"status":"OUT_OF_SERVICE"`},
	}
	for _, tt := range tests {
		l := orders2()
		l.Instance.Status = tt.status
		got := string(eureka.AppendInstance(nil, tt.format, l, l.RenewedAt))
		expect.That(t, strings.Contains(got, tt.want), "%+v %v: %s lacks %s", tt.format, tt.status, got, tt.want)
	}
}

func TestLeaseInfoOfAnInstanceWithoutALeaseHasTheDefaults(t *testing.T) {
	l := orders1()
	l.Interval, l.Duration = 0, 0
	got := string(eureka.AppendInstance(nil, full, l, l.RenewedAt))
	expect.That(t, strings.Contains(got, `"renewalIntervalInSecs":30,"durationInSecs":90,`), "got %s", got)
}

// TestLeaseInfoShowsTheFieldsOfTheLease covers behaviour S2-03.
func TestLeaseInfoShowsTheFieldsOfTheLease(t *testing.T) {
	l := orders1()
	l.Interval, l.Duration, l.RegisteredAt, l.EvictedAt, l.ServiceUpAt = 1, 2, 3, 5, 6
	renewed := registry.Stamp{Lease: 99, Wall: 4}
	wantJSON := `"leaseInfo":{"renewalIntervalInSecs":1,"durationInSecs":2,"registrationTimestamp":3,` +
		`"lastRenewalTimestamp":4,"evictionTimestamp":5,"serviceUpTimestamp":6}`
	got := string(eureka.AppendInstance(nil, full, l, renewed))
	expect.That(t, strings.Contains(got, wantJSON), "JSON %s lacks %s", got, wantJSON)
	wantXML := "<leaseInfo><renewalIntervalInSecs>1</renewalIntervalInSecs><durationInSecs>2</durationInSecs>" +
		"<registrationTimestamp>3</registrationTimestamp><lastRenewalTimestamp>4</lastRenewalTimestamp>" +
		"<evictionTimestamp>5</evictionTimestamp><serviceUpTimestamp>6</serviceUpTimestamp></leaseInfo>"
	got = string(eureka.AppendInstance(nil, inXML, l, renewed))
	expect.That(t, strings.Contains(got, wantXML), "XML %s lacks %s", got, wantXML)
}

func TestDocumentsAreAppendedWithoutAllocation(t *testing.T) {
	dst := make([]byte, 0, 1<<16)
	l, odd := billing(), orders2()
	odd.Instance.Metadata = []registry.Pair{{Key: "ключ 9", Value: "\x00\xff \u20ac <&>'"}}
	for _, f := range []eureka.Format{full, compact, inXML, {XML: true, Compact: true}} {
		allocs := testing.AllocsPerRun(20, func() {
			dst = eureka.AppendInstanceDocument(dst[:0], f, l, l.RenewedAt)
			dst = eureka.AppendInstance(dst, f, odd, odd.RenewedAt)
			dst = eureka.AppendApplicationsHead(dst, f, "1", "UP_1_")
			dst = eureka.AppendApplicationHead(dst, f, "BILLING")
		})
		expect.That(t, allocs == 0, "%+v: %v allocations", f, allocs)
	}
}

// decoded is upstream's full codec's reading of a body (testdata/decoder-matrix.json).
type decoded struct {
	ID, App, HostName, Status, OverriddenStatus string
	Port, SecurePort                            uint16
	PortEnabled, SecurePortEnabled              bool
	DataCenter, VIPAddress                      *string
	Metadata                                    map[string]string
	LastDirtyTimestamp                          any // a number, or a text that stands for the time of decoding
	LeaseDuration, LeaseRenewal                 *int32
	CountryID                                   int32
}

type variant struct {
	Name, Body, Server string
	FullCodec          json.RawMessage
}

func matrix(t testing.TB) []variant {
	t.Helper()
	var m struct{ Variants []variant }
	need.OK(t, json.Unmarshal(fixture(t, "decoder-matrix.json"), &m))
	need.That(t, len(m.Variants) == 53, "the matrix has %d variants, not 53", len(m.Variants))
	return m.Variants
}

// deviations are the rows where we deliberately read a body differently from upstream's full codec.
var deviations = map[string]func(*decoded){
	"status-lowercase":              func(d *decoded) { d.Status = "UP" },
	"metadata-non-string-values":    func(d *decoded) { delete(d.Metadata, "z") }, // a null counts as missing
	"port-enabled-uppercase-string": func(d *decoded) { d.PortEnabled = true },
}

func TestRegistrationSpellingsAreTreatedAsTheMatrixSays(t *testing.T) {
	for _, v := range matrix(t) {
		t.Run(v.Name, func(t *testing.T) {
			i, err := eureka.DecodeRegistration([]byte(v.Body), eureka.Format{}, "ORDERS")
			status, rest, _ := strings.Cut(v.Server, " ")
			if status == "400" {
				text, _, _ := strings.Cut(rest, " (")
				checkRefused(t, err, text)
				return
			}
			need.That(t, err == nil, "refused with %q, want %s", err, v.Server)
			checkLikeUpstream(t, i, v)
		})
	}
}

func checkRefused(t *testing.T, err error, text string) {
	t.Helper()
	var refused *eureka.ValidationError
	switch {
	case text == "cannot parse request body" && errors.Is(err, eureka.ErrUnparsable):
	case errors.As(err, &refused) && refused.Text == text:
	default:
		t.Errorf("got error %v, want %q", err, text)
	}
}

// checkLikeUpstream compares with how upstream's full codec reads the body, if it can.
func checkLikeUpstream(t *testing.T, i *registry.Instance, v variant) {
	t.Helper()
	if string(v.FullCodec) == `"rejected"` {
		checkAccepted(t, i, v.Name)
		return
	}
	var want decoded
	need.OK(t, json.Unmarshal(v.FullCodec, &want))
	if deviate := deviations[v.Name]; deviate != nil {
		deviate(&want)
	}
	check(t, "id", i.ID(), want.ID)
	check(t, "app", i.App, want.App)
	check(t, "hostName", i.HostName, want.HostName)
	check(t, "status", i.Status.String(), want.Status)
	check(t, "overriddenStatus", i.Overridden.String(), want.OverriddenStatus)
	check(t, "port", i.Port, registry.Port{Number: want.Port, Enabled: want.PortEnabled})
	check(t, "securePort", i.SecurePort, registry.Port{Number: want.SecurePort, Enabled: want.SecurePortEnabled})
	check(t, "dataCenterInfo", i.DataCenter.Name, *want.DataCenter)
	check(t, "countryId", i.CountryID, want.CountryID)
	check(t, "metadata entries", len(i.Metadata), len(want.Metadata))
	for key, value := range want.Metadata {
		check(t, "metadata "+key, i.Meta(key), value)
	}
	if want.VIPAddress != nil {
		check(t, "vipAddress", i.VIP, *want.VIPAddress)
	}
	dirty, _ := want.LastDirtyTimestamp.(float64) // we read the time of decoding as "not given"
	check(t, "lastDirtyTimestamp", i.LastDirty, int64(dirty))
	interval, duration, _ := registry.ClampLease(i.RenewalInterval, i.Duration)
	if want.LeaseDuration != nil {
		check(t, "durationInSecs", duration, *want.LeaseDuration)
		check(t, "renewalIntervalInSecs", interval, *want.LeaseRenewal)
	}
}

// checkAccepted checks what the matrix says in words about a body that upstream refuses.
func checkAccepted(t *testing.T, i *registry.Instance, name string) {
	t.Helper()
	switch name {
	case "port-plain-number", "port-extra-key":
		check(t, "port", i.Port, registry.Port{Number: 8080, Enabled: true})
	case "dc-without-class":
		check(t, "dataCenterInfo", i.DataCenter.Name, registry.MyOwn)
	case "dc-amazon-without-metadata":
		check(t, "instance-id, which the server adds", i.DataCenter.Value("instance-id"), "i1")
		check(t, "entries of the data center", len(i.DataCenter.Metadata), 1)
	case "dc-myown-with-metadata":
		check(t, "entries of the data center", len(i.DataCenter.Metadata), 0)
	case "unknown-object-field", "unknown-array-field":
		check(t, "vipAddress after the unknown field", i.VIP, "v")
	default:
		t.Errorf("no check for a body that upstream refuses; decoded to %+v", i)
	}
}

func check[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	expect.Equal(t, got, want, "%s: got", what)
}
