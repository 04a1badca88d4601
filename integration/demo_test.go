package integration

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/client/balance"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// TestDemoServiceCallsNeverFail: of its instances one is killed, and one is asked to end. No call
// fails, and from the moment at which the caller's list is without an instance no call goes there.
func TestDemoServiceCallsNeverFail(t *testing.T) {
	t.Parallel()
	demo := filepath.Join(t.TempDir(), "orders")
	out, err := exec.Command("go", "build", "-o", demo, "../docs/examples/orders").CombinedOutput()
	need.That(t, err == nil, "build the demo service: %v\n%s", err, out)
	eachMode(t, func(t *testing.T, ap bool) {
		c := StartCluster(t, Config{AP: ap})
		first, second := startDemo(t, c, demo, "orders-1"), startDemo(t, c, demo, "orders-2")
		caller := startDemoCaller(t, c)
		caller.awaitCalls(t, first, second)

		first.Kill()
		killed := time.Now()
		caller.awaitLeft(t, first)
		t.Logf("the list was without the killed one %v after its end; until then it was dialled %d times in vain", time.Since(killed).Round(time.Millisecond), caller.vain.Load())
		expect.That(t, caller.vain.Load() != 0, "the killed one was never dialled, so that nothing was seen of retries")
		caller.awaitCalls(t, second)

		third := startDemo(t, c, demo, "orders-3")
		caller.awaitCalls(t, second, third)
		second.Signal(t, syscall.SIGTERM)
		second.mustEndWell(t, StopLimit, "the instance that was to end")
		caller.awaitLeft(t, second)
		caller.awaitCalls(t, third)

		t.Logf("calls: %v", &caller.Gaps)
		_, bad := caller.counts()
		expect.That(t, bad <= 0, "calls: %v, want none bad", &caller.Gaps)
		expect.Equal(t, caller.late.Load(), 0, "calls that began after the list was without an instance and went there:")
	})
}

// demoInstance is a process of the demo service.
type demoInstance struct {
	*Process
	id, address string
}

// startDemo starts an instance whose lease lasts 10 s.
func startDemo(t *testing.T, c *Cluster, program, id string) demoInstance {
	t.Helper()
	d := demoInstance{id: id, address: FreeAddr(t)}
	var err error
	d.Process, err = launch(t, filepath.Join(t.TempDir(), id), nil, []string{
		program, "-servers", strings.Join(urls(c.Nodes...), ","), "-listen", d.address, "-id", id, "-lease", "10s",
	})
	need.OK(t, err)
	return d
}

// demoCaller calls the demo service continuously.
type demoCaller struct {
	Gaps
	left atomic.Pointer[map[string]bool] // addresses that the list had and has not any more
	vain atomic.Int64                    // connections that could not be made
	late atomic.Int64                    // calls to instances that had left the list when the calls began

	mu       sync.Mutex
	answered map[string]int // by id
}

// leftKey is where a call's context has the addresses that had left when it began.
type leftKey struct{}

// demoCallers is how many call at the same time, each over connections of its own.
const demoCallers = 4

// startDemoCaller starts to call, with transports that exclude no address: only the list keeps them from trying the
// dead again and again.
func startDemoCaller(t *testing.T, c *Cluster) *demoCaller {
	t.Helper()
	d := &demoCaller{answered: map[string]int{}}
	d.left.Store(&map[string]bool{})
	list := need.Got(goClient(t, client.Config{Servers: urls(c.Nodes...)}).StartDiscovery(client.DiscoveryConfig{App: "orders", OnChange: d.changed}))(t)
	Eventually(t, ReadyLimit, "both instances are listed", func() error {
		return notYet(len(list.Snapshot().App("orders")), 2)
	})
	for range demoCallers {
		base := &http.Transport{DialContext: d.dial}
		t.Cleanup(base.CloseIdleConnections)
		transport := need.Got(balance.New(balance.Config{List: list, Base: base, Avoid: -1}))(t)
		repeat(t, callPause, func(ctx context.Context) {
			if err := d.call(ctx, transport); ctx.Err() == nil {
				d.add(err)
			}
		})
	}
	return d
}

// changed records which instances have left the list.
func (d *demoCaller) changed(old, now *client.Snapshot) {
	left := maps.Clone(*d.left.Load())
	for _, i := range old.App("orders") {
		left[demoAddress(i.IPAddr, i.Port.Number)] = true
	}
	for _, i := range now.App("orders") {
		delete(left, demoAddress(i.IPAddr, i.Port.Number))
	}
	d.left.Store(&left)
}

func demoAddress(ip string, port uint16) string { return net.JoinHostPort(ip, fmt.Sprint(port)) }

// dial connects, and counts the tries to addresses that had left and the tries that failed.
func (d *demoCaller) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if left, _ := ctx.Value(leftKey{}).(map[string]bool); left[address] {
		d.late.Add(1)
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		d.vain.Add(1)
	}
	return conn, err
}

// call calls the service once.
func (d *demoCaller) call(ctx context.Context, transport http.RoundTripper) error {
	left := *d.left.Load()
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, leftKey{}, left), CallLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://orders/", nil)
	if err != nil {
		return err
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if left[resp.Request.URL.Host] {
		d.late.Add(1)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answered[strings.TrimSpace(string(said))]++
	return nil
}

// awaitCalls waits until each of some instances has answered a hundred more calls.
func (d *demoCaller) awaitCalls(t *testing.T, from ...demoInstance) {
	t.Helper()
	const more = 100
	answers := func() map[string]int {
		d.mu.Lock()
		defer d.mu.Unlock()
		return maps.Clone(d.answered)
	}
	before := answers()
	Eventually(t, ReadyLimit, "the instances answer", func() error {
		now := answers()
		for _, i := range from {
			if err := notYet(now[i.id]-before[i.id], more); err != nil {
				return fmt.Errorf("%s: %w; calls: %v", i.id, err, &d.Gaps)
			}
		}
		return nil
	})
}

// awaitLeft waits until the list is without an instance.
func (d *demoCaller) awaitLeft(t *testing.T, i demoInstance) {
	t.Helper()
	Eventually(t, ReadyLimit, "the list is without "+i.id, func() error {
		return unless((*d.left.Load())[i.address], "it was told without %v", *d.left.Load())
	})
}
