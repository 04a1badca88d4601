package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/seed-20419f34/rollcall/cmd/bench/wire"
)

// workload makes the requests of one connection out of conns: each call of the returned function
// gives the next one, complete and valid until the next call; nil ends the connection's work.
type workload func(conn, conns int) (next func() []byte)

// httpLoad is requests to be sent over keep-alive connections. Connection i goes to target i modulo
// their number.
type httpLoad struct {
	targets  []string // addresses
	conns    int
	requests workload
	want     int           // the only right status
	warm     time.Duration // sent before it counts
	window   time.Duration // that counts
	burst    int           // of an open loop: how many requests are due at the same time; 0: each by itself
	insist   bool          // repeat what is answered 503, because it was certainly not done; for what only prepares
}

// Bounds of a load, so that a server that does not answer ends the run instead of stopping it.
const (
	benchGrace    = 10 * time.Second // for answers after the window; a server takes 4 s to call an outcome unknown
	benchLongest  = 10 * time.Minute // of a load without a window
	benchLoadDial = 5 * time.Second
	benchInsist   = 20 * time.Millisecond // until what was answered 503 is sent again
)

// closed sends each connection's next request when the previous one was answered, and counts what was
// sent and answered within the window. A load without a window ends when its requests do, and counts
// all of them.
func (l httpLoad) closed(ctx context.Context) (*loadResult, error) {
	return l.run(func(s *loadSender, next func() []byte) {
		for s.err == nil && ctx.Err() == nil {
			now := time.Now()
			if l.window > 0 && !now.Before(s.end) {
				return
			}
			request := next()
			if request == nil {
				return
			}
			s.closed(request, now)
		}
	}, ctx)
}

// open sends rate requests a second by a schedule that does not wait for answers, as many independent
// clients would. A request that finds its connection busy is sent late, and its latency counts from
// when it should have been sent: a server that stalls cannot hide the requests that it kept from
// being sent.
func (l httpLoad) open(ctx context.Context, rate float64) (*loadResult, error) {
	p := wire.NewPacer(rate, l.conns, l.warm+l.window)
	p.Burst = max(l.burst, 1)
	return l.run(func(s *loadSender, next func() []byte) {
		for intended := range p.Due(s.conn) {
			if s.err != nil || ctx.Err() != nil {
				return
			}
			s.open(next(), intended)
		}
	}, ctx, p.Run)
}

// run opens the connections, lets work send on each of them at the same time and beside it, and adds up.
func (l httpLoad) run(work func(*loadSender, func() []byte), ctx context.Context, beside ...func(context.Context)) (*loadResult, error) {
	senders, err := l.dial()
	defer closeSenders(senders)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	var wg sync.WaitGroup
	for _, s := range senders {
		s.begin, s.end = start.Add(l.warm), start.Add(l.warm+l.window)
		if l.insist {
			s.again = func() bool { return pauseBench(ctx, benchInsist) }
		}
		wg.Go(func() { work(s, l.requests(s.conn, l.conns)) })
	}
	for _, b := range beside {
		wg.Go(func() { b(ctx) })
	}
	wg.Wait()
	counted := l.window
	if counted == 0 {
		counted = time.Since(start)
	}
	return sumLoad(senders, counted), ctx.Err()
}

func (l httpLoad) dial() ([]*loadSender, error) {
	longest := benchLongest
	if l.window > 0 {
		longest = l.warm + l.window + benchGrace
	}
	senders := make([]*loadSender, 0, l.conns)
	for i := range l.conns {
		s := &loadSender{conn: i, target: l.targets[i%len(l.targets)], want: l.want, until: time.Now().Add(longest)}
		senders = append(senders, s)
		if s.dial(); s.err != nil {
			return senders, s.err
		}
	}
	return senders, nil
}

// loadResult is what came of a load.
type loadResult struct {
	right   int     // answers that count
	rate    float64 // of these, per second
	latency *hdrhistogram.Histogram
	body    int64 // bytes of a right answer's body
	wrong   wrongAnswers
}

// longestLatency is the histogram's end, in µs; what takes longer is counted there.
const longestLatency = int64(time.Minute / time.Microsecond)

func sumLoad(senders []*loadSender, counted time.Duration) *loadResult {
	r := &loadResult{latency: hdrhistogram.New(1, longestLatency, 3), wrong: make(wrongAnswers)}
	for _, s := range senders {
		r.right += len(s.latencies)
		for _, µs := range s.latencies {
			r.latency.RecordValue(min(int64(µs), longestLatency)) // in range: no error
		}
		r.wrong.add(s.wrong)
		if s.err != nil {
			r.wrong.add(wrongAnswers{"connection lost: " + s.err.Error(): 1})
		}
		r.body = max(r.body, s.body)
	}
	r.rate = float64(r.right) / counted.Seconds()
	return r
}

// quantile returns the latency that a share of the requests (percent) did not exceed.
func (r *loadResult) quantile(percent float64) time.Duration {
	return time.Duration(r.latency.ValueAtQuantile(percent)) * time.Microsecond
}

// wrongAnswers counts answers other than the expected one, by what was wrong.
type wrongAnswers map[string]int

func (w wrongAnswers) add(other wrongAnswers) {
	for how, n := range other {
		w[how] += n
	}
}

// String lists them; empty if there are none.
func (w wrongAnswers) String() string {
	var parts []string
	for _, how := range slices.Sorted(maps.Keys(w)) {
		parts = append(parts, fmt.Sprintf("%d × %s", w[how], how))
	}
	return strings.Join(parts, ", ")
}

// loadSender is one connection of a load and what came back on it. One goroutine uses it.
type loadSender struct {
	conn       int // its number
	target     string
	want       int
	until      time.Time   // when every exchange fails
	begin, end time.Time   // what counts
	again      func() bool // whether to repeat what was answered 503; nil: no

	c         *wire.Conn
	err       error    // the connection cannot be had any more
	latencies []uint32 // in µs, of the right answers that count
	body      int64    // bytes of the newest right answer's body
	wrong     map[string]int
}

// dial replaces the connection.
func (s *loadSender) dial() {
	s.close()
	s.c, s.err = wire.Dial(s.target, s.until)
}

func (s *loadSender) close() {
	if s.c != nil {
		s.c.Close()
	}
}

// closed sends a request now, and counts its answer if that lies in the window too.
func (s *loadSender) closed(request []byte, now time.Time) {
	ok, done := s.exchange(request)
	if ok && !now.Before(s.begin) && (s.end.Equal(s.begin) || !done.After(s.end)) {
		s.count(done.Sub(now))
	}
}

// open sends a request that was due at intended, and counts it if that lies in the window, however
// late the answer is.
func (s *loadSender) open(request []byte, intended time.Time) {
	ok, done := s.exchange(request)
	if ok && !intended.Before(s.begin) && intended.Before(s.end) {
		s.count(done.Sub(intended))
	}
}

func (s *loadSender) count(latency time.Duration) {
	s.latencies = append(s.latencies, uint32(latency.Microseconds()))
}

// exchange reports whether the answer was right, and when it came. Wrong answers count whenever they
// come; after a broken connection a new one is opened.
func (s *loadSender) exchange(request []byte) (ok bool, done time.Time) {
	status, err := s.c.Exchange(request)
	for err == nil && status == http.StatusServiceUnavailable && s.again != nil && s.again() {
		status, err = s.c.Exchange(request)
	}
	done = time.Now()
	switch {
	case err != nil:
		s.wronged(err.Error())
		s.dial()
	case status != s.want:
		s.wronged(fmt.Sprintf("status %d instead of %d", status, s.want))
	default:
		s.body = s.c.Size()
		return true, done
	}
	return false, done
}

func (s *loadSender) wronged(how string) {
	if s.wrong == nil {
		s.wrong = make(map[string]int)
	}
	s.wrong[how]++
}

func closeSenders(senders []*loadSender) {
	for _, s := range senders {
		s.close()
	}
}

// benchFleet is instances that a load registers and renews: size of them, a hundred per application,
// each about 1.1 KB in the documents that clients fetch.
type benchFleet struct {
	name  string
	size  int
	lease benchLease // zero: endlessLease
}

// benchLease is what an instance says of its lease, in seconds.
type benchLease struct{ interval, duration int }

// endlessLease outlasts any run, because not every instance is renewed all the time.
var endlessLease = benchLease{30, 86400}

// benchDirty is the lastDirtyTimestamp of a fleet's registrations, in ms since the epoch.
const benchDirty = 1767225599000

const benchInstancesPerApp = 100

func (f benchFleet) app(i int) string { return fmt.Sprintf("%s-%03d", f.name, i/benchInstancesPerApp) }

// host is also the instance's id, as with Spring.
func (f benchFleet) host(i int) string {
	return fmt.Sprintf("%s-%03d-%06x.cluster.example.internal", f.name, i/benchInstancesPerApp, i)
}

func (f benchFleet) id(i int) string { return f.host(i) + ":8080" }

// renewal is the heartbeat that a Java client sends.
func (f benchFleet) renewal(i int) []byte {
	return fmt.Appendf(nil, "PUT /eureka/apps/%s/%s?status=UP&lastDirtyTimestamp=%d HTTP/1.1\r\n"+
		"Host: localhost\r\nAccept: application/json\r\n\r\n", f.app(i), f.id(i), benchDirty)
}

// registration is what Spring sends. The commit's hash varies, so that compression finds no more in it
// than in real instances.
func (f benchFleet) registration(i int) []byte {
	host, app := f.host(i), f.app(i)
	lease := cmp.Or(f.lease, endlessLease)
	random := rand.New(rand.NewPCG(1, uint64(i)))
	body := fmt.Appendf(nil, `{"instance":{"instanceId":%q,"app":%q,"hostName":%q,"ipAddr":"10.%d.%d.%d","status":"UP","overriddenStatus":"UNKNOWN",`+
		`"port":{"$":8080,"@enabled":"true"},"securePort":{"$":443,"@enabled":"false"},"countryId":1,`+
		`"dataCenterInfo":{"@class":"com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo","name":"MyOwn"},`+
		`"leaseInfo":{"renewalIntervalInSecs":%d,"durationInSecs":%d},`+
		`"metadata":{"management.port":"8081","zone":"zone-%c","commit":"%016x"},`+
		`"homePageUrl":"http://%s:8080/","statusPageUrl":"http://%s:8081/actuator/info","healthCheckUrl":"http://%s:8081/actuator/health",`+
		`"vipAddress":%q,"secureVipAddress":%q,"isCoordinatingDiscoveryServer":"false",`+
		`"lastUpdatedTimestamp":"%d","lastDirtyTimestamp":"%d","actionType":"ADDED"}}`,
		f.id(i), app, host, i>>16&0xff, i>>8&0xff, i&0xff, lease.interval, lease.duration, 'a'+i%3, random.Uint64(), host, host, host, app, app, benchDirty, benchDirty)
	head := fmt.Appendf(nil, "POST /eureka/apps/%s HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n", app, len(body))
	return append(head, body...)
}

// registrations registers each instance once.
func (f benchFleet) registrations(conn, conns int) func() []byte {
	i := conn - conns
	return func() []byte {
		if i += conns; i >= f.size {
			return nil
		}
		return f.registration(i)
	}
}

// renewals renews the instances in turn, without end.
func (f benchFleet) renewals() workload {
	all := make([][]byte, f.size)
	for i := range all {
		all[i] = f.renewal(i)
	}
	return func(conn, conns int) func() []byte {
		i := conn
		return func() []byte {
			request := all[i%len(all)]
			i += conns
			return request
		}
	}
}

// changes registers the instances again in turn, each time with a newer lastDirtyTimestamp, so that
// every request is a change that readers see.
func (f benchFleet) changes() workload {
	var dirty atomic.Int64
	dirty.Store(benchDirty)
	return func(conn, conns int) func() []byte {
		var own [][]byte
		for i := conn % f.size; i < f.size; i += conns {
			own = append(own, f.registration(i))
		}
		turn := 0
		return func() []byte {
			request := own[turn%len(own)]
			turn++
			setDirty(request, dirty.Add(1))
			return request
		}
	}
}

// setDirty replaces the lastDirtyTimestamp of a registration by another one of 13 digits.
func setDirty(registration []byte, dirty int64) {
	const key = `"lastDirtyTimestamp":"`
	at := bytes.LastIndex(registration, []byte(key)) + len(key)
	strconv.AppendInt(registration[:at], dirty, 10)
}

// fetch asks for a document again and again, compressed.
func fetch(path string) workload {
	request := fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\nAccept-Encoding: gzip\r\n\r\n", path)
	return func(int, int) func() []byte { return func() []byte { return request } }
}

// Paths that are fetched.
const (
	fullStale        = "/eureka/apps?consistency=stale"
	fullLinearizable = "/eureka/apps"
	deltaStale       = "/eureka/apps/delta?consistency=stale"
)
