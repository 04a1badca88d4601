package main

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
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
