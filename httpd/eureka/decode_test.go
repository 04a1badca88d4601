package eureka_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func registerJS(id, host, ip, vip string) *registry.Instance {
	return &registry.Instance{InstanceID: id, HostName: host, App: "CATALOG", IPAddr: ip, Status: registry.Up,
		Port: registry.Port{Number: 8080, Enabled: true}, SecurePort: registry.Port{Number: 7002}, CountryID: 1,
		DataCenter: registry.DataCenter{Name: registry.MyOwn}, VIP: vip}
}

// registered returns the instances that the clients' registrations in testdata describe.
func registered() map[string]*registry.Instance {
	netflix := orders1().Instance
	netflix.Status = registry.Starting
	spring := &registry.Instance{InstanceID: "inventory-7c9f:inventory:8082", HostName: "inventory-7c9f.example.internal",
		App: "INVENTORY", IPAddr: "10.0.0.41", Status: registry.Up, Port: registry.Port{Number: 8082, Enabled: true},
		SecurePort: registry.Port{Number: 443}, CountryID: 1, DataCenter: registry.DataCenter{Name: registry.MyOwn},
		RenewalInterval: 30, Duration: 90, Metadata: []registry.Pair{{Key: "management.port", Value: "8082"}},
		HomePageURL:    "http://inventory-7c9f.example.internal:8082/",
		StatusPageURL:  "http://inventory-7c9f.example.internal:8082/actuator/info",
		HealthCheckURL: "http://inventory-7c9f.example.internal:8082/actuator/health",
		VIP:            "inventory", SecureVIP: "inventory", LastDirty: 1767225599000}
	js := registerJS("catalog-1:8080", "catalog-1.example.internal", "10.0.0.31", "catalog")
	js.StatusPageURL = "http://catalog-1.example.internal:8080/info"
	fargo := &registry.Instance{HostName: "ledger-1.example.internal", App: "LEDGER", IPAddr: "10.0.0.51",
		Status: registry.Up, Port: registry.Port{Number: 9090, Enabled: true}, DataCenter: registry.DataCenter{Name: registry.MyOwn},
		RenewalInterval: 30, Duration: 90, Metadata: []registry.Pair{{Key: "zone", Value: "zone-b"}}, VIP: "ledger", SecureVIP: "ledger"}
	return map[string]*registry.Instance{
		"register-netflix.json":          netflix,
		"register-netflix.xml":           netflix,
		"register-netflix-amazon.json":   billing().Instance,
		"register-spring.json":           spring,
		"register-eureka-js.json":        js,
		"register-eureka-js-legacy.json": registerJS("", "catalog-2.example.internal", "10.0.0.32", "catalog"),
		"register-fargo.json":            fargo,
		"register-fargo.xml":             fargo,
	}
}

func formatOf(file string) eureka.Format { return eureka.Format{XML: strings.HasSuffix(file, ".xml")} }

func TestRegistrationsOfEveryClientAreRead(t *testing.T) {
	for file, want := range registered() {
		t.Run(file, func(t *testing.T) {
			expect.Deep(t, need.Got(eureka.DecodeRegistration(fixture(t, file), formatOf(file), strings.ToLower(want.App)))(t), want, "got")
		})
	}
}

// TestInstancesReadTheSameAsTheyWereWritten covers every field of an instance, in both formats.
func TestInstancesReadTheSameAsTheyWereWritten(t *testing.T) {
	rich := billing()
	rich.Instance.SID, rich.Instance.SecureHealthURL, rich.Instance.CountryID = "s1", "https://x/?a=1&b=<2>", -7
	rich.Instance.Overridden, rich.Instance.Status = registry.Down, registry.OutOfService
	rich.Instance.InstanceID = "test#1.[3.?]! \u00e9\u20ac\U0001F600"
	rich.EvictedAt = 12
	rich.Instance.Metadata = []registry.Pair{{Key: "version", Value: "1.10"}, {Key: "empty", Value: ""}, {Key: "a b", Value: " x\r\n\ty "},
		{Key: "9x", Value: "'\"&<>\\/"}, {Key: "_$_.", Value: "_.0041"}, {Key: "xml:lang", Value: "\u2028"}, {Key: "日本\U0001F600Ω", Value: "\U0001F600"}}
	for _, l := range []*registry.Lease{orders1(), orders2(), billing(), server(), rich} {
		for _, f := range []eureka.Format{full, inXML} {
			doc := eureka.AppendInstanceDocument(nil, f, l, l.RenewedAt)
			got, err := eureka.DecodeInstance(doc, f)
			need.That(t, err == nil, "%v\n%s", err, doc)
			expect.That(t, reflect.DeepEqual(got, l), "%s\nread as %+v %+v\nnot as  %+v %+v", doc, got, got.Instance, l, l.Instance)
		}
	}
}

const minimal = `"instanceId":"i1","hostName":"h","app":"orders","ipAddr":"1.2.3.4","dataCenterInfo":{"name":"MyOwn"}`

// with returns a valid registration with additional members.
func with(members string) string { return `{"instance":{` + minimal + `,` + members + `}}` }

// withXML returns a valid registration with additional elements.
func withXML(elements string) string {
	return `<instance><instanceId>i1</instanceId><hostName>h</hostName><app>orders</app><ipAddr>1.2.3.4</ipAddr>` +
		`<dataCenterInfo><name>MyOwn</name></dataCenterInfo>` + elements + `</instance>`
}

func decode(body string) (*registry.Instance, error) {
	return eureka.DecodeRegistration([]byte(body), eureka.Format{XML: strings.HasPrefix(strings.TrimPrefix(body, "\uFEFF"), "<")}, "ORDERS")
}

// TestRegistrationsAreReadTolerantly covers the spellings that the matrix lacks.
func TestRegistrationsAreReadTolerantly(t *testing.T) {
	meta := func(pairs ...string) func(*registry.Instance) any {
		return func(i *registry.Instance) any {
			var got []string
			for _, p := range i.Metadata {
				got = append(got, p.Key+"="+p.Value)
			}
			return slices.Equal(got, pairs)
		}
	}
	port := func(i *registry.Instance) any { return i.Port }
	securePort := func(i *registry.Instance) any { return i.SecurePort }
	lease := func(i *registry.Instance) any { return [2]int32{i.RenewalInterval, i.Duration} }
	tests := []struct {
		name, body string
		got        func(*registry.Instance) any
		want       any
	}{
		{"text of metadata stays text", with(`"metadata":{"v":"1.10","n":1.10,"e":1E2,"b":false}`), meta("v=1.10", "n=1.10", "e=1E2", "b=false"), true},
		{"text of XML metadata stays text", withXML(`<metadata><v>1.10</v><b>TRUE</b></metadata>`), meta("v=1.10", "b=TRUE"), true},
		{"mark of an empty map as class", with(`"metadata":{"class":"java.util.Collections$EmptyMap"}`), meta(), true},
		{"class with another value is an entry", with(`"metadata":{"class":"c"}`), meta("class=c"), true},
		{"class beside another entry is an entry", with(`"metadata":{"class":"java.util.Collections$EmptyMap","k":"v"}`), meta("class=java.util.Collections$EmptyMap", "k=v"), true},
		{"mark of an empty map in XML", withXML(`<metadata class="java.util.Collections$EmptyMap"/>`), meta(), true},
		{"names of XML are unescaped", withXML(`<metadata><owner__team>t</owner__team><_-a>d</_-a><_.0039x>9</_.0039x><a_b>s</a_b><x:y>c</x:y></metadata>`),
			meta("owner_team=t", "$a=d", "9x=9", "a_b=s", "x:y=c"), true},
		{"later spelling of the override wins", with(`"overriddenstatus":"DOWN","overriddenStatus":"UP"`), func(i *registry.Instance) any { return i.Overridden }, registry.Up},
		{"both spellings of the override in XML", withXML(`<overriddenStatus>UP</overriddenStatus><overriddenstatus>down</overriddenstatus>`), func(i *registry.Instance) any { return i.Overridden }, registry.Down},
		{"empty status is unknown", with(`"status":""`), func(i *registry.Instance) any { return i.Status }, registry.Unknown},
		{"status of XML in lower case", withXML(`<status>out_of_service</status>`), func(i *registry.Instance) any { return i.Status }, registry.OutOfService},
		{"group in lower case", with(`"appGroupName":"fin"`), func(i *registry.Instance) any { return i.AppGroup }, "FIN"},
		{"secure port as a bare number", with(`"securePort":8443`), securePort, registry.Port{Number: 8443, Enabled: true}},
		{"port as bare text", with(`"port":"80"`), port, registry.Port{Number: 80, Enabled: true}},
		{"port without number", with(`"port":{"@enabled":false}`), port, registry.Port{Number: 7001}},
		{"port without flag", with(`"port":{"$":80}`), port, registry.Port{Number: 80, Enabled: true}},
		{"secure port without flag", with(`"securePort":{"$":80}`), securePort, registry.Port{Number: 80}},
		{"port flag 0", with(`"port":{"$":80,"@enabled":0}`), port, registry.Port{Number: 80}},
		{"highest port", with(`"port":{"$":65535,"@enabled":"False"}`), port, registry.Port{Number: 65535}},
		{"port of a program without a web server", with(`"port":{"$":-1,"@enabled":"true"}`), port, registry.Port{None: true, Enabled: true}},
		{"XML port of a program without a web server", withXML(`<port enabled="false">-1</port>`), port, registry.Port{None: true}},
		{"empty port number", with(`"port":{"$":"","@enabled":""}`), port, registry.Port{Number: 7001, Enabled: true}},
		{"XML port without attribute", withXML(`<port>80</port>`), port, registry.Port{Number: 80, Enabled: true}},
		{"XML secure port without attribute", withXML(`<securePort>80</securePort>`), securePort, registry.Port{Number: 80}},
		{"XML port with attribute", withXML(`<port enabled="FALSE" x="y"> 80 </port>`), port, registry.Port{Number: 80}},
		{"lease numbers beyond int32", with(`"leaseInfo":{"renewalIntervalInSecs":1e30,"durationInSecs":99999999999}`), lease, [2]int32{1<<31 - 1, 1<<31 - 1}},
		{"negative lease numbers", with(`"leaseInfo":{"renewalIntervalInSecs":-5,"durationInSecs":"-99999999999999999999"}`), lease, [2]int32{0, 0}},
		{"lease numbers with fractions", with(`"leaseInfo":{"renewalIntervalInSecs":5.9,"durationInSecs":"1.5e1"}`), lease, [2]int32{5, 15}},
		{"unknown object in the lease", with(`"leaseInfo":{"x":{"durationInSecs":1},"durationInSecs":7}`), lease, [2]int32{0, 7}},
		{"unknown element in the lease", withXML(`<leaseInfo><x><durationInSecs>1</durationInSecs></x><durationInSecs>7</durationInSecs></leaseInfo>`), lease, [2]int32{0, 7}},
		{"unknown elements, repeated and nested", withXML(`<x><hostName>no</hostName></x><x/>`), func(i *registry.Instance) any { return i.HostName }, "h"},
		{"timestamp with exponent", with(`"lastDirtyTimestamp":1.767225599500E12`), func(i *registry.Instance) any { return i.LastDirty }, int64(1767225599500)},
		{"empty timestamp", with(`"lastDirtyTimestamp":""`), func(i *registry.Instance) any { return i.LastDirty }, int64(0)},
		{"negative timestamp", with(`"lastDirtyTimestamp":-5`), func(i *registry.Instance) any { return i.LastDirty }, int64(0)},
		{"timestamp far ahead", with(`"lastDirtyTimestamp":"9223372036854775807"`), func(i *registry.Instance) any { return i.LastDirty }, int64(1<<63 - 1)},
		{"sid with upstream's default", with(`"sid":"unknown"`), func(i *registry.Instance) any { return i.SID }, ""},
		{"sid of its own", with(`"sid":"s"`), func(i *registry.Instance) any { return i.SID }, "s"},
		{"escapes", with(`"vipAddress":"\"\\\/\b\f\n\r\t\u00e9\uD83d\uDE00"`), func(i *registry.Instance) any { return i.VIP }, "\"\\/\b\f\n\r\té😀"},
		{"escaped key", with(`"vip\u0041ddress":"v"`), func(i *registry.Instance) any { return i.VIP }, "v"},
		{"text of another type", with(`"vipAddress":12,"asgName":true`), func(i *registry.Instance) any { return i.VIP + i.ASG }, "12true"},
		{"another root key", `{"x":[1],"instance":{` + minimal + `},"y":{}}`, func(i *registry.Instance) any { return i.ID() }, "i1"},
		{"Amazon after its metadata", `{"instance":{"hostName":"h","app":"orders","ipAddr":"1","dataCenterInfo":{"metadata":{"instance-id":"i-7","@class":"x"},"name":"Amazon"}}}`,
			func(i *registry.Instance) any { return i.ID() }, "i-7"},
		{"stray nested metadata of an own data center", `{"instance":{"hostName":"h","app":"orders","ipAddr":"1","dataCenterInfo":{"metadata":{"a":{}},"name":"Netflix"}}}`,
			func(i *registry.Instance) any { return i.DataCenter.Name }, registry.Netflix},
		{"Amazon in XML in any case", `<instance><hostName>h</hostName><app>orders</app><ipAddr>1</ipAddr><dataCenterInfo><x><y><z/></y></x><name>AMAZON</name><metadata><instance-id>i-7</instance-id></metadata></dataCenterInfo></instance>`,
			func(i *registry.Instance) any { return i.DataCenter.Name + i.ID() }, "Amazoni-7"},
		{"prolog, comments and a byte order mark", "\uFEFF<?xml version=\"1.0\" encoding=\"utf-8\"?><!-- a -->\n" + withXML(`<!-- b --><vipAddress><![CDATA[<v>]]>&amp;&#x20;</vipAddress>`) + "\n<!-- c -->",
			func(i *registry.Instance) any { return i.VIP }, "<v>& "},
		{"XML declared as US-ASCII", `<?xml version="1.0" encoding="us-ascii"?>` + withXML(`<vipAddress>v</vipAddress>`), func(i *registry.Instance) any { return i.VIP }, "v"},
		{"XML with a default name space", strings.Replace(withXML(`<vipAddress>v</vipAddress><metadata><x:a xmlns="urn:other">1</x:a><b xmlns="">2</b></metadata><port xmlns="">7</port><statusPageUrl>s</statusPageUrl>`), "<instance>", `<instance xmlns="urn:eureka">`, 1),
			func(i *registry.Instance) any { return fmt.Sprint(i.VIP, i.Metadata, i.Port.Number, i.StatusPageURL) }, "v[{x:a 1} {b 2}] 7s"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			i, err := decode(tt.body)
			need.OKf(t, err, "%s", tt.body)
			expect.Equal(t, tt.got(i), tt.want, "%s: got", tt.body)
		})
	}
}

func nested(open, inner, close string, depth int) string {
	return strings.Repeat(open, depth) + inner + strings.Repeat(close, depth)
}

func TestRegistrationsThatCannotBeParsedAreRefused(t *testing.T) {
	tests := []struct{ name, body string }{
		{"empty", ``},
		{"null", `null`},
		{"instance null", `{"instance":null}`},
		{"instance an array", `{"instance":[]}`},
		{"no root key", `{}`},
		{"trailing data", with(`"x":1`) + `{}`},
		{"trailing text", with(`"x":1`) + ` x`},
		{"trailing NUL", with(`"x":1`) + "\x00"},
		{"cut off", with(`"x":1`)[:90]},
		{"comma before the end", `{"instance":{` + minimal + `,}}`},
		{"comma lacking", `{"instance":{` + minimal + ` "x":1}}`},
		{"comma lacking in an array", with(`"x":[1 2]`)},
		{"comma at the start of an array", with(`"x":[,1]`)},
		{"comma at the end of an array", with(`"x":[1,]`)},
		{"wrong bracket", with(`"x":[1}`)},
		{"colon lacking", with(`"x" 1`)},
		{"key not a string", with(`x:1`)},
		{"unknown word", with(`"x":nil`)},
		{"word in upper case", with(`"x":TRUE`)},
		{"number with leading zero", with(`"x":01`)},
		{"number with plus", with(`"x":+1`)},
		{"number without digits", with(`"x":-`)},
		{"number without fraction", with(`"x":1.`)},
		{"number without exponent", with(`"x":1e`)},
		{"unknown escape", with(`"x":"\x41"`)},
		{"escape not hexadecimal", with(`"x":"\u00g0"`)},
		{"escape cut off", `{"instance":{"x":"\u00`},
		{"half a surrogate pair", with(`"x":"\ud83d"`)},
		{"second half of a surrogate pair", with(`"x":"\ude00"`)},
		{"surrogate pair with a wrong half", with(`"x":"\ud83d\u0041"`)},
		{"line feed in a string", with("\"x\":\"a\nb\"")},
		{"line feed after an escape", with("\"x\":\"\\\\a\nb\"")},
		{"not UTF-8", with("\"x\":\"\xff\"")},
		{"overlong UTF-8", with("\"x\":\"\xc0\xaf\"")},
		{"duplicate key", with(`"x":1,"x":1`)},
		{"duplicate known key", with(`"hostName":"h2"`)},
		{"duplicate key, spelt in two ways", with(`"x":1,"\u0078":1`)},
		{"duplicate metadata key", with(`"metadata":{"a":"1","a":"2"}`)},
		{"duplicate key among many", with(manyMembers(100) + `,"k99":1`)},
		{"duplicate key in an ignored object", with(`"x":{"a":1,"a":1}`)},
		{"65 levels", with(`"x":` + nested(`[`, ``, `]`, 63))},
		{"20000 levels", with(`"x":` + nested(`{"a":`, `1`, `}`, 20000))},
		{"metadata with an array", with(`"metadata":{"n":[1]}`)},
		{"metadata a string", with(`"metadata":"x"`)},
		{"Amazon metadata nested", `{"instance":{"hostName":"h","dataCenterInfo":{"name":"Amazon","metadata":{"a":{}}}}}`},
		{"data center a string", `{"instance":{"hostName":"h","dataCenterInfo":"MyOwn"}}`},
		{"data center in another case", `{"instance":{"hostName":"h","dataCenterInfo":{"name":"amazon"}}}`},
		{"text an object", with(`"vipAddress":{}`)},
		{"status an array", with(`"status":[]`)},
		{"port -2", with(`"port":{"$":-2}`)},
		{"port 65536", with(`"port":{"$":65536}`)},
		{"port 99999 as text", with(`"port":{"$":"99999"}`)},
		{"port beyond int64", with(`"port":1e99`)},
		{"port a boolean", with(`"port":true`)},
		{"port an array", with(`"port":[80]`)},
		{"port flag another word", with(`"port":{"$":80,"@enabled":"yes"}`)},
		{"country beyond int32", with(`"countryId":3000000000`)},
		{"country a word", with(`"countryId":"US"`)},
		{"timestamp a boolean", with(`"lastDirtyTimestamp":true`)},
		{"timestamp a fraction in hexadecimal", with(`"lastDirtyTimestamp":"0x1p4"`)},
		{"timestamp infinite", with(`"lastDirtyTimestamp":"Infinity"`)},
		{"timestamp beyond int64", with(`"lastDirtyTimestamp":9223372036854775808`)},
		{"timestamp beyond int64, as a fraction", with(`"lastDirtyTimestamp":9223372036854775808.0`)},
		{"lease duration a word", with(`"leaseInfo":{"durationInSecs":"long"}`)},
		{"lease duration an object", with(`"leaseInfo":{"durationInSecs":{}}`)},
		{"XML without root", `<?xml version="1.0"?>`},
		{"XML with another root", `<application/>`},
		{"XML cut off", withXML(``)[:60]},
		{"XML with wrong end", `<instance><a></b></instance>`},
		{"XML with two roots", withXML(``) + `<instance/>`},
		{"XML with text after the root", withXML(``) + `x`},
		{"XML with text before the root", `x` + withXML(``)},
		{"XML with DOCTYPE", `<!DOCTYPE instance>` + withXML(``)},
		{"XML with an entity of its own", `<!DOCTYPE instance [<!ENTITY e "x">]>` + withXML(`<vipAddress>&e;</vipAddress>`)},
		{"XML with an undefined entity", withXML(`<vipAddress>&e;</vipAddress>`)},
		{"XML with an element of another name space", `<instance xmlns="urn:a" xmlns:b="urn:b"><b:hostName>h</b:hostName><hostName>h</hostName><hostName>h</hostName></instance>`},
		{"XML in ISO-8859-1", `<?xml version="1.0" encoding="ISO-8859-1"?>` + withXML(``)},
		{"XML not UTF-8", withXML("<vipAddress>\xe9</vipAddress>")},
		{"XML with 65 levels", withXML(nested(`<a>`, ``, `</a>`, 64))},
		{"XML with 20000 levels", withXML(nested(`<a>`, ``, `</a>`, 20000))},
		{"XML with an element twice", withXML(`<hostName>h2</hostName>`)},
		{"XML with a metadata key twice", withXML(`<metadata><a_b>1</a_b><a__b>2</a__b></metadata>`)},
		{"XML with nested metadata", withXML(`<metadata><a><b/></a></metadata>`)},
		{"XML with an element in a text", withXML(`<vipAddress>a<b/></vipAddress>`)},
		{"XML with an unknown data center", `<instance><dataCenterInfo><name>Foo</name></dataCenterInfo></instance>`},
		{"XML with a lease field twice", withXML(`<leaseInfo><durationInSecs>1</durationInSecs><durationInSecs>1</durationInSecs></leaseInfo>`)},
		{"XML with a lease that is a word", withXML(`<leaseInfo><durationInSecs>x</durationInSecs></leaseInfo>`)},
		{"XML with two names of a data center", `<instance><dataCenterInfo><name>MyOwn</name><name>MyOwn</name></dataCenterInfo></instance>`},
		{"XML with port -2", withXML(`<port>-2</port>`)},
		{"XML with another port flag", withXML(`<port enabled="yes">1</port>`)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			format := eureka.Format{XML: strings.HasPrefix(tt.name, "XML")}
			i, err := eureka.DecodeRegistration([]byte(tt.body), format, "ORDERS")
			expect.That(t, errors.Is(err, eureka.ErrUnparsable), "%.200s: got %+v and error %v, want ErrUnparsable", tt.body, i, err)
		})
	}
}

// TestRegistrationsAreReadWithNestingUpToTheBound keeps the bound from becoming tighter than intended.
func TestRegistrationsAreReadWithNestingUpToTheBound(t *testing.T) {
	for _, body := range []string{with(`"x":` + nested(`[`, ``, `]`, 62)), withXML(nested(`<a>`, ``, `</a>`, 63))} {
		expect.OKf(t, expect.Err(decode(body)), "64 levels")
	}
}

func manyMembers(n int) string {
	var members []string
	for i := range n {
		members = append(members, fmt.Sprintf(`"k%d":"v"`, i))
	}
	return strings.Join(members, ",")
}

func instanceNamed(app, id string) string {
	return fmt.Sprintf(`{"instance":{"instanceId":%q,"hostName":"h","app":%q,"ipAddr":"1","dataCenterInfo":{"name":"MyOwn"}}}`, id, app)
}

// TestRegistrationsAreCheckedInUpstreamsOrder gives each body the defects of all later rows too.
func TestRegistrationsAreCheckedInUpstreamsOrder(t *testing.T) {
	tests := []struct{ body, want string }{
		{`{"instance":{"instanceId":"","ipAddr":"","dataCenterInfo":{"name":""}}}`, "Missing instanceId"},
		{`{"instance":{"instanceId":"i"}}`, "Missing hostname"},
		{`{"instance":{"hostName":"h","app":""}}`, "Missing ip address"},
		{`{"instance":{"hostName":"h","ipAddr":"1"}}`, "Missing appName"},
		{`{"instance":{"hostName":"h","ipAddr":"1","app":null}}`, "Missing appName"},
		{`{"instance":{"hostName":"h","ipAddr":"1","app":"pay"}}`, "Mismatched appName, expecting ORDERS but was PAY"},
		{`{"instance":{"hostName":"h","ipAddr":"1","app":"orders"}}`, "Missing dataCenterInfo"},
		{`{"instance":{"hostName":"h","ipAddr":"1","app":"orders","dataCenterInfo":{"name":null}}}`, "Missing dataCenterInfo Name"},
		{`<instance><hostName>h</hostName><ipAddr>1</ipAddr><app>orders</app><dataCenterInfo/></instance>`, "Missing dataCenterInfo Name"},
		{`<instance><hostName>h</hostName><ipAddr>1</ipAddr><app>orders</app></instance>`, "Missing dataCenterInfo"},
	}
	for _, tt := range tests {
		_, err := decode(tt.body)
		checkRefused(t, err, tt.want)
	}
}

func TestRegistrationsHaveBoundedNamesAndMetadata(t *testing.T) {
	const names = `it must be 1 to 255 bytes of UTF-8 without control characters, and neither "." nor ".."`
	const metadata = "Invalid metadata, it must be at most 256 entries of 65536 bytes together"
	tests := []struct{ name, body, want string }{
		{"id of a dot", instanceNamed("orders", "."), "Invalid instanceId, " + names},
		{"id of two dots", instanceNamed("orders", ".."), "Invalid instanceId, " + names},
		{"id with a line feed", instanceNamed("orders", "a\nb"), "Invalid instanceId, " + names},
		{"id with NUL", `{"instance":{"instanceId":"a\u0000","hostName":"h","app":"orders","ipAddr":"1","dataCenterInfo":{"name":"MyOwn"}}}`, "Invalid instanceId, " + names},
		{"id of 256 bytes", instanceNamed("orders", strings.Repeat("i", 256)), "Invalid instanceId, " + names},
		{"app of two dots", instanceNamed("..", "i"), "Invalid appName, " + names},
		{"app of 256 bytes", instanceNamed(strings.Repeat("a", 256), "i"), "Invalid appName, " + names},
		{"257 entries", with(`"metadata":{` + manyMembers(257) + `}`), metadata},
		{"entries of more than 64 KiB", with(`"metadata":{"k":"` + strings.Repeat("v", 1<<16) + `"}`), metadata},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := decode(tt.body)
			checkRefused(t, err, tt.want)
		})
	}
	for _, body := range []string{
		instanceNamed("orders", strings.Repeat("i", 255)),
		instanceNamed("orders", "a/b:c #[?]é"),
		with(`"metadata":{` + manyMembers(256) + `}`),
		with(`"metadata":{"k":"` + strings.Repeat("v", 1<<16-1) + `"}`),
	} {
		expect.OKf(t, expect.Err(decode(body)), "%.80s", body)
	}
	expect.ErrorIs(t, expect.Err(eureka.DecodeRegistration([]byte(withXML(``)), full, "ORDERS")), eureka.ErrUnparsable, "XML read as JSON:")
}

// TestRegistrationsOfOlderSpringClientsHaveTheIDInTheMetadata covers CloudJacksonJson's rule, which applies to JSON
// only.
func TestRegistrationsOfOlderSpringClientsHaveTheIDInTheMetadata(t *testing.T) {
	const rest = `"hostName":"h","app":"orders","ipAddr":"1","dataCenterInfo":{"name":"MyOwn"}`
	tests := []struct{ name, body, want string }{
		{"host name goes before it", `{"instance":{` + rest + `,"metadata":{"instanceId":"7"}}}`, "h:7"},
		{"host name is there already", `{"instance":{` + rest + `,"metadata":{"instanceId":"h7"}}}`, "h7"},
		{"blank is none", `{"instance":{` + rest + `,"metadata":{"instanceId":" "}}}`, "h"},
		{"an id of its own wins", `{"instance":{"instanceId":"i",` + rest + `,"metadata":{"instanceId":"7"}}}`, "i"},
		{"not in XML", `<instance><hostName>h</hostName><app>orders</app><ipAddr>1</ipAddr><dataCenterInfo><name>MyOwn</name></dataCenterInfo><metadata><instanceId>7</instanceId></metadata></instance>`, "h"},
	}
	for _, tt := range tests {
		i, err := decode(tt.body)
		need.OKf(t, err, "%s", tt.name)
		check(t, tt.name, i.ID(), tt.want)
	}
}

func TestRegistrationOfAnAmazonInstanceIsNamedInItsDataCenter(t *testing.T) {
	amazon := func(id, metadata string) string {
		return `{"instance":{` + id + `"hostName":"h","app":"orders","ipAddr":"1","dataCenterInfo":{"name":"Amazon","metadata":` + metadata + `}}}`
	}
	tests := []struct{ name, body, want string }{
		{"from the instance's id", amazon(`"instanceId":"i1",`, `{"ami-id":"a"}`), "i1"},
		{"from the host name", amazon("", `{}`), "h"},
		{"not where it is given", amazon(`"instanceId":"i1",`, `{"instance-id":"i-7"}`), "i-7"},
		{"not where it is given as empty", amazon(`"instanceId":"i1",`, `{"instance-id":""}`), ""},
	}
	for _, tt := range tests {
		i, err := decode(tt.body)
		need.OKf(t, err, "%s", tt.name)
		check(t, tt.name, i.DataCenter.Value("instance-id"), tt.want)
	}
}
