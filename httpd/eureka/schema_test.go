package eureka_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

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
