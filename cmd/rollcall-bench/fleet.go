package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/seed-20419f34/rollcall/cmd/bench/load"
)

// benchFleet describes the instances that a load registers and renews: size of them, each about 1.1 KB in the
// documents that clients fetch. Instances are numbered from 0. Its methods registrations, renewals and changes are
// workloads.
type benchFleet struct {
	name  string
	size  int
	inApp int        // instances of one application; 0 means a hundred
	lease benchLease // zero means endlessLease
}

// benchLease holds an instance's lease times, in seconds.
type benchLease struct{ interval, duration int }

// endlessLease outlasts any run, because not every instance is renewed all the time.
var endlessLease = benchLease{30, 86400}

func (f benchFleet) app(i int) string { return fmt.Sprintf("%s-%03d", f.name, i/cmp.Or(f.inApp, 100)) }

// id returns the id of instance i: its host and port, as with Spring.
func (f benchFleet) id(i int) string {
	return fmt.Sprintf("%s-%06x.cluster.example.internal:8080", f.app(i), i)
}

// renewal returns the request that renews instance i.
func (f benchFleet) renewal(i int) []byte { return load.Renewal(f.app(i), f.id(i)) }

// registration returns the request that registers instance i.
func (f benchFleet) registration(i int) []byte {
	lease := cmp.Or(f.lease, endlessLease)
	return load.Registration(f.app(i), f.id(i), i, lease.interval, lease.duration)
}

// registrations is a load.Workload that registers each instance once.
func (f benchFleet) registrations(conn, conns int) func() []byte {
	i := conn - conns
	return func() []byte {
		if i += conns; i >= f.size {
			return nil
		}
		return f.registration(i)
	}
}

// registerAt registers the fleet at a node.
func (f benchFleet) registerAt(ctx context.Context, addr string) error {
	return prepareAt(ctx, addr, fmt.Sprintf("register %d instances", f.size), min(256, f.size), http.StatusNoContent, f.registrations)
}

// prepareAt sends requests until the workload ends. All must be answered as wanted; those answered 503 or 504 are
// repeated.
func prepareAt(ctx context.Context, addr, what string, conns, want int, w load.Workload) error {
	r, err := load.Bulk{Targets: []string{addr}, Conns: conns, Requests: w, Want: want, Insist: true}.Send(ctx)
	if err == nil && len(r.Wrong) > 0 {
		err = errors.New(r.Wrong.String())
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// renewals is an endless workload that renews the instances in turn.
func (f benchFleet) renewals() load.Workload {
	return inTurn(f.size, f.renewal)
}

// inTurn is an endless workload of n requests in turn.
func inTurn(n int, request func(i int) []byte) load.Workload {
	all := make([][]byte, n)
	for i := range all {
		all[i] = request(i)
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

// changes is an endless workload that registers the instances again in turn, each time with a newer
// lastDirtyTimestamp, so that every request is a change that readers see.
func (f benchFleet) changes() load.Workload {
	var dirty atomic.Int64
	dirty.Store(load.DirtyBase)
	return func(conn, conns int) func() []byte {
		var ofConn [][]byte // the connection's share of the instances
		for i := conn % f.size; i < f.size; i += conns {
			ofConn = append(ofConn, f.registration(i))
		}
		turn := 0
		return func() []byte {
			request := ofConn[turn%len(ofConn)]
			turn++
			setDirtyTimestamp(request, dirty.Add(1))
			return request
		}
	}
}

// setDirtyTimestamp replaces the lastDirtyTimestamp of a registration by another one of 13 digits.
func setDirtyTimestamp(registration []byte, dirty int64) {
	const key = `"lastDirtyTimestamp":"`
	at := bytes.LastIndex(registration, []byte(key)) + len(key)
	strconv.AppendInt(registration[:at], dirty, 10)
}

// putsOf is an endless workload of writes to a number of keys in turn, each with a value of 128 bytes that no earlier
// write had.
func putsOf(keys int) load.Workload {
	var written atomic.Int64
	return func(conn, conns int) func() []byte {
		i := conn - conns
		return func() []byte {
			i += conns
			return putRequest(benchKey(i%keys), written.Add(1))
		}
	}
}

func benchKey(i int) string { return fmt.Sprintf("bench/%03d/%06d", i%1000, i) }

func putRequest(key string, value int64) []byte {
	return fmt.Appendf(nil, "PUT /v1/kv/%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 128\r\n\r\n%0128d", key, value)
}

// firstRequests is a workload that ends after n requests, over all connections together.
func firstRequests(n int, w load.Workload) load.Workload {
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

// fetchesOf is an endless workload that fetches a document, compressed.
func fetchesOf(path string) load.Workload {
	request := fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\nAccept-Encoding: gzip\r\n\r\n", path)
	return func(int, int) func() []byte { return func() []byte { return request } }
}
