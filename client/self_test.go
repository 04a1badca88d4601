package client

import (
	"net"
	"os"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/registry"
)

func TestAnInstanceOfThisMachineCanBeRegistered(t *testing.T) {
	i := NewInstance("Orders", 8080)
	if err := checkInstance(i); err != nil {
		t.Error(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Skipf("this machine has no name: %v", err)
	}
	if got, want := i.ID(), host+":orders:8080"; got != want {
		t.Errorf("its id is %s, want %s", got, want)
	}
	if i.App != "ORDERS" || i.VIP != "orders" || i.HostName != host || i.Status != registry.Up || i.RenewalInterval != 30 || i.Duration != 90 ||
		i.Port != (registry.Port{Number: 8080, Enabled: true}) {
		t.Errorf("it is %+v", i)
	}
	if ip := net.ParseIP(i.IPAddr); ip == nil {
		t.Errorf("its address is %q", i.IPAddr)
	}
}

func TestAnInstanceWithoutAPortDoesNotListen(t *testing.T) {
	i := NewInstance("orders", 0)
	if i.Port.Enabled || !strings.HasSuffix(i.ID(), ":orders:0") {
		t.Errorf("it is %+v", i)
	}
}
