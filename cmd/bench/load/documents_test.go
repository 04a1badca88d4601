package load

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/internal/need"
)

var anInstance = described{
	app: "LOAD-003", id: "LOAD-003-000025.cluster.example.internal:8080", number: 37, interval: 2, duration: 7,
}

// parse reads a preformatted request as a server does.
func parse(t *testing.T, request []byte) (r *http.Request, body []byte) {
	t.Helper()
	rest := bufio.NewReader(bytes.NewReader(request))
	r, err := http.ReadRequest(rest)
	if err != nil {
		t.Fatalf("%v in %q", err, request)
	}
	if body, err = io.ReadAll(r.Body); err != nil {
		t.Fatal(err)
	}
	if n := rest.Buffered(); n != 0 {
		t.Fatalf("%d bytes too many in %q", n, request)
	}
	return r, body
}

func TestARegistrationIsWhatAServerReads(t *testing.T) {
	r, body := parse(t, anInstance.registration(42))
	if r.Method != http.MethodPost || r.URL.Path != "/eureka/v2/apps/LOAD-003" {
		t.Errorf("%s %s, want POST to the application", r.Method, r.URL)
	}
	i := need.Got(eureka.DecodeRegistration(body, eureka.Format{}, anInstance.app))(t)
	if i.ID() != anInstance.id || i.App != anInstance.app || i.Status != registry.Up || i.HostName != "LOAD-003-000025.cluster.example.internal" {
		t.Errorf("the server reads instance %+v", i)
	}
	if i.RenewalInterval != 2 || i.Duration != 7 {
		t.Errorf("the server reads a lease of %d s renewed every %d s, want 7 s and 2 s", i.Duration, i.RenewalInterval)
	}
	if i.LastDirty != dirtyBase+42 {
		t.Errorf("lastDirtyTimestamp %d, want %d", i.LastDirty, dirtyBase+42)
	}
	l := &registry.Lease{Instance: i}
	if v, ok := seenVersion(eureka.AppendInstanceDocument(nil, eureka.Format{}, l, registry.Stamp{})); !ok || v != 42 {
		t.Errorf("version %d (%t) in what the server answers, want 42", v, ok)
	}
	if len(body) < 950 || len(body) > 1300 {
		t.Errorf("%d bytes, want about 1 KB: %s", len(body), body)
	}
}

func TestBodylessRequestsNameTheInstance(t *testing.T) {
	path := "/eureka/v2/apps/LOAD-003/LOAD-003-000025.cluster.example.internal:8080"
	for _, tc := range []struct {
		name, method, query string
		request             []byte
	}{
		{name: "renewal", method: http.MethodPut, query: "status=UP&lastDirtyTimestamp=1767225599043", request: anInstance.renewal(43)},
		{name: "cancel", method: http.MethodDelete, request: anInstance.cancel()},
		{name: "look", method: http.MethodGet, request: anInstance.look()},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, body := parse(t, tc.request)
			if r.Method != tc.method || r.URL.Path != path || r.URL.RawQuery != tc.query || len(body) != 0 {
				t.Errorf("%s %s with %q, want %s %s?%s without a body", r.Method, r.URL, body, tc.method, path, tc.query)
			}
			if accept := r.Header.Get("Accept"); accept != "application/json" {
				t.Errorf("Accept %q, want application/json", accept)
			}
		})
	}
}

func TestVersionsAreSeenInMetadataOnly(t *testing.T) {
	for _, tc := range []struct {
		name, document string
		want           int64
		ok             bool
	}{
		{name: "the only entry", document: `{"instance":{"metadata":{"n":"7"},"x":"y"}}`, want: 7, ok: true},
		{name: "one of several", document: `{"instance":{"metadata":{"@class":"c","zone":"a","n":"123456789012"}}}`, want: 123456789012, ok: true},
		{name: "indented", document: "{\"metadata\" : {\n \"n\" : \"8\"\n}}", want: 8, ok: true},
		{name: "outside of the metadata", document: `{"instance":{"n":"7","metadata":{"zone":"a"}}}`},
		{name: "without a number", document: `{"instance":{"metadata":{"n":"x"}}}`},
		{name: "empty"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got, ok := seenVersion([]byte(tc.document)); got != tc.want || ok != tc.ok {
				t.Errorf("version %d (%t) in %s, want %d (%t)", got, ok, tc.document, tc.want, tc.ok)
			}
		})
	}
}
