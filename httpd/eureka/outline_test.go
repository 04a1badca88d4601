package eureka_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// outlines are values of instances' metadata under outlineKey, by id.
type outlines map[string]string

const outlineKey = "n"

// outlined returns what EachInstance reads.
func outlined(document []byte) (outlines, error) {
	found := make(outlines)
	return found, eureka.EachInstance(document, outlineKey, func(id, value []byte) { found[string(id)] = string(value) })
}

func TestEachInstanceReadsWhatClientsWrite(t *testing.T) {
	const instance = `{"instanceId":"a","metadata":{"n":"7"}}`
	for _, c := range []struct {
		name, document string
		want           outlines
	}{
		{"nothing", `{"applications":{"versions__delta":"1","apps__hashcode":"","application":[]}}`, outlines{}},
		{"null for nothing", `{"applications":{"application":null}}`, outlines{}},
		{"no key for nothing", `{"applications":{}}`, outlines{}},
		{"an application without instances", `{"applications":{"application":[{"name":"A","instance":[]}]}}`, outlines{}},
		{"one instance", `{"applications":{"application":[{"name":"A","instance":[` + instance + `]}]}}`, outlines{"a": "7"}},
		{"objects for lists of one", `{"applications":{"application":{"name":"A","instance":` + instance + `}}}`, outlines{"a": "7"}},
		{"no metadata", `{"applications":{"application":[{"instance":[{"instanceId":"a"}]}]}}`, outlines{"a": ""}},
		{"null metadata", `{"applications":{"application":[{"instance":[{"metadata":null,"instanceId":"a"}]}]}}`, outlines{"a": ""}},
		{"metadata first", `{"applications":{"application":[{"instance":[{"metadata":{"n":"x"},"instanceId":"a"}]}]}}`, outlines{"a": "x"}},
		{"a number", `{"applications":{"application":[{"instance":[{"metadata":{"n":12},"instanceId":"a"}]}]}}`, outlines{"a": "12"}},
		{"the value of another object", `{"applications":{"application":[{"instance":[{"instanceId":"a","dataCenterInfo":{"metadata":{"n":"9"}},"n":"8"}]}]}}`, outlines{"a": ""}},
		{"an id within a value", `{"applications":{"application":[{"instance":[{"instanceId":"a","homePageUrl":"\"instanceId\":\"b\",{[","metadata":{"k":"\\","n":"3"}}]}]}}`, outlines{"a": "3"}},
		{"an id of a later sibling", `{"applications":{"application":[{"instance":[{"instanceId":"a"}],"other":{"instance":[{"instanceId":"b"}]}}]}}`, outlines{"a": ""}},
		{"escapes", `{"applications":{"application":[{"instance":[{"instance\u0049d":"\u00e9\"\\","metadata":{"\u006e":"\u0035"}}]}]}}`, outlines{`é"\`: "5"}},
		{"no id", `{"applications":{"application":[{"instance":[{"hostName":"h","metadata":{"n":"1"}}]}]}}`, outlines{"h": "1"}},
		{"space everywhere", " {\n\t\"applications\" : { \"application\" :\r\n [ { \"instance\" : [ { \"instanceId\" : \"a\" , \"metadata\" : { \"n\" : \"7\" } } , {\"instanceId\":\"b\"} ] } ] } } \n", outlines{"a": "7", "b": ""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := outlined([]byte(c.document))
			expect.That(t, err == nil && maps.Equal(got, c.want), "%s is read as %v, %v, want %v", c.document, got, err, c.want)
		})
	}
}

func TestEachInstanceRefusesWhatIsNoList(t *testing.T) {
	for _, document := range []string{
		``, ` `, `null`, `[]`, `{}`, `{"application":[]}`, `{"applications":{}`, `{"applications":{"application":[}}`,
		`{"applications":{"application":[{"instance":[{"instanceId":"a"]}]}}`, `{"applications":{}} x`, `{"applications":{"application":["a" "b"]}}`,
		`{"applications":{"application":[{"instance":[{"instanceId":"\x"}]}]}}`, `<applications/>`, `{"applications" {}}`, `{applications:{}}`,
	} {
		got, err := outlined([]byte(document))
		expect.That(t, err != nil, "%q is read as %v, want an error", document, got)
	}
}

// leasesToOutline draws instances with texts that are hard to read.
func leasesToOutline(t *rapid.T) []*registry.Lease {
	hard := rapid.OneOf(rapid.StringN(1, 12, -1), rapid.StringMatching(`["\\{}\[\],:nN ]{1,8}`), rapid.Just(`"instanceId":"b"`))
	ids := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z"\\é]{1,6}`), 0, 5, rapid.ID[string]).Draw(t, "ids")
	var all []*registry.Lease
	for _, id := range ids {
		i := &registry.Instance{
			InstanceID: id, HostName: hard.Draw(t, "host"), App: "APP", DataCenter: registry.DataCenter{Name: registry.MyOwn},
			HomePageURL: hard.Draw(t, "url"), Metadata: []registry.Pair{{Key: "k", Value: hard.Draw(t, "value")}},
		}
		if rapid.Bool().Draw(t, "outlined") {
			i.Metadata = append(i.Metadata, registry.Pair{Key: outlineKey, Value: hard.Draw(t, "outline")})
		}
		all = append(all, &registry.Lease{Instance: i})
	}
	return all
}

func TestEachInstanceReadsWhatTheDecoderReads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		document := eureka.AppendApplications(nil, eureka.Format{}, "1", "UP_1_", slices.Values(leasesToOutline(t)))
		var formatted bytes.Buffer
		need.OK(t, json.Indent(&formatted, document, "", strings.Repeat(" ", rapid.IntRange(0, 4).Draw(t, "indent"))))
		want := make(outlines)
		for _, l := range need.Got(eureka.DecodeApplications(document))(t).Leases {
			want[l.Instance.ID()] = ""
			for _, p := range l.Instance.Metadata {
				if p.Key == outlineKey {
					want[l.Instance.ID()] = p.Value
				}
			}
		}
		for _, d := range [][]byte{document, formatted.Bytes()} {
			got, err := outlined(d)
			need.That(t, err == nil && maps.Equal(got, want), "%s is read as %v, %v, want %v", d, got, err, want)
		}
		cut := document[:rapid.IntRange(0, len(document)-1).Draw(t, "cut")]
		got, err := outlined(cut)
		need.That(t, err != nil, "%s, which was cut off, is read as %v, want an error", cut, got)
	})
}
