package load

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// described is an instance as its client describes it to the registry: about 1 KB, as Spring sends it.
type described struct {
	app, id            string
	number             int // of its address
	interval, duration int // of its lease, in seconds
}

// dirtyBase is the lastDirtyTimestamp of version 0, in ms since the epoch. That of a version is as many ms
// later, so that the registry's conflict rule orders versions.
const dirtyBase = 1767225599000

// appPath is the path of an application, of which all instances' paths are below.
func (d described) appPath() string { return "/eureka/v2/apps/" + d.app }

func (d described) path() string { return d.appPath() + "/" + d.id }

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
		version, 'a'+d.number%3, random.Uint64(), host, host, host, d.app, d.app, dirtyBase+version, dirtyBase+version)
	head := fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n", d.appPath(), len(body))
	return append(head, body...)
}

// renewal is the heartbeat that a Java client sends.
func (d described) renewal(version int64) []byte {
	return bodyless("PUT", fmt.Sprintf("%s?status=UP&lastDirtyTimestamp=%d", d.path(), dirtyBase+version))
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
