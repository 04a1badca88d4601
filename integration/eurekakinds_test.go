package integration

import (
	"regexp"
	"strings"
)

// kind is a kind of differences: the probes by a regular expression of their whole names, and how the parts begin in which
// the servers differ, one of several that " or " separates.
type kind struct{ name, probes, published, ours string }

// has reports whether a difference is of the kind.
func (k kind) has(probe string, cells [2]string) bool {
	begins := func(cell, with string) bool {
		for one := range strings.SplitSeq(with, " or ") {
			if strings.HasPrefix(cell, one) {
				return true
			}
		}
		return false
	}
	return regexp.MustCompile("^(?:"+k.probes+")$").MatchString(probe) && begins(cells[0], k.published) && begins(cells[1], k.ours)
}

// kinds are all kinds of differences; of several that have a probe it is of the first.
var kinds = []kind{
	{"reads that accept only HTML", `GET .* as HTML`, "406", "200"},
	{"the base path of version 1, and Netflix's own", `GET (/eureka/v1/apps as .*|/v2/apps)|register: at /eureka/v1/.*`, "404", "200 or 204, then 200"},
	{"the list of overrides", `GET .*/serverinfo/statusoverrides`, "404", "200"},
	{"a slash too many in the path", `.*/(/apps|/\{app\}|/\{id\}|apps//).*`, "404", "200 or 204, then 200"},
	{"an escaped slash in the path", `GET .*%2F.*`, "400", "404"},
	{"dots as a segment of the path", `GET .*/\.\.?/.*`, "404", "400"},
	{"OPTIONS", `OPTIONS .*`, "200", "405"},
	{"a registration of an application called delta, whose body is no instance", `POST /eureka/apps/delta`, "405", "400"},
	{"HEAD of the state", `HEAD /eureka/status`, "500", "200"},

	{"a query that cannot be unescaped", `heartbeat .*%zz`, "200 or 404", "400"},
	{"a time that is none or a status that is none", `(PUT .*/status|override|heartbeat|end of no override).*`, "500", "400"},
	{"a time or a status that is none, of an unknown instance", `.* of an unknown instance .*`, "404", "400"},
	{"the end of no override, with a time that is none", `end of no override .*`, "200", "400"},
	{"a heartbeat by a server, with an override that is none", `heartbeat of a server .*bogus.*`, "500", "404"},
	{"a heartbeat by a server, with the time 0", `heartbeat of a server .*=0`, "409", "200"},
	{"a newer heartbeat by a server, with an override", `heartbeat of a server .*=DOWN.*|batch: a newer Heartbeat with an override`,
		"404, then actionType `ADDED` or 200, then actionType `ADDED`", "404, then actionType `MODIFIED` or 200, then actionType `MODIFIED`"},
	{"an override by the status that the instance has", `override \?value=UP`, "200, then actionType `ADDED`, then overriddenStatus `UNKNOWN`",
		"200, then actionType `MODIFIED`, then overriddenStatus `UP`"},
	{"a change of metadata", `metadata .*`, "200, then actionType `ADDED`, then lastDirtyTimestamp `1767225599500`",
		"200, then actionType `MODIFIED`, then lastDirtyTimestamp `1767225599501`"},
	{"an older registration by a client", `register again: older`, "204, then lastDirtyTimestamp `1767225599500`", "204, then lastDirtyTimestamp `1767225599499`"},
	{"metadata of 5000 bytes", `metadata .*`, "200", "414"},

	{"a batch or registration that is empty, null or has no items", `(batch|register): (empty body|null).*|batch: (\{\}|an item that is null).*|POST .*/batch/`, "500", "400"},
	{"an item of a batch without application or id", `batch: an item without .*`, "200, responseList[0].statusCode", "200, responseList[0].statusCode `400`"},
	{"an item with a status that is none, for an unknown instance", `batch: StatusUpdate .*`, "200, responseList[0].statusCode `404`", "200, responseList[0].statusCode `500`"},
	{"an item whose registration is wrapped", `batch: Register that is wrapped.*`, "200, responseList[0].statusCode `200`, responseList[1].statusCode `500`",
		"200, responseList[0].statusCode `400`"},
	{"a batch as text", `batch as text`, "415", "200"},
	{"a body in gzip", `batch in gzip|register: gzip`, "400", "200 or 204, then 200"},
	{"a registration in an unknown encoding, or in none where gzip is said", `register: (an unknown encoding|gzip that is none)`, "204, then 200", "415, then 404 or 400, then 404"},

	{"a reason for 400", `register: .*`, "400, type `application/json`", "400, type `text/plain`"},
	{"a registration without application, or without the name of the data center", `register: .*`, "400, error or 400, document `EOF`", "400, no error or 400, no document"},
	{"a list as the application's name", `register: app is \["x"\]`, "400, no error", "400, error"},
	{"a value of another type", `register: \w+ is (\["x"\]|true|7|""|\{"x":"y"\})`, "204, then 200", "400, then 404"},
	{"a number that is none or too large", `register: \w+ is ("abc"|"9223372036854775808"|\{"durationInSecs":"x"\}|\{"\$":(65536|"x"),"@enabled":"true"\})`, "204, then 200", "400, then 404"},
	{"an id of 300 bytes", `register: instanceId is "iii.*`, "204, then 200", "400, then 404"},
	{"a key twice, a byte order mark, and something behind the document", `register: (a key twice|byte order mark|garbage after it|two documents)`, "204, then 200", "400, then 404"},
	{"a port in another form, or with more in it", `register: ((securePort|port) is .*|XML with an empty port)`, "400, then 404", "204, then 200"},
	{"an object where a word belongs, or of an unknown name", `register: (isCoordinatingDiscoveryServer|unknown) is \{"x":"y"\}`, "400, then 404", "204, then 200"},
	{"a nested object of an unknown name", `register: an unknown object`, "204, no then statusPageUrl, no then vipAddress",
		"204, then statusPageUrl `http://{host}:8080/info`, then vipAddress `{lower}`"},
	{"a data center whose class is missing or unknown, or has metadata", `register: dataCenterInfo is .*`, "400, then 404", "204, then 200"},
	{"Amazon's data center without metadata", `register: dataCenterInfo is .*`, "204, no then healthCheckUrl", "204, then healthCheckUrl `http://{host}:8080/health`"},
	{"an empty country", `register: countryId is ""`, "204, then countryId `0`", "204, then countryId `1`"},
	{"a time of the client's that is empty or negative", `register: lastDirtyTimestamp is ("-1"|"")`, "204, then lastDirtyTimestamp `0` or 204, then lastDirtyTimestamp `-1`",
		"204, then lastDirtyTimestamp `now`"},
	{"lease times out of bounds", `register: leaseInfo is .*`, "204, then leaseInfo.durationInSecs or 400, then 404", "204, then leaseInfo.durationInSecs or 204, then 200"},
	{"metadata that is null", `register: metadata is .*`, "204, no then metadata.@class, then metadata.null `null`", "204, then metadata.@class `java.util.Collections$EmptyMap`, no then metadata.null"},
	{"a status or override in lower case, in JSON", `register: (overriddenStatus is "down"|status is "up")`, "204, then leaseInfo.serviceUpTimestamp", "204, then leaseInfo.serviceUpTimestamp"},
	{"a port that is enabled in capital letters", `register: port is .*"TRUE".*`, "204, then port.@enabled `false`", "204, then port.@enabled `true`"},
	{"JSON of another media type", `register: JSON as .*`, "415, then 404", "204, then 200"},
	{"a media type that is none", `register: JSON as .*`, "400", "415"},
}
