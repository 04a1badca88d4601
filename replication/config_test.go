package replication

import (
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry/registrytest"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func validConfig() Config {
	return Config{
		Service: registrytest.New(), Datacenter: "dc1", Node: "n1",
		Sender: func() string { return "dc1" },
	}
}

func TestNewReportsEveryMistakeAtOnce(t *testing.T) {
	c := Config{
		Datacenter: "dc1", Consensus: true,
		Peers: []PeerConfig{
			{Name: "dc2", Kind: Datacenter, URLs: []string{"http://a:1", "ftp://b:1"}},
			{Name: "dc2", Kind: Datacenter, URLs: []string{"a:1/"}},
			{Name: "n2", Kind: Node, URLs: []string{"http://a:1/"}},
			{Kind: Eureka, URLs: []string{"http://a:1/eureka", "http://b:1/eureka"}},
			{Name: "dc1", Kind: Datacenter, Single: true},
		},
	}
	_, err := New(c)
	need.That(t, err != nil, "accepted")
	for _, want := range []string{
		"there is no Service", "the own node must have a name (Node)", "there is no Sender",
		`peer dc2: URL "ftp://b:1" must be absolute`, "peer dc2: another peer has this name",
		"peer n2: the nodes of a datacenter with consensus do not replicate to each other",
		`peer n2: URL "http://a:1/" must have no slash at its end`,
		"peer number 4: Name is missing", "peer number 4: it has 2 URLs: each Eureka server is a peer of its own",
		"peer dc1: it has the name of the own datacenter", "peer dc1: Single is for Eureka servers only", "peer dc1: URLs is empty",
	} {
		expect.That(t, strings.Contains(err.Error(), want), "does not say %q:\n%v", want, err)
	}
}

func TestMistakesDoNotShowPasswords(t *testing.T) {
	for _, u := range []string{"ftp://user:secret@a:1", "http://user:secret@a:1/", "http://user:secret@a:b"} {
		c := validConfig()
		c.Peers = []PeerConfig{{Name: "dc2", Kind: Datacenter, URLs: []string{u}}}
		_, err := New(c)
		expect.That(t, err != nil && !strings.Contains(err.Error(), "secret"), "%s: got %v", u, err)
	}
}

func TestZeroNumbersAreDefaults(t *testing.T) {
	c := validConfig()
	c.Peers = []PeerConfig{{Name: "dc2", Kind: Datacenter, URLs: []string{"http://a:1"}, Flow: Flow{Queue: 7}}}
	got := c.withDefaults()
	p := got.Peers[0]
	if got.Digest != time.Minute || got.CopyWait != 3*time.Second || p.BatchSize != 250 || p.BatchDelay != 500*time.Millisecond || p.Queue != 7 ||
		p.Workers != 20 || p.CongestionDelay != time.Second || p.NetworkDelay != 100*time.Millisecond ||
		p.MaxDelay != 30*time.Second || p.Expiry != 30*time.Second || p.ConnectTimeout != time.Second || p.ReadTimeout != 5*time.Second {
		t.Errorf("got %+v", got)
	}
	expect.That(t, c.Peers[0].BatchSize == 0, "the caller's configuration was changed")
}
