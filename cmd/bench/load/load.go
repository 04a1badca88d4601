// Package load sends what clients send, by a schedule that does not wait for responses, and records the outcomes. It
// speaks HTTP/1.1 by hand over keep-alive connections, because it shares its cores with the servers that it measures:
// net/http's client costs more than those do. It computes no figure from its records (package verdict). Its files:
//
//	load.go      a load's settings, and the requests of an instance's client
//	client.go    the one kind of client, its calls, and which nodes it can reach
//	run.go       when calls are due: streams at a rate, in an open and in a closed loop
//	fleet.go     what the clients of instances do: those that last, that come and go, and that are sealed
//	keys.go      reads and writes of the watched keys, and fetches
//	records.go   counts and latencies, what single clients had to bear, and the history of the watched keys
//	watchers.go  streams of changes
//	conn.go      an HTTP/1.1 connection, which reads what the measured servers send and refuses everything else
//	bulk.go      prepared requests without a scenario, for the table beside peers
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
)

// Config describes a load. The zero values of the optional fields are documented with them.
type Config struct {
	Nodes  []string      // HTTP addresses, host:port
	Load   scenario.Load // rates and instances
	Seed   uint64
	Prefix string // of the applications' names, so that loads do not collide; empty means LOAD
	PerApp int    // instances per application; 0 means ten, or a hundred with more than a thousand in total
	// Connections is how many clients share the open loop's calls of each operation, spread over the nodes; 0 means
	// enough for the rates (for each node as many as calls come due within Timeout, between 8 and 256; for heartbeats
	// one per instance, up to 256). For a closed loop it is the total number of clients; 0 means 8 per node.
	Connections int
	// Closed makes each client send its next call when the last one was answered, as fast as it can, instead of by the
	// rates; the rates then only say which operations there are, and their proportion.
	Closed  bool
	Timeout time.Duration // after which a try is abandoned; 0 means 2 s
	Reach   *Reach        // which nodes the clients can reach; nil means all
	Book    *trial.Book   // records what is certain; may be nil
	History *History      // of the watched keys; nil if it is not kept
	// AwaitListed waits, at the end of Register, until the nodes list what was registered. Instances send heartbeats
	// meanwhile. If nil, Register does not wait.
	AwaitListed func(context.Context) error
}

const defaultTimeout = 2 * time.Second

// Load is a load on a running cluster. Make one with New, Register its instances, and Run it. The methods that
// strike instances may be called while it runs.
type Load struct {
	Config
	recorder recorder
	rates    atomic.Pointer[map[string]float64]
	made     time.Time
	living   context.Context    // ends with Stop, and with the context of Run
	stop     context.CancelFunc // ends living

	mu         sync.Mutex
	started    bool           // Run or Stop was called
	clients    []*client      // made so far
	background sync.WaitGroup // what Stop waits for

	fleet   *fleet
	keys    *watchedKeys
	pollers []*poller // clients that fetch
	flight  flight
	pace    pace
}

// New prepares a load. It sends nothing.
func New(c Config) (*Load, error) {
	switch {
	case len(c.Nodes) == 0:
		return nil, errors.New("a load needs the address of at least one node")
	case c.Connections < 0:
		return nil, fmt.Errorf("%d connections: there must be one at least, or 0 for enough", c.Connections)
	}
	c.setDefaults()
	l := &Load{Config: c, made: time.Now()}
	if l.History != nil {
		l.History.since = l.made
	}
	l.recorder.totals, l.recorder.bins = make(map[trial.Operation]Totals), make(map[place][]trial.Bin)
	l.flight.counts, l.flight.aimed = make([]int, len(l.Nodes)), make([]chan int, len(l.Nodes))
	l.living, l.stop = context.WithCancel(context.Background())
	l.fleet, l.keys = newFleet(l), newKeys(l)
	return l, nil
}

func (c *Config) setDefaults() {
	c.Timeout = cmp.Or(c.Timeout, defaultTimeout)
	c.Prefix = cmp.Or(c.Prefix, "LOAD")
	c.Reach = cmp.Or(c.Reach, new(Reach))
	c.Book = cmp.Or(c.Book, new(trial.Book)) // one that nobody reads
}

// described is an instance as its client describes it to the registry: about 1 KB, as Spring sends it.
type described struct {
	app, id            string
	number             int // of its address
	interval, duration int // of its lease, in seconds
}

// DirtyBase is the lastDirtyTimestamp of version 0, in ms since the epoch. Version n adds n ms, so that the registry's
// conflict rule orders versions.
const DirtyBase = 1767225599000

// appPath returns the path of an application; all its instances' paths are below it.
func (d described) appPath() string { return registryPath + "/" + d.app }

// registryPath is where every system has its registry.
const registryPath = "/eureka/apps"

func (d described) path() string { return d.appPath() + "/" + d.id }

// Registration returns the request that registers an instance, as its client first sends it: number belongs to its
// address, the lease times are in seconds.
func Registration(app, id string, number, interval, duration int) []byte {
	return described{app, id, number, interval, duration}.registration(0)
}

// Renewal returns a heartbeat of an instance registered that way.
func Renewal(app, id string) []byte { return described{app: app, id: id}.renewal(0) }

// registration registers the instance in a version. The commit's hash varies, so that compression gains as little as
// with real instances.
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

// renewal returns the heartbeat that a Java client sends.
func (d described) renewal(version int64) []byte {
	return bodyless("PUT", fmt.Sprintf("%s?status=UP&lastDirtyTimestamp=%d", d.path(), DirtyBase+version))
}

func (d described) cancel() []byte { return bodyless("DELETE", d.path()) }

// lookup reads the instance as an unmodified client does.
func (d described) lookup() []byte { return bodyless("GET", d.path()) }

func bodyless(method, target string) []byte {
	return fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n\r\n", method, target)
}

// seenVersion finds the version in an instance's JSON document: the value of "n" in its metadata. It searches by hand,
// because decoding documents would cost more than the servers need to write them.
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
