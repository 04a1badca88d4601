package eureka_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// The domain values that the documents in testdata describe.

func ownInstance(id, host, ip, name string, port uint16) *registry.Instance {
	url := "http://" + host + ":" + map[uint16]string{8080: "8080", 8761: "8761", 9090: "9090"}[port] + "/"
	return &registry.Instance{
		InstanceID: id, HostName: host, IPAddr: ip, Status: registry.Up, VIP: name, SecureVIP: name, CountryID: 1,
		Port: registry.Port{Number: port, Enabled: true}, SecurePort: registry.Port{Number: 443},
		DataCenter: registry.DataCenter{Name: registry.MyOwn}, RenewalInterval: 30, Duration: 90,
		HomePageURL: url, StatusPageURL: url + "info", HealthCheckURL: url + "health",
	}
}

func lease(i *registry.Instance, updated int64, action registry.Action) *registry.Lease {
	return &registry.Lease{
		Instance: i, Interval: i.RenewalInterval, Duration: i.Duration, Action: action,
		RegisteredAt: 1767225600000, ServiceUpAt: 1767225600000, UpdatedAt: updated, RenewedAt: registry.Stamp{Wall: 1767225660000},
	}
}

func orders1() *registry.Lease {
	i := ownInstance("orders-1.example.internal:orders:8080", "orders-1.example.internal", "10.0.0.11", "orders", 8080)
	i.App, i.LastDirty = "ORDERS", 1767225599500
	i.Metadata = []registry.Pair{{Key: "zone", Value: "zone-a"}, {Key: "management.port", Value: "8081"}}
	return lease(i, 1767225600120, registry.ActionAdded)
}

func orders2() *registry.Lease {
	i := ownInstance("orders-2.example.internal:orders:8080", "orders-2.example.internal", "10.0.0.12", "orders", 8080)
	i.App, i.LastDirty = "ORDERS", 1767225599600
	i.Status, i.Overridden = registry.OutOfService, registry.OutOfService
	i.Metadata = []registry.Pair{{Key: "zone", Value: "zone-b"}, {Key: "owner_team", Value: `checkout & "carts"`}}
	return lease(i, 1767225630000, registry.ActionModified)
}

func orders2Back() *registry.Lease {
	l := orders2()
	l.Instance.Status, l.Instance.Overridden = registry.Up, registry.Unknown
	l.Instance.LastDirty, l.UpdatedAt = 1767225689000, 1767225690000
	return l
}

func orders3() *registry.Lease {
	i := ownInstance("orders-3.example.internal:orders:8080", "orders-3.example.internal", "10.0.0.13", "orders", 8080)
	i.App, i.LastDirty, i.Status = "ORDERS", 1767225694000, registry.Starting
	i.Metadata = []registry.Pair{{Key: "zone", Value: "zone-a"}}
	l := lease(i, 1767225695000, registry.ActionAdded)
	l.RegisteredAt, l.RenewedAt.Wall, l.ServiceUpAt = 1767225695000, 1767225695000, 0
	return l
}

func billing() *registry.Lease {
	host := "ec2-203-0-113-21.compute-1.example.net"
	i := ownInstance("i-0f00ba4", host, "10.0.0.21", "billing,billing-internal", 9090)
	i.App, i.AppGroup, i.ASG, i.LastDirty = "BILLING", "FINANCE", "billing-v012", 1767225599700
	i.RenewalInterval, i.Duration = 10, 30
	i.DataCenter = registry.DataCenter{Name: registry.Amazon, Metadata: []registry.Pair{
		{Key: "instance-id", Value: "i-0f00ba4"}, {Key: "availability-zone", Value: "us-east-1c"},
		{Key: "ami-id", Value: "ami-0a1b2c3d"}, {Key: "instance-type", Value: "m5.large"},
		{Key: "local-ipv4", Value: "10.0.0.21"}, {Key: "public-hostname", Value: host},
		{Key: "public-ipv4", Value: "203.0.113.21"},
	}}
	return lease(i, 1767225600200, registry.ActionAdded)
}

func billingGone() *registry.Lease {
	l := billing()
	l.EvictedAt, l.UpdatedAt, l.Action = 1767225700000, 1767225700000, registry.ActionDeleted
	return l
}

func billingNewer() *registry.Lease {
	l := billing()
	l.Instance.LastDirty = 1767225605000
	return l
}

func server() *registry.Lease {
	i := ownInstance("eureka-a.example.internal:eureka:8761", "eureka-a.example.internal", "10.0.0.1", "eureka", 8761)
	i.App, i.LastDirty = "EUREKA", 1767225591000
	return lease(i, 1767225592000, registry.ActionAdded)
}

func fixture(t testing.TB, name string) []byte {
	t.Helper()
	body := need.Got(os.ReadFile(filepath.Join("testdata", name)))(t)
	return body
}

var betweenElements = regexp.MustCompile(`>\s+<`)

// tokens removes the white space between a document's tokens and nothing else, so that two results
// are equal exactly if the documents have the same tokens in the same order.
func tokens(t testing.TB, doc []byte) string {
	t.Helper()
	doc = bytes.TrimSpace(doc)
	if bytes.HasPrefix(doc, []byte("<")) {
		return string(betweenElements.ReplaceAll(doc, []byte("><")))
	}
	var out bytes.Buffer
	err := json.Compact(&out, doc)
	need.That(t, err == nil, "not JSON: %v\n%s", err, doc)
	return out.String()
}
