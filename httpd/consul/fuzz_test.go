package consul_test

import (
	"encoding/json"
	"errors"
	"testing"
	"unicode/utf8"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/consul"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

var seeds = []string{
	``, `null`, `{}`, `[]`, `{"Name":"web"}`, `{"Name":"web","Checks":[null,{"TTL":"1s"}],"Check":{}}`, `{"Name":"web","Check":{"HTTP":"h","Interval":1e9}}`,
	`{"Name":"a","ID":"b","Port":65535,"Meta":{"a":"b"},"TaggedAddresses":{"lan":{"Port":1}},"Weights":{"Passing":2},"Locality":{"Zone":"z"},"Ports":[{"Port":1,"Default":true}]}`,
	`{"Node":"n","Address":"a","Service":{"Service":"s"},"Check":{"Name":"c","Definition":{"Interval":"1s","TCP":7}},"Checks":[{"Name":"d"}]}`,
	`{"Name":"p","Port":1,"Kind":"connect-proxy","Proxy":{"destination_service_name":"a","Config":{"a_b":[1]},"Upstreams":[{"DestinationName":"d","LocalBindPort":1}],"Expose":{"Paths":[{"Path":"/"}]}},"Connect":{"Native":false}}`,
	`{"Name":"web","Checks":[{"GRPC":"h:1/s","GRPCUseTLS":true,"Interval":"1s"},{"UDP":"h:1","Interval":"1s"},{"H2PING":"h:1","H2PingUseTLS":false,"Interval":"1s"},{"AliasNode":"n","AliasService":"s"}]}`,
	`{"Node":"rollcall","ServiceID":"s","CheckID":"c"}`, `{"Status":"passing","Output":"\ud800"}`, `{"name":"ſ"}`, `{"Name":"x","Check":{"TTL":1e300}}`,
}

// checkRefusal fails if an error is none of the two that the API has words for.
func checkRefusal(t *testing.T, err error) {
	t.Helper()
	var malformed consul.Malformed
	var rejected consul.Rejected
	expect.That(t, (errors.As(err, &malformed) || errors.As(err, &rejected)) && err.Error() != "", "the error is %#v", err)
}

// checkRegistration fails if what was read is nothing that the registry can keep.
func checkRegistration(t *testing.T, op registry.RegisterCatalog) {
	t.Helper()
	need.That(t, (op.Service == nil) == (op.Instance == nil), "service %v and instance %v", op.Service, op.Instance)
	if s := op.Service; s != nil {
		key := op.Instance.Key()
		expect.That(t, s.Name != "" && s.ID != "" && key == registry.NewKey(s.Name, op.Instance.InstanceID) && len(key.App) <= 255 && len(key.ID) <= 255 && utf8.ValidString(key.ID),
			"service %+v is the instance %s", s, key)
		expect.That(t, (s.Locality == nil || json.Valid(s.Locality)) && (s.Ports == nil || json.Valid(s.Ports)) && (s.Proxy == nil || json.Valid(s.Proxy)), "locality %s, ports %s and proxy %s are no JSON", s.Locality, s.Ports, s.Proxy)
		shown := consul.ServiceOf(&registry.Lease{Instance: op.Instance, Service: s}, s.Name)
		expect.OKf(t, expect.Err(json.Marshal(consul.With(consul.Node{}, nil, shown))), "it cannot be shown")
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
		op, err := consul.DecodeService(body, "", "h")
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
		got, err := consul.DecodeRegistration(body, func(string) string { return "" })
		if err != nil {
			checkRefusal(t, err)
			return
		}
		checkRegistration(t, got.Op)
	})
}

func FuzzDecodeAct(f *testing.F) {
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if op, err := consul.DecodeCheck(body); err != nil {
			checkRefusal(t, err)
		} else {
			checkRegistration(t, op)
		}
		if _, _, err := consul.DecodeStatus(body); err != nil {
			checkRefusal(t, err)
		}
		if got, err := consul.DecodeDeregistration(body); err != nil {
			checkRefusal(t, err)
		} else if got.Op.Service != "" && got.Op.Check != "" {
			t.Errorf("both a service and a check: %+v", got.Op)
		}
	})
}
