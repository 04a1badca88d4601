package eurekapeer

import (
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/replication/batcher"
	"github.com/seed-20419f34/rollcall/replication/link"
	"github.com/seed-20419f34/rollcall/replication/peertest"
)

func formatDirty(i peertest.EurekaItem) string { return strconv.FormatInt(int64(i.LastDirty), 10) }

func TestFaultsOfAEurekaServer(t *testing.T) {
	for _, c := range []struct {
		name string
		fail func(http.ResponseWriter, *http.Request) bool
		want batcher.Result
		says string
	}{
		{"503", peertest.RespondWith(503, ""), batcher.Congestion, "503"},
		{"hang", peertest.Hang, batcher.Congestion, "exceeded"},
		{"closes at once", peertest.Drop, batcher.TransientError, "EOF"},
		{"closes in the middle", peertest.CutOff, batcher.TransientError, "was cut off"},
		{"400", peertest.RespondWith(400, ""), batcher.PermanentError, "400"},
		{"401", peertest.RespondWith(401, ""), batcher.PermanentError, "401"},
		{"429", peertest.RespondWith(429, ""), batcher.PermanentError, "429"},
		{"500", peertest.RespondWith(500, "oops"), batcher.PermanentError, "500"},
		{"redirect", func(w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
			return true
		}, batcher.PermanentError, "307"},
		{"garbage", peertest.RespondWith(200, "<html>"), batcher.PermanentError, "cannot be read"},
		{"too few results", peertest.RespondWith(200, `{"responseList":[]}`), batcher.Success, "1 items were answered by 0 results"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := peertest.NewEureka(t)
			connect, read := 20*time.Second, 20*time.Second
			if c.name == "hang" { // and it accepts both
				connect, read = time.Second, 100*time.Millisecond
			}
			s := newEurekaSide(t, link.PeerConfig{URLs: []string{f.Service()}, Flow: link.Flow{ConnectTimeout: connect, ReadTimeout: read}})
			s.Perform(t, register(peertest.Instance("ORDERS", "i1", 1000)))
			f.FailWith(c.fail)
			got := s.link.Process(t.Context(), link.Task{Key: key("ORDERS", "i1"), Facts: link.Registered})
			expect.That(t, got == c.want && len(s.failures) == 1 && strings.Contains(s.failures[0], c.says) && len(s.sent)+s.successes == 0,
				"result %d, failures %q, sent %q; want %d and one failure with %q", got, s.failures, s.sent, c.want, c.says)
		})
	}
}

func TestFaultOfAServerThatCannotBeReachedIsOneOfTheNetwork(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections, and says nothing
	need.OK(t, err)
	defer silent.Close()
	for _, url := range []string{"https://u:secret@" + silent.Addr().String() + "/eureka", "http://u:secret@127.0.0.1:1/eureka", "http://u:secret@no-such-host.invalid/eureka"} {
		s := newEurekaSide(t, link.PeerConfig{URLs: []string{url}, Flow: link.Flow{ConnectTimeout: 100 * time.Millisecond}})
		s.Perform(t, register(peertest.Instance("ORDERS", "i1", 1000)))
		got := s.link.Process(t.Context(), link.Task{Key: key("ORDERS", "i1"), Facts: link.Registered})
		expect.That(t, got == batcher.TransientError && len(s.failures) == 1, "%s: result %d, failures %q; want a transient error", url, got, s.failures)
		text := strings.Join(append(s.failures, s.link.URL(), s.log.String()), " ")
		expect.That(t, !strings.Contains(text, "secret"), "%s: the password is shown: %s", url, text)
	}
}

func TestItemThatTheServerRefusesSpoilsNoOther(t *testing.T) {
	f := peertest.NewEureka(t)
	s := newEurekaSide(t, link.PeerConfig{URLs: []string{f.Service()}})
	s.Perform(t, register(peertest.Instance("ORDERS", "i1", 1000)), register(peertest.Instance("ORDERS", "i2", 1000)))
	f.FailWith(peertest.OnlyBatches(peertest.RespondWith(200, `{"responseList":[{"statusCode":500},{"statusCode":404}]}`)))
	result := s.link.ProcessBatch(t.Context(), []link.Task{
		{Key: key("ORDERS", "i1"), Facts: link.Registered}, {Key: key("ORDERS", "i2"), Facts: link.Heartbeat},
	})
	expect.That(t, result == batcher.Success && len(s.submitted) == 1 && s.submitted[0].Key.ID == "i2" && s.submitted[0].Facts == link.Registered,
		"result %d, then queued %+v; want success, and the registration of i2", result, s.submitted)
	expect.Slice(t, s.refused, []string{"register ORDERS/i1: Register was answered 500 Internal Server Error"}, "refused")
	expect.Equal(t, s.gaveUp, 1, "items that were given up")
}

// The real server's decoder refuses a batch over a single thing that it does not know. It reads ours: every action,
// with every field that an instance can have.
func TestBatchHoldsNothingThatAStrictServerDoesNotKnow(t *testing.T) {
	f := peertest.NewEureka(t)
	s := newEurekaSide(t, link.PeerConfig{URLs: []string{f.Service()}})
	full := peertest.Instance("ORDERS", "i1", 1000)
	full.SID, full.AppGroup, full.ASG = "7", "SHOP", "orders-v1"
	full.HomePageURL, full.StatusPageURL, full.HealthCheckURL, full.SecureHealthURL = "http://h/", "http://h/s", "http://h/h", "https://h/h"
	full.SecureVIP, full.SecurePort = "orders-s", registry.Port{Number: 8443, Enabled: true}
	full.Metadata = []registry.Pair{{Key: "zone", Value: "a"}, {Key: `odd "key"`, Value: "ä\n"}}
	s.Perform(t, register(full), register(peertest.Instance("ORDERS", "i2", 1000)), registry.SetOverride{Key: key("ORDERS", "i2"), Status: registry.Down})
	s.deliver(t,
		link.Task{Key: key("ORDERS", "i1"), Facts: link.Registered, NewLife: true}, link.Task{Key: key("ORDERS", "i2"), Facts: link.Registered | link.Overridden},
		link.Task{Key: key("ORDERS", "i3"), Facts: link.Canceled})
	s.deliver(t, link.Task{Key: key("ORDERS", "i1"), Facts: link.Heartbeat}, link.Task{Key: key("ORDERS", "i2"), Facts: link.Heartbeat})
	batches, _ := f.Received()
	for _, b := range batches {
		expect.That(t, b.Items != nil, "the server cannot read %s", b.Body)
		for _, i := range b.Items {
			expect.That(t, i.Instance == nil || i.Instance.Lacks() == "", "the instance of %s lacks something", b.Body)
		}
	}
	f.Has(t, "ORDERS/i1 UP 1000", "ORDERS/i2 DOWN 1000 overridden DOWN")
	expect.That(t, len(s.submitted)+len(s.failures) == 0, "the results asked for %+v, failures %q; want none", s.submitted, s.failures)
}

func TestCallsHaveTheHeadersOfEurekaServers(t *testing.T) {
	f := peertest.NewEureka(t)
	f.User = "us:pass"
	s := newEurekaSide(t, link.PeerConfig{URLs: []string{strings.Replace(f.Service(), "://", "://us:pass@", 1)}})
	s.Perform(t, register(peertest.Instance("ORDERS", "i1", 1000)))
	s.deliver(t, link.Task{Key: key("ORDERS", "i1"), Facts: link.Registered})
	batches, _ := f.Received()
	need.That(t, len(batches) == 1, "%d batches arrived with the password of the URL, want 1", len(batches))
	for name, want := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json", "DiscoveryIdentity-Name": "DefaultServer",
		"DiscoveryIdentity-Version": "1.0", "DiscoveryIdentity-Id": "127.0.0.1", "x-netflix-discovery-replication": "true",
	} {
		expect.Equal(t, batches[0].Header.Get(name), want, "%s:", name)
	}
}

func TestSingleCallsMatchThoseOfClientsPlusTheReplicationHeader(t *testing.T) {
	f := peertest.NewEureka(t)
	s := newEurekaSide(t, link.PeerConfig{URLs: []string{f.Service()}, Single: true})
	id := "host:a#1.[3.?]!"
	i := peertest.Instance("ORDERS", id, 1000)
	k := i.Key()
	s.Perform(t, register(i))
	s.deliver(t, link.Task{Key: k, Facts: link.Registered, NewLife: true})
	s.Perform(t, registry.SetOverride{Key: k, Status: registry.OutOfService})
	s.deliver(t, link.Task{Key: k, Facts: link.Overridden})
	s.deliver(t, link.Task{Key: k, Facts: link.Heartbeat})
	s.Perform(t, registry.Cancel{Key: k})
	s.deliver(t, link.Task{Key: k, Facts: link.Canceled})
	path := "/eureka/apps/ORDERS/host:a%231.%5B3.%3F%5D%21"
	want := []string{
		"POST /eureka/apps/ORDERS",
		"DELETE " + path + "/status?lastDirtyTimestamp=1000&value=UP",
		"PUT " + path + "/status?lastDirtyTimestamp=1000&value=OUT_OF_SERVICE",
		"PUT " + path + "?lastDirtyTimestamp=1000&overriddenstatus=OUT_OF_SERVICE&status=OUT_OF_SERVICE",
		"DELETE " + path,
	}
	_, calls := f.Received()
	for n, c := range calls {
		expect.That(t, n < len(want) && c.What == want[n] && c.Replicated && c.Status/100 == 2,
			"call %d: %s, replicated %v, answered %d; want %s", n, c.What, c.Replicated, c.Status, want[min(n, len(want)-1)])
	}
	expect.That(t, len(calls) == len(want), "%d calls, want %d", len(calls), len(want))
}

func TestSingleCallThatIsRefusedIsFinalForItsTask(t *testing.T) {
	for status, want := range map[int]batcher.Result{400: batcher.PermanentError, 500: batcher.PermanentError, 503: batcher.Congestion} {
		f := peertest.NewEureka(t)
		s := newEurekaSide(t, link.PeerConfig{URLs: []string{f.Service()}, Single: true})
		s.Perform(t, register(peertest.Instance("ORDERS", "i1", 1000)))
		f.FailWith(peertest.RespondWith(status, ""))
		got := s.link.Process(t.Context(), link.Task{Key: key("ORDERS", "i1"), Facts: link.Registered})
		expect.That(t, got == want && len(s.failures) == 1, "answered %d: result %d, failures %q; want %d", status, got, s.failures, want)
	}
}
