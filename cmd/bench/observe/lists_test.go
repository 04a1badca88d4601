package observe

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/cmd/bench/truth"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestListIsReadAsClientsWriteIt(t *testing.T) {
	const instance = `{"instanceId":"a","metadata":{"n":"7"}}`
	for _, c := range []struct {
		name, document string
		want           truth.Listing
	}{
		{"nothing", `{"applications":{"versions__delta":"1","apps__hashcode":"","application":[]}}`, truth.Listing{}},
		{"null for nothing", `{"applications":{"application":null}}`, truth.Listing{}},
		{"no key for nothing", `{"applications":{}}`, truth.Listing{}},
		{"an application without instances", `{"applications":{"application":[{"name":"A","instance":[]}]}}`, truth.Listing{}},
		{"one instance", `{"applications":{"application":[{"name":"A","instance":[` + instance + `]}]}}`, truth.Listing{"a": 7}},
		{"objects for lists of one", `{"applications":{"application":{"name":"A","instance":` + instance + `}}}`, truth.Listing{"a": 7}},
		{"no metadata", `{"applications":{"application":[{"instance":[{"instanceId":"a"}]}]}}`, truth.Listing{"a": 0}},
		{"metadata that is none", `{"applications":{"application":[{"instance":[{"metadata":null,"instanceId":"a"}]}]}}`, truth.Listing{"a": 0}},
		{"a version that is none of ours", `{"applications":{"application":[{"instance":[{"metadata":{"n":"x"},"instanceId":"a"}]}]}}`, truth.Listing{"a": 0}},
		{"a version as a number", `{"applications":{"application":[{"instance":[{"metadata":{"n":12},"instanceId":"a"}]}]}}`, truth.Listing{"a": 12}},
		{"the version of another object", `{"applications":{"application":[{"instance":[{"instanceId":"a","dataCenterInfo":{"metadata":{"n":"9"}},"n":"8"}]}]}}`, truth.Listing{"a": 0}},
		{"an id within a value", `{"applications":{"application":[{"instance":[{"instanceId":"a","homePageUrl":"\"instanceId\":\"b\",{[","metadata":{"k":"\\","n":"3"}}]}]}}`, truth.Listing{"a": 3}},
		{"an id of a later sibling", `{"applications":{"application":[{"instance":[{"instanceId":"a"}],"other":{"instance":[{"instanceId":"b"}]}}]}}`, truth.Listing{"a": 0}},
		{"escapes", `{"applications":{"application":[{"instance":[{"instance\u0049d":"\u00e9\"\\","metadata":{"\u006e":"\u0035"}}]}]}}`, truth.Listing{`é"\`: 5}},
		{"no id", `{"applications":{"application":[{"instance":[{"hostName":"h","metadata":{"n":"1"}}]}]}}`, truth.Listing{"h": 1}},
		{"space everywhere", " {\n\t\"applications\" : { \"application\" :\r\n [ { \"instance\" : [ { \"instanceId\" : \"a\" , \"metadata\" : { \"n\" : \"7\" } } , {\"instanceId\":\"b\"} ] } ] } } \n", truth.Listing{"a": 7, "b": 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := newListReader().registry([]byte(c.document))
			expect.That(t, err == nil && maps.Equal(got, c.want), "%s is read as %v, %v, want %v", c.document, got, err, c.want)
		})
	}
}

func TestListThatIsNoneIsAnError(t *testing.T) {
	for _, document := range []string{
		``, ` `, `null`, `[]`, `{}`, `{"application":[]}`, `{"applications":{}`, `{"applications":{"application":[}}`,
		`{"applications":{"application":[{"instance":[{"instanceId":"a"]}]}}`, `{"applications":{}} x`, `{"applications":{"application":["a" "b"]}}`,
		`{"applications":{"application":[{"instance":[{"instanceId":"\x"}]}]}}`, `<applications/>`, `{"applications" {}}`, `{applications:{}}`,
	} {
		got, err := newListReader().registry([]byte(document))
		expect.That(t, err != nil, "%q is read as %v, want an error", document, got)
	}
}

// documents are those of the protocol, formatted and not.
func documents(t testing.TB) map[string][]byte {
	t.Helper()
	all := make(map[string][]byte)
	for _, name := range []string{"apps.json", "apps-compact.json", "apps-empty.json", "apps-after-delta.json", "delta.json", "delta-empty.json", "vip.json"} {
		document := need.Got(os.ReadFile(filepath.Join("..", "..", "..", "httpd", "eureka", "testdata", name)))(t)
		var compact bytes.Buffer
		need.OK(t, json.Compact(&compact, document))
		all[name], all["compacted "+name] = document, compact.Bytes()
	}
	return all
}

// decoded is what a real decoder reads.
func decoded(t need.T, document []byte) truth.Listing {
	all := need.Got(eureka.DecodeApplications(document))(t)
	listing := make(truth.Listing)
	for _, l := range all.Leases {
		version := int64(0)
		for _, p := range l.Instance.Metadata {
			if p.Key == versionKey {
				version, _ = strconv.ParseInt(p.Value, 10, 64)
			}
		}
		listing[l.Instance.ID()] = version
	}
	return listing
}

func TestListThatWasCutOffIsAnError(t *testing.T) {
	for name, document := range documents(t) {
		document = bytes.TrimSpace(document)
		for n := 0; n < len(document); n += 7 {
			got, err := newListReader().registry(document[:n])
			need.That(t, err != nil, "the first %d bytes of %s are read as %v, want an error", n, name, got)
		}
	}
}

// leases draws instances with texts that are hard to read.
func leases(t *rapid.T) []*registry.Lease {
	hard := rapid.OneOf(rapid.StringN(1, 12, -1), rapid.StringMatching(`["\\{}\[\],:nN ]{1,8}`), rapid.Just(`"instanceId":"b"`))
	ids := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z"\\é]{1,6}`), 0, 5, rapid.ID[string]).Draw(t, "ids")
	var all []*registry.Lease
	for _, id := range ids {
		i := &registry.Instance{
			InstanceID: id, HostName: hard.Draw(t, "host"), App: "APP", DataCenter: registry.DataCenter{Name: registry.MyOwn},
			HomePageURL: hard.Draw(t, "url"), Metadata: []registry.Pair{{Key: "k", Value: hard.Draw(t, "value")}},
		}
		if version := rapid.Int64Range(0, 1<<40).Draw(t, "version"); version > 0 {
			i.Metadata = append(i.Metadata, registry.Pair{Key: versionKey, Value: strconv.FormatInt(version, 10)})
		}
		all = append(all, &registry.Lease{Instance: i})
	}
	return all
}

func TestListOfAnyServerIsReadAsADecoderReadsIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		document := eureka.AppendApplications(nil, eureka.Format{}, "1", "UP_1_", slices.Values(leases(t)))
		var formatted bytes.Buffer
		need.OK(t, json.Indent(&formatted, document, "", strings.Repeat(" ", rapid.IntRange(0, 4).Draw(t, "indent"))))
		want := decoded(t, document)
		for _, d := range [][]byte{document, formatted.Bytes()} {
			got, err := newListReader().registry(d)
			need.That(t, err == nil && maps.Equal(got, want), "%s is read as %v, %v, want %v", d, got, err, want)
		}
	})
}
