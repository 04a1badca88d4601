package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/localcluster"
	"github.com/seed-20419f34/rollcall/internal/wait"
)

// sample is a service of the demo. Its instances exist only in the registry: no port is open.
type sample struct {
	app, team, version string
	instances          int
	port               uint16
	checked            bool // it is registered through Consul's API, with a check
}

var samples = []sample{
	{app: "storefront", team: "web", version: "24.11.2", instances: 4, port: 8080},
	{app: "orders", team: "checkout", version: "3.8.0", instances: 3, port: 8081},
	{app: "payments", team: "checkout", version: "5.1.4", instances: 3, port: 8443},
	{app: "basket", team: "checkout", version: "2.20.1", instances: 3, port: 8082},
	{app: "catalog", team: "products", version: "11.0.3", instances: 4, port: 8083},
	{app: "search", team: "products", version: "7.4.0", instances: 3, port: 9201},
	{app: "prices", team: "products", version: "1.15.2", instances: 2, port: 8084},
	{app: "stock", team: "warehouse", version: "4.2.7", instances: 3, port: 8085},
	{app: "shipping", team: "warehouse", version: "4.2.5", instances: 2, port: 8086},
	{app: "accounts", team: "identity", version: "9.3.1", instances: 3, port: 8087},
	{app: "mail", team: "platform", version: "0.9.8", instances: 2, port: 8025},
	{app: "reports", team: "platform", version: "1.0.6", instances: 1, port: 8088},
	{app: "postgres", team: "platform", version: "16.4", instances: 2, port: 5432, checked: true},
	{app: "redis", team: "platform", version: "7.2.6", instances: 2, port: 6379, checked: true},
}

// sampleKeys are keys that the demo writes.
var sampleKeys = map[string]string{
	"config/orders/max-items": "200", "config/payments/provider": "sandbox", "config/search/synonyms": "on",
	"features/new-basket": "10%", "features/gift-cards": "off",
}

// sampleJobs are locks. Two processes wait for each in turn.
var sampleJobs = []string{"billing/nightly-run", "reports/monthly"}

// Times of the demo: a lease is short, so that a dead instance disappears while somebody watches.
const (
	sampleLease    = 15 // s
	sampleInterval = 5  // s
	sampleTTL      = 20 * time.Second
)

// demo keeps the samples alive in one datacenter.
type demo struct {
	urls []string
	cp   bool // there are keys, locks and checks
	pace time.Duration
	cl   *client.Client
	next int // how many troubles there were
}

// demoPace is the time between two events among the samples of a datacenter.
const demoPace = 4 * time.Second

// runDemo keeps the samples alive in every datacenter, as clients do, until ctx ends.
func runDemo(ctx context.Context, nodes []*localcluster.Node, pace time.Duration) error {
	demos := map[string]*demo{}
	for _, n := range nodes {
		if demos[n.Datacenter] == nil {
			demos[n.Datacenter] = &demo{cp: n.Mode == localcluster.CP, pace: pace}
		}
		demos[n.Datacenter].urls = append(demos[n.Datacenter].urls, n.URL())
	}
	for _, d := range demos {
		var err error
		if d.cl, err = client.New(client.Config{Servers: d.urls}); err != nil {
			return err
		}
	}
	var all sync.WaitGroup
	for dc, d := range demos {
		all.Go(func() { d.run(ctx, dc) })
	}
	all.Wait()
	return nil
}

// run starts everything and returns when ctx has ended and nothing runs any more. What is registered ends with its
// leases.
func (d *demo) run(ctx context.Context, dc string) {
	var all sync.WaitGroup
	var live []*sampleInstance
	for number, s := range samples {
		if s.checked && !d.cp {
			continue
		}
		for i := range s.instances {
			instance := newSampleInstance(s, dc, number, i)
			if s.checked {
				all.Go(func() { d.keepChecked(ctx, s, instance) })
				continue
			}
			live = append(live, &sampleInstance{cl: d.cl, instance: instance})
		}
	}
	for _, i := range live {
		i.start()
	}
	if d.cp {
		for _, job := range sampleJobs {
			for _, worker := range []string{"worker-1", "worker-2"} {
				all.Go(func() { d.work(ctx, job, worker) })
			}
		}
		all.Go(func() { d.write(ctx) })
	}
	wait.Every(ctx, d.pace, func(now time.Time) { d.step(ctx, live, now) })
	all.Wait()
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = d.cl.Close(bounded) // the registrations stay, so there is nothing to lose
}

// newSampleInstance returns instance i of a service, in one of three zones of its datacenter.
func newSampleInstance(s sample, dc string, number, i int) *registry.Instance {
	zone := dc + "-" + string(rune('a'+i%3))
	instance := client.NewInstance(s.app, s.port)
	instance.HostName = fmt.Sprintf("%s-%d.%s.example", s.app, i+1, zone)
	instance.InstanceID = fmt.Sprintf("%s-%d.%s", s.app, i+1, dc)
	instance.IPAddr = fmt.Sprintf("10.%d.%d.%d", len(dc)+int(dc[len(dc)-1]), number+1, i+11)
	instance.Duration, instance.RenewalInterval = sampleLease, sampleInterval
	instance.Metadata = []registry.Pair{{Key: "team", Value: s.team}, {Key: "version", Value: s.version}, {Key: "zone", Value: zone}}
	return instance
}

// sampleInstance is an instance of the demo, registered unless it is dead.
type sampleInstance struct {
	cl           *client.Client
	instance     *registry.Instance
	registration *client.Registration
	until        time.Time // end of its trouble; zero if it has none
}

// start registers the instance. When the registration ends, the instance stays registered, as with a process that
// dies.
func (i *sampleInstance) start() {
	instance := *i.instance
	instance.LastDirty = time.Now().UnixMilli()
	// fails only when the client is closed
	i.registration, _ = i.cl.StartRegistration(client.RegistrationConfig{Instance: &instance, Stay: true})
}

// end ends the instance's process, and with it the heartbeats.
func (i *sampleInstance) end(ctx context.Context) {
	if i.registration != nil {
		_ = i.registration.Deregister(ctx) // with Stay it sends nothing
		i.registration = nil
	}
}

// troubles are what happens to an instance, and for how many paces.
var troubles = []struct {
	paces  int
	happen func(ctx context.Context, i *sampleInstance)
}{
	{4, func(_ context.Context, i *sampleInstance) { i.registration.SetStatus(registry.Down) }},
	{3, func(_ context.Context, i *sampleInstance) { i.registration.SetStatus(registry.OutOfService) }},
	{2, func(ctx context.Context, i *sampleInstance) { // a restart
		i.end(ctx)
		_ = i.cl.Cancel(ctx, i.instance.Key()) // if it fails, the lease ends
	}},
	{8, func(ctx context.Context, i *sampleInstance) { i.end(ctx) }}, // it dies, and its lease ends
}

// most bounds the instances in trouble, so that the registry does not start to doubt what it hears.
const most = 3

// step ends troubles that are over, and begins one.
func (d *demo) step(ctx context.Context, live []*sampleInstance, now time.Time) {
	troubled := 0
	for _, i := range live {
		switch {
		case i.until.IsZero():
		case now.Before(i.until):
			troubled++
		default:
			i.until = time.Time{}
			if i.registration == nil {
				i.start()
			} else {
				i.registration.SetStatus(registry.Up)
			}
		}
	}
	i := live[rand.IntN(len(live))]
	if troubled >= most || !i.until.IsZero() || i.registration == nil {
		return
	}
	trouble := troubles[d.next%len(troubles)]
	d.next++
	i.until = now.Add(time.Duration(trouble.paces) * d.pace)
	trouble.happen(ctx, i)
}

// keepChecked keeps an instance registered as a Consul client does, with a check that warns now and then.
func (d *demo) keepChecked(ctx context.Context, s sample, i *registry.Instance) {
	id := i.InstanceID
	host, _, _ := strings.Cut(i.HostName, ".")
	agent := "/agent/" + host + "/v1/agent" // of Consul's API
	service := map[string]any{
		"Name": s.app, "ID": id, "Address": i.IPAddr, "Port": s.port, "Tags": []string{s.team}, "Meta": map[string]string{"version": s.version},
		"Check": map[string]string{"TTL": sampleTTL.String(), "DeregisterCriticalServiceAfter": "1h"},
	}
	for known := false; ctx.Err() == nil; {
		if !known {
			known = d.put(ctx, agent+"/service/register", service) == nil
		}
		state, note := "pass", fmt.Sprintf("%d connections", 10+rand.IntN(40))
		if rand.IntN(8) == 0 {
			state, note = "warn", "replication is "+strconv.Itoa(2+rand.IntN(9))+" s behind"
		}
		known = known && d.put(ctx, agent+"/check/"+state+"/service:"+id+"?note="+strings.ReplaceAll(note, " ", "+"), nil) == nil
		wait.Pause(ctx, nil, max(d.pace, sampleTTL/4))
	}
}

// put sends a request to the first node that performs it.
func (d *demo) put(ctx context.Context, path string, body any) (err error) {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	for _, url := range d.urls {
		if err = putAt(ctx, url+path, text); err == nil {
			return nil
		}
	}
	return err
}

func putAt(ctx context.Context, url string, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, client.DefaultTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body) // so that the connection can be used again
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("PUT %s: %s", url, resp.Status)
	}
	return nil
}

// work repeatedly waits for a job's lock, holds it for some paces and gives it back.
func (d *demo) work(ctx context.Context, job, worker string) {
	for ctx.Err() == nil {
		held, err := d.cl.AcquireLock(ctx, client.LockOptions{Name: job, Value: []byte(worker)})
		if err != nil {
			wait.Pause(ctx, nil, d.pace)
			continue
		}
		wait.Pause(ctx, nil, time.Duration(2+rand.IntN(4))*d.pace)
		release, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		_ = held.Release(release) // otherwise its session ends
		cancel()
	}
}

// write writes the sample keys, and then a counter.
func (d *demo) write(ctx context.Context) {
	kv := d.cl.KV()
	for key, value := range sampleKeys {
		for kv.Put(ctx, key, []byte(value)) != nil && ctx.Err() == nil {
			wait.Pause(ctx, nil, d.pace)
		}
	}
	for day := 1; ctx.Err() == nil; day++ {
		_ = kv.Put(ctx, "reports/last-run", []byte("run "+strconv.Itoa(day))) // the next one follows soon
		wait.Pause(ctx, nil, 5*d.pace)
	}
}
