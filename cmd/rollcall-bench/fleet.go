package main

import (
	"bytes"
	"cmp"
	"fmt"
	"strconv"
	"sync/atomic"

	"github.com/seed-20419f34/rollcall/cmd/bench/load"
)

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

const benchInstancesPerApp = 100

func (f benchFleet) app(i int) string { return fmt.Sprintf("%s-%03d", f.name, i/benchInstancesPerApp) }

// id is that of an instance, its host and port, as with Spring.
func (f benchFleet) id(i int) string {
	return fmt.Sprintf("%s-%06x.cluster.example.internal:8080", f.app(i), i)
}

func (f benchFleet) renewal(i int) []byte { return load.Renewal(f.app(i), f.id(i)) }

func (f benchFleet) registration(i int) []byte {
	lease := cmp.Or(f.lease, endlessLease)
	return load.Registration(f.app(i), f.id(i), i, lease.interval, lease.duration)
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
func (f benchFleet) renewals() load.Workload {
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
func (f benchFleet) changes() load.Workload {
	var dirty atomic.Int64
	dirty.Store(load.DirtyBase)
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

// inAll is a workload that ends after n requests.
func inAll(n int, w load.Workload) load.Workload {
	return func(conn, conns int) func() []byte {
		next, sent := w(conn, conns), conn
		return func() []byte {
			if sent >= n {
				return nil
			}
			sent += conns
			return next()
		}
	}
}

// fetch asks for a document again and again, compressed.
func fetch(path string) load.Workload {
	request := fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\nAccept-Encoding: gzip\r\n\r\n", path)
	return func(int, int) func() []byte { return func() []byte { return request } }
}

// Paths that are fetched.
const (
	fullStale        = "/eureka/apps?consistency=stale"
	fullLinearizable = "/eureka/apps"
	deltaStale       = "/eureka/apps/delta?consistency=stale"
)
