package integration

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hudl/fargo"
	"github.com/op/go-logging"

	"github.com/seed-20419f34/rollcall/internal/need"
)

// installed skips the test where a file that `make clients` makes is missing, and says how to get it.
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

// TestEurekaJSClientFollowsDeltas: with shouldUseDelta it never fetches the whole registry again, so
// every change must reach it by delta. It ignores ADDED for an instance that it knows, of any
// server, and so never sees the end of an override: that step is left out.
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

// TestWaspEurekaClientLifeCycle drives PyPI's wasp-eureka, which decodes the body of every response by its Content-Type, an
// empty one, too.
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

// fargoClient is fargo with the loop around it that its users write: it has calls, and no timers.
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

// renew sends a heartbeat every second and registers again where that fails, with the instance as
// it was configured: fargo replaces its copy by what the server shows.
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

// quietFargo turns off what the client logs: its logger is one for the whole process, and not made to be
// set while it is used.
var quietFargo = sync.OnceFunc(func() { logging.SetLevel(logging.CRITICAL, "fargo") })
