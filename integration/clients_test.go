package integration

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hudl/fargo"
	"github.com/op/go-logging"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/client/balance"
	"github.com/seed-20419f34/rollcall/fsm/codec"
	"github.com/seed-20419f34/rollcall/httpd/httpdtest"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// installed skips the test if a file that `make clients` makes is missing, and says how to get it.
func installed(t *testing.T, file, advice string) {
	t.Helper()
	_, err := os.Stat(filepath.Join("clients", file))
	need.Present(t, err == nil, "clients/%s is missing: %s", file, advice)
}

// TestEurekaJSClientLifeCycle drives npm's eureka-js-client.
func TestEurekaJSClientLifeCycle(t *testing.T) {
	installed(t, "node/node_modules/.stamp", "run make clients")
	t.Parallel()
	testLifeCycle(t, func(t *testing.T) stockClient { return startDriver(t, "node", "node", "driver.js") })
}

// With shouldUseDelta it never fetches the whole registry again, so every change must reach it by delta. It ignores
// ADDED for an instance that it knows, from any server, and so never sees the end of an override: that step is left
// out.
func TestEurekaJSClientFollowsDeltas(t *testing.T) {
	installed(t, "node/node_modules/.stamp", "run make clients")
	t.Parallel()
	eachMode(t, func(t *testing.T, ap bool) {
		c := StartCluster(t, withSteadyLeader(smallConfig(ap, 2)))
		client := startDriver(t, "node", "node", "driver.js")
		client.delta = true
		life := newLifeCycle(c, c.Nodes[1], "delta", client)
		life.starts(t)
		life.discovers(t)
		life.isOverridden(t)
		life.stops(t)
	})
}

// TestPyEurekaClientLifeCycle drives PyPI's py_eureka_client, which reads XML and follows deltas.
func TestPyEurekaClientLifeCycle(t *testing.T) {
	installed(t, "python/.venv/.stamp", "apt-get install -y python3-venv, then make clients")
	t.Parallel()
	testLifeCycle(t, func(t *testing.T) stockClient {
		d := startDriver(t, "python", ".venv/bin/python", "driver.py")
		d.overrides = true
		return d
	})
}

// It drives PyPI's wasp-eureka, which decodes the body of every response by its Content-Type, even an empty one.
func TestWaspEurekaClientLifeCycle(t *testing.T) {
	installed(t, "python/.venv/.stamp", "apt-get install -y python3-venv, then make clients")
	t.Parallel()
	testLifeCycle(t, func(t *testing.T) stockClient {
		d := startDriver(t, "python", ".venv/bin/python", "wasp.py")
		d.overrides = true
		return d
	})
}

// TestNetflixJavaClientLifeCycle drives the original client, com.netflix.eureka:eureka-client, which
// follows deltas and compares their hash.
func TestNetflixJavaClientLifeCycle(t *testing.T) { testJavaClient(t, "netflix") }

// TestSpringCloudClientLifeCycle drives a Spring Boot application with Spring Cloud's own transport,
// RestClient, which reads strictly and registers in a spelling of its own.
func TestSpringCloudClientLifeCycle(t *testing.T) { testJavaClient(t, "spring") }

func testJavaClient(t *testing.T, module string) {
	installed(t, "java/target/.stamp", "apt-get install -y default-jdk-headless maven, then make clients")
	t.Parallel()
	testLifeCycle(t, func(t *testing.T) stockClient {
		d := startJava(t, "java", "-Xmx192m", "-jar", module+"/target/driver.jar")
		d.overrides = true
		return d
	})
}

// TestFargoLifeCycle drives github.com/hudl/fargo, which speaks XML by default and JSON on request.
func TestFargoLifeCycle(t *testing.T) {
	quietFargo()
	for name, json := range map[string]bool{"XML": false, "JSON": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testLifeCycle(t, func(t *testing.T) stockClient { return newFargoClient(t, json) })
		})
	}
}

// fargoClient is fargo with the loop around it that its users write: it has calls, but no timers.
type fargoClient struct {
	t    *testing.T
	json bool
	conn fargo.EurekaConnection
	own  fargo.Instance
	end  context.CancelFunc
	beat chan struct{} // closed when the loop has ended
}

func newFargoClient(t *testing.T, json bool) *fargoClient { return &fargoClient{t: t, json: json} }

func (f *fargoClient) Start(url, app, id string, lease int) error {
	f.conn = fargo.NewConn(url)
	f.conn.UseJson = f.json
	f.own = fargo.Instance{
		InstanceId: id, App: app, HostName: "127.0.0.1", IPAddr: "127.0.0.1", Port: 8080, PortEnabled: true,
		VipAddress: app, Status: fargo.UP,
		DataCenterInfo: fargo.DataCenterInfo{Name: fargo.MyOwn},
		LeaseInfo:      fargo.LeaseInfo{RenewalIntervalInSecs: 1, DurationInSecs: int32(lease)},
	}
	if err := f.conn.RegisterInstance(&f.own); err != nil {
		return err
	}
	ctx, end := context.WithCancel(f.t.Context())
	f.end, f.beat = end, make(chan struct{})
	go f.renew(ctx)
	f.t.Cleanup(func() {
		end()
		<-f.beat
	})
	return nil
}

// renew sends a heartbeat every second and registers again if that fails, with the instance as it was configured:
// fargo replaces its copy with what the server shows.
func (f *fargoClient) renew(ctx context.Context) {
	defer close(f.beat)
	for pause(ctx, time.Second) {
		own := f.own
		if f.conn.HeartBeatInstance(&own) == nil {
			continue
		}
		own.Status = fargo.UP
		_ = f.conn.ReregisterInstance(&own) // the next beat tries again
	}
}

func (f *fargoClient) Discover(app string) (map[string]string, error) {
	apps, err := f.conn.GetApps()
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	if app, ok := apps[strings.ToUpper(app)]; ok {
		for _, instance := range app.Instances {
			found[instance.InstanceId] = string(instance.Status)
		}
	}
	return found, nil
}

func (f *fargoClient) Override(status string) error {
	own := f.own
	return f.conn.UpdateInstanceStatus(&own, fargo.StatusType(status))
}

func (f *fargoClient) Restore() error { return errNoCall }

func (f *fargoClient) Stop() error {
	f.end()
	<-f.beat
	return f.conn.DeregisterInstance(&f.own)
}

// quietFargo turns off the client's logging: its logger is shared by the whole process, and must not be changed while
// it is used.
var quietFargo = sync.OnceFunc(func() { logging.SetLevel(logging.CRITICAL, "fargo") })

// shows returns nil if a node shows an instance, alone and within the lists, in JSON and XML.
func shows(n *Node, app, id string) error {
	for _, form := range []string{"application/json", "application/xml"} {
		for _, resource := range []string{path(app, id), "/eureka/apps/", "/eureka/v2/apps/" + app} {
			response := n.Do(Request{Path: resource, Accept: form})
			if response.Status != http.StatusOK || !bytes.Contains(response.Body, []byte(id)) {
				return response.failure(n, fmt.Sprintf("%s as %s, want 200 with %q in it", resource, form, id))
			}
		}
	}
	return nil
}

// It runs the protocol's suite against a node of a cluster in either mode: with consensus one that does not lead, so
// that every write is forwarded.
func TestConformance(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, ap bool) {
		c := StartCluster(t, withSteadyLeader(Config{AP: ap}))
		c.awaitLevel(t, codec.Newest)
		n := c.Nodes[0]
		if !ap {
			n = c.Others(c.Leader())[0]
		}
		httpdtest.RunSuite(t, httpdtest.Target{URL: n.URL(), Consensus: !ap})
	})
}

// Of its instances one is killed, and one is asked to stop. No call fails, and from the moment the caller's list
// lacks an instance no call goes there.
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
	left atomic.Pointer[map[string]bool] // addresses that the list had and no longer has
	vain atomic.Int64                    // connections that could not be made
	late atomic.Int64                    // calls to instances that had left the list when the calls began

	mu       sync.Mutex
	answered map[string]int // by id
}

// leftKey is the context key for the addresses that had left when a call began.
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

// awaitLeft waits until the list lacks an instance.
func (d *demoCaller) awaitLeft(t *testing.T, i demoInstance) {
	t.Helper()
	Eventually(t, ReadyLimit, "the list is without "+i.id, func() error {
		return unless((*d.left.Load())[i.address], "it was told without %v", *d.left.Load())
	})
}
