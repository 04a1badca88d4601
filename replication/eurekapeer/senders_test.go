package eurekapeer

import (
	"testing"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/replication/link"
)

func TestSenderIsKnownByItsIdentityOrItsAddress(t *testing.T) {
	peers := []link.PeerConfig{
		{Name: "dc2", Kind: link.Datacenter, URLs: []string{"http://10.0.0.9:8761"}},
		{Name: "a", Kind: link.Eureka, URLs: []string{"http://u:p@10.0.0.1:8761/eureka"}},
		{Name: "b", Kind: link.Eureka, URLs: []string{"http://10.0.0.2:8761/eureka"}},
		{Name: "b2", Kind: link.Eureka, URLs: []string{"http://10.0.0.2:8762/eureka"}},
		{Name: "c", Kind: link.Eureka, URLs: []string{"http://localhost:8761/eureka"}},
		{Name: "d", Kind: link.Eureka, URLs: []string{"http://no-such-host.invalid:8761/eureka"}},
		{Name: "e", Kind: link.Eureka, URLs: []string{"http://[2001:db8::1]:8761/eureka"}},
	}
	var senders Senders
	for _, c := range []struct{ name, identity, address, want string }{
		{"address", "", "10.0.0.1:55555", "a"},
		{"identity", "10.0.0.1", "10.9.9.9:55555", "a"},
		{"identity before address", "10.0.0.1", "10.0.0.2:55555", "a"},
		{"unknown identity", "10.9.9.9", "10.0.0.2:55555", "b"},
		{"a host that is looked up", "", "127.0.0.1:55555", "c"},
		{"the host's name as identity", "localhost", "10.9.9.9:1", "c"},
		{"a host that cannot be looked up", "no-such-host.invalid", "10.9.9.9:1", "d"},
		{"mapped address", "", "[::ffff:10.0.0.2]:55555", "b"},
		{"another spelling", "2001:0db8:0::1", "10.9.9.9:1", "e"},
		{"a datacenter is none", "", "10.0.0.9:55555", "eureka"},
		{"no peer", "", "10.9.9.9:55555", "eureka"},
		{"nothing", "", "", "eureka"},
	} {
		expect.Equal(t, senders.Name(peers, c.identity, c.address), c.want, "%s: Name(%q, %q) is", c.name, c.identity, c.address)
	}
}
