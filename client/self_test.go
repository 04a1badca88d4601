package client

import (
	"net"
	"os"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

func TestAnInstanceOfThisMachineCanBeRegistered(t *testing.T) {
	i := NewInstance("Orders", 8080)
	expect.OK(t, checkInstance(i))
	host, err := os.Hostname()
	if err != nil {
		t.Skipf("this machine has no name: %v", err)
	}
	expect.Equal(t, i.ID(), host+":orders:8080", "its id is")
	if i.App != "ORDERS" || i.VIP != "orders" || i.HostName != host || i.Status != registry.Up || i.RenewalInterval != 30 || i.Duration != 90 ||
		i.Port != (registry.Port{Number: 8080, Enabled: true}) {
		t.Errorf("it is %+v", i)
	}
	ip := net.ParseIP(i.IPAddr)
	expect.That(t, ip != nil, "its address is %q", i.IPAddr)
}

func TestAnInstanceWithoutAPortDoesNotListen(t *testing.T) {
	i := NewInstance("orders", 0)
	expect.That(t, !i.Port.Enabled && strings.HasSuffix(i.ID(), ":orders:0"), "it is %+v", i)
}
