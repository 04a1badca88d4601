// Package load sends what clients send, by a schedule that does not wait for answers, and records what came
// of it. It speaks HTTP/1.1 by hand over keep-alive connections, because it shares its cores with the
// servers that it measures.
package load

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/bench/truth"
	"github.com/seed-20419f34/rollcall/cmd/bench/wire"
)

// Config says what a load is. The zero values of the optional fields are documented with them.
type Config struct {
	Nodes  []string      // HTTP addresses, host:port
	Load   scenario.Load // rates and instances
	Seed   uint64
	Prefix string // of the applications' names, so that loads do not meet; "": LOAD
	// Connections is how many clients share the open loop's calls of each operation, spread over the nodes; 0:
	// enough for the rates (of each node as many as calls come due within Timeout, between 8 and 256; of
	// heartbeats one for each instance, up to 256). Of a closed loop it is how many clients there are in all;
	// 0: 8 of each node.
	Connections int
	// Closed makes each client send its next call when the last one was answered, as fast as it can, instead of
	// by the rates; the rates then say only which operations there are, and in which proportion.
	Closed  bool
	Timeout time.Duration // after which a try is given up; 0: 2 s
	Reach   *Reach        // whom the clients can reach; nil: everybody
	Book    *truth.Book   // is told what is certain; nil: nobody is
	History *History      // of the watched keys; nil: it is not kept
}

const defaultTimeout = 2 * time.Second

// Load is a load on a running cluster. Make one with New, Register its instances, and Run it. The methods that
// strike instances may be called while it runs.
type Load struct {
	Config
	recorder *recorder
	numbers  atomic.Int64 // of callers that were made
	rates    atomic.Pointer[map[string]float64]

	mu         sync.Mutex
	started    bool               // Run or Stop was called
	stop       context.CancelFunc // nil: there is nothing to stop
	background sync.WaitGroup     // what Stop waits for

	watched watchCounts // by the watchers
	fleet   *fleet
	keys    *watchedKeys
}

// New lays a load out. Nothing is sent yet.
func New(c Config) (*Load, error) {
	switch {
	case len(c.Nodes) == 0:
		return nil, errors.New("a load needs the address of at least one node")
	case c.Connections < 0:
		return nil, fmt.Errorf("%d connections: there must be one at least, or 0 for enough", c.Connections)
	}
	c.Timeout = cmp.Or(c.Timeout, defaultTimeout)
	c.Prefix = cmp.Or(c.Prefix, "LOAD")
	if c.Reach == nil {
		c.Reach = new(Reach)
	}
	l := &Load{Config: c, recorder: newRecorder(len(c.Nodes))}
	l.fleet, l.keys = newFleet(l), newKeys(l)
	return l, nil
}

// Register registers all instances (Load.Instances) and the watched keys, as fast as the cluster takes them,
// and returns when all were acknowledged.
func (l *Load) Register(ctx context.Context) error {
	return errors.Join(l.fleet.register(ctx), l.keys.register(ctx))
}

// described is an instance as its client describes it to the registry: about 1 KB, as Spring sends it.
type described struct {
	app, id            string
	number             int // of its address
	interval, duration int // of its lease, in seconds
}

// DirtyBase is the lastDirtyTimestamp of version 0, in ms since the epoch. That of a version is as many ms
// later, so that the registry's conflict rule orders versions.
const DirtyBase = 1767225599000

// appPath is the path of an application, of which all instances' paths are below.
func (d described) appPath() string { return "/eureka/v2/apps/" + d.app }

func (d described) path() string { return d.appPath() + "/" + d.id }

// Registration is what registers an instance, as its client sends it first: number is that of its address, the times of
// its lease are in seconds.
func Registration(app, id string, number, interval, duration int) []byte {
	return described{app, id, number, interval, duration}.registration(0)
}

// Renewal is a heartbeat of an instance that was registered so.
func Renewal(app, id string) []byte { return described{app: app, id: id}.renewal(0) }

// registration registers the instance in a version. The commit's hash varies, so that compression finds no
// more in it than in real instances.
func (d described) registration(version int64) []byte {
	host, _, _ := strings.Cut(d.id, ":")
	random := rand.New(rand.NewPCG(1, uint64(d.number)))
	body := fmt.Appendf(nil, `{"instance":{"instanceId":%q,"app":%q,"hostName":%q,"ipAddr":"10.%d.%d.%d","status":"UP","overriddenStatus":"UNKNOWN",`+
		`"port":{"$":8080,"@enabled":"true"},"securePort":{"$":443,"@enabled":"false"},"countryId":1,`+
		`"dataCenterInfo":{"@class":"com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo","name":"MyOwn"},`+
		`"leaseInfo":{"renewalIntervalInSecs":%d,"durationInSecs":%d},`+
		`"metadata":{"n":"%d","management.port":"8081","zone":"zone-%c","commit":"%016x"},`+
		`"homePageUrl":"http://%s:8080/","statusPageUrl":"http://%s:8081/actuator/info","healthCheckUrl":"http://%s:8081/actuator/health",`+
		`"vipAddress":%q,"secureVipAddress":%q,"isCoordinatingDiscoveryServer":"false",`+
		`"lastUpdatedTimestamp":"%d","lastDirtyTimestamp":"%d","actionType":"ADDED"}}`,
		d.id, d.app, host, d.number>>16&0xff, d.number>>8&0xff, d.number&0xff, d.interval, d.duration,
		version, 'a'+d.number%3, random.Uint64(), host, host, host, d.app, d.app, DirtyBase+version, DirtyBase+version)
	head := fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n", d.appPath(), len(body))
	return append(head, body...)
}

// renewal is the heartbeat that a Java client sends.
func (d described) renewal(version int64) []byte {
	return bodyless("PUT", fmt.Sprintf("%s?status=UP&lastDirtyTimestamp=%d", d.path(), DirtyBase+version))
}

func (d described) cancel() []byte { return bodyless("DELETE", d.path()) }

// look reads the instance as an unmodified client does it.
func (d described) look() []byte { return bodyless("GET", d.path()) }

func bodyless(method, target string) []byte {
	return fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n\r\n", method, target)
}

// seenVersion finds the version in an instance's JSON document: the entry "n" of its metadata. It is
// looked for by hand, because decoding documents would cost more than answering them.
func seenVersion(document []byte) (version int64, ok bool) {
	_, rest, ok := bytes.Cut(document, []byte(`"metadata"`))
	if !ok {
		return 0, false
	}
	_, rest, ok = bytes.Cut(rest, []byte(`"n"`))
	if !ok {
		return 0, false
	}
	digits, _, _ := bytes.Cut(bytes.TrimLeft(rest, " :\""), []byte(`"`))
	version, err := strconv.ParseInt(string(digits), 10, 64)
	return version, err == nil
}

const (
	leaveRounds = 10                     // of looking for watched keys that came back
	leavePause  = 200 * time.Millisecond // between them
)

// Leave cancels what the load has registered and not canceled yet: instances and watched keys. Call it after
// Stop. The error says how many may still be registered, until their leases end.
func (l *Load) Leave(ctx context.Context) error {
	all := l.registered()
	_, failed := l.cancel(ctx, all, false)
	l.leaveKeys(ctx)
	if failed > 0 {
		return fmt.Errorf("%d of %d instances could not be canceled", failed, len(all))
	}
	return nil
}

// leaveKeys cancels the watched keys at every node until none of them knows one: without consensus, a write
// that another node was just told may arrive after the cancel, and is newer than what was canceled.
func (l *Load) leaveKeys(ctx context.Context) {
	var all []leaving
	for _, key := range l.keys.keys {
		for home := range l.Nodes {
			all = append(all, leaving{key.described, home})
		}
	}
	for range leaveRounds {
		if done, _ := l.cancel(ctx, all, true); done == 0 || !wire.Pause(ctx, leavePause) {
			return
		}
	}
}

// leaving is an instance that is to be canceled, and the node which was told of it first: another one may not
// have heard of it yet.
type leaving struct {
	described
	home int
}

// registered are the instances that are, or may be, registered. Those that come and go are planned to leave
// as long as they have not.
func (l *Load) registered() []leaving {
	l.fleet.mu.Lock()
	defer l.fleet.mu.Unlock()
	var all []leaving
	for _, i := range l.fleet.lasting {
		all = append(all, leaving{i.described, i.home})
	}
	for _, a := range l.fleet.agendas {
		for _, p := range a.plans {
			if !p.leaves.IsZero() && p.mode != gone && p.planned.Equal(p.due) {
				all = append(all, leaving{p.described, p.home})
			}
		}
	}
	for _, key := range l.keys.keys {
		all = append(all, leaving{key.described, key.writers[0].home})
	}
	return all
}

// cancel cancels instances, each by a client of its home, and counts those that were registered there, and
// those about which nobody gave an answer.
func (l *Load) cancel(ctx context.Context, all []leaving, pinned bool) (done, failed int64) {
	var left, lost atomic.Int64
	var clients sync.WaitGroup
	waiting := byHome(all, len(l.Nodes))
	for _, c := range l.newCallers(errandClients * len(l.Nodes)) {
		clients.Go(func() {
			defer c.close()
			for i := range waiting[c.home] {
				switch outcome := c.call(ctx, i.cancel(), pinned).outcome; {
				case !outcome.Answered():
					lost.Add(1)
				case outcome == trial.Done:
					left.Add(1)
				}
			}
		})
	}
	clients.Wait()
	return left.Load(), lost.Load()
}

// byHome are queues, one for each home.
func byHome(all []leaving, homes int) []chan leaving {
	queues := make([]chan leaving, homes)
	for home := range queues {
		queues[home] = make(chan leaving, len(all))
	}
	for _, i := range all {
		queues[i.home] <- i
	}
	for _, q := range queues {
		close(q)
	}
	return queues
}
