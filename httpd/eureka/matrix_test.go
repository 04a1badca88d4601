package eureka_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/eureka"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// decoded is what upstream's full codec makes of a body (testdata/decoder-matrix.json).
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

// deviations are the rows where we read a body in another way than upstream's full codec, on purpose.
var deviations = map[string]func(*decoded){
	"status-lowercase":              func(d *decoded) { d.Status = "UP" },
	"metadata-non-string-values":    func(d *decoded) { delete(d.Metadata, "z") }, // a null is no value
	"port-enabled-uppercase-string": func(d *decoded) { d.PortEnabled = true },
}

func TestEverySpellingOfARegistrationIsAnsweredAsTheMatrixSays(t *testing.T) {
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

// checkLikeUpstream compares with what upstream's full codec makes of the body, where it makes
// anything of it.
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
	dirty, _ := want.LastDirtyTimestamp.(float64) // the time of decoding is "not given" for us
	check(t, "lastDirtyTimestamp", i.LastDirty, int64(dirty))
	interval, duration, _ := registry.ClampLease(i.RenewalInterval, i.Duration)
	if want.LeaseDuration != nil {
		check(t, "durationInSecs", duration, *want.LeaseDuration)
		check(t, "renewalIntervalInSecs", interval, *want.LeaseRenewal)
	}
}

// checkAccepted checks what the matrix says in words of a body that upstream refuses.
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
