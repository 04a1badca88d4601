package integration

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// dirty is the dirty timestamp of the registrations, in the past.
const dirty = 1767225599500

// registration returns a registration by Netflix's client, as JSON values.
func registration() map[string]any {
	return map[string]any{
		"instanceId": "{id}", "hostName": "{host}", "app": "{app}", "ipAddr": "10.0.0.11", "status": "UP", "overriddenStatus": "UNKNOWN",
		"port":           map[string]any{"$": 8080, "@enabled": "true"},
		"securePort":     map[string]any{"$": 443, "@enabled": "false"},
		"countryId":      1,
		"dataCenterInfo": map[string]any{"@class": "com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo", "name": "MyOwn"},
		"leaseInfo": map[string]any{"renewalIntervalInSecs": 30, "durationInSecs": 90, "registrationTimestamp": 0,
			"lastRenewalTimestamp": 0, "evictionTimestamp": 0, "serviceUpTimestamp": 0},
		"metadata": map[string]any{"zone": "a"}, "homePageUrl": "http://{host}:8080/", "statusPageUrl": "http://{host}:8080/info",
		"healthCheckUrl": "http://{host}:8080/health", "vipAddress": "{lower}", "secureVipAddress": "{lower}",
		"isCoordinatingDiscoveryServer": "false", "lastUpdatedTimestamp": fmt.Sprint(dirty), "lastDirtyTimestamp": fmt.Sprint(dirty),
	}
}

// registered returns a registration's document with one field changed, or without it if value is leaveOut.
func registered(field string, value any) string {
	doc := registration()
	doc[field] = value
	if value == leaveOut {
		delete(doc, field)
	}
	return wrapped(doc)
}

var leaveOut any = struct{}{}

func wrapped(doc any) string { return jsonOf(map[string]any{"instance": doc}) }

const ownApp = "/eureka/apps/{app}"

// probes returns the requests of the protocol and those beside them.
func probes() []probe {
	return slices.Concat(reads(), readsBeside(), fields(), bodies(), heartbeats(), overrides(), batches())
}

// reads returns all reads, each in the forms that can be asked for.
func reads() (all []probe) {
	const instance = "/eureka/apps/{app}/{id}"
	for _, path := range []string{"/eureka/apps", "/eureka/apps/", "/eureka/apps/delta", "/eureka/apps/{app}", instance, "/eureka/instances/{id}",
		"/eureka/vips/{lower}", "/eureka/svips/{lower}", "/eureka/v2/apps", "/eureka/v1/apps"} {
		for name, header := range map[string]map[string]string{
			"JSON": nil, "XML": {"Accept": "application/xml"}, "no Accept": {"Accept": ""}, "any type": {"Accept": "*/*"}, "HTML": {"Accept": "text/html"},
			"gzip": {"Accept-Encoding": "gzip"}, "compact JSON": {"X-Eureka-Accept": "compact"},
			"compact XML": {"X-Eureka-Accept": "compact", "Accept": "application/xml"},
		} {
			all = append(all, probe{name: "GET " + path + " as " + name, method: "GET", path: path, header: header})
		}
	}
	slices.SortFunc(all, func(a, b probe) int { return strings.Compare(a.name, b.name) })
	return all
}

// readsBeside returns reads of what does not exist, by other paths and by other methods.
func readsBeside() (all []probe) {
	for _, path := range []string{"/eureka/apps?x=1", "/eureka/apps?regions=", "/eureka/apps?regions=us-east-1,eu", "/eureka//apps", "/eureka/apps//",
		"/eureka/Apps", "/eureka/apps/delta/", "/eureka/apps/DELTA", "/eureka/apps/{lower}", "/eureka/apps/{app}/", "/eureka/apps//{app}", "/eureka/apps/{app}//{id}",
		"/eureka/apps/{app}/{id}/", "/eureka/apps/{lower}/{id}", "/eureka/apps/{app}/other", "/eureka/apps/other", "/eureka/apps/other/{id}", "/eureka/apps/{app}/{id}/other",
		"/eureka/apps/{app}/{id}/status", "/eureka/apps/{app}/{id}/metadata", "/eureka/apps/%7Bapp%7D", "/eureka/apps/{app}/%zz", "/eureka/apps/a%2Fb", "/eureka/apps/./{app}",
		"/eureka/apps/../apps", "/eureka/instances", "/eureka/instances/other", "/eureka/vips", "/eureka/vips/other", "/eureka/vips/{app}", "/eureka/svips/other", "/eureka", "/eureka/",
		"/eureka/other", "/eureka/v3/apps", "/v2/apps", "/eureka/peerreplication/batch/", "/eureka/asg/x/status", "/serverinfo/statusoverrides", "/eureka/serverinfo/statusoverrides"} {
		all = append(all, probe{name: "GET " + path, method: "GET", path: path})
	}
	for _, path := range []string{"/eureka/apps", "/eureka/apps/delta", "/eureka/apps/{app}", "/eureka/apps/{app}/{id}", "/eureka/apps/{app}/{id}/status",
		"/eureka/apps/{app}/{id}/metadata", "/eureka/instances/{id}", "/eureka/vips/{lower}", "/eureka/peerreplication/batch/", "/eureka/status"} {
		for _, method := range []string{"HEAD", "OPTIONS", "POST", "PUT", "DELETE", "PATCH"} {
			p := probe{name: method + " " + path, method: method, path: path}
			if method == "POST" {
				p.body = "{}"
			}
			all = append(all, p)
		}
	}
	return append(all, probe{name: "PUT /eureka/asg/x/status?value=ENABLED", method: "PUT", path: "/eureka/asg/x/status?value=ENABLED"})
}

// fields returns registrations where one field is missing, null, empty, of another type, or one of the named values.
func fields() (all []probe) {
	more := map[string][]any{
		"status":             {"up", "DOWN", "STARTING", "OUT_OF_SERVICE", "UNKNOWN", "BOGUS"},
		"overriddenStatus":   {"DOWN", "down", "BOGUS"},
		"app":                {"{lower}", "OTHER", " {app}"},
		"lastDirtyTimestamp": {"1", "-1", "abc", "1e3", "9223372036854775807", "9223372036854775808", 1767225599501},
		"port": {map[string]any{"$": -1, "@enabled": "true"}, map[string]any{"$": 0, "@enabled": "false"}, map[string]any{"$": 65535, "@enabled": "true"},
			map[string]any{"$": 65536, "@enabled": "true"}, map[string]any{"$": 99999999999, "@enabled": "true"}, map[string]any{"$": "8081", "@enabled": true},
			map[string]any{"$": "x", "@enabled": "true"}, map[string]any{"$": 8080}, map[string]any{"@enabled": "true"}, map[string]any{"$": 8080, "@enabled": "TRUE"},
			map[string]any{"$": 8080, "@enabled": 1}, map[string]any{"$": 8080.5, "@enabled": "true"}, map[string]any{"$": 8080, "@enabled": "true", "x": "y"}},
		"securePort": {map[string]any{"$": -1, "@enabled": "false"}},
		"leaseInfo": {map[string]any{}, map[string]any{"durationInSecs": 0, "renewalIntervalInSecs": 0}, map[string]any{"durationInSecs": -1, "renewalIntervalInSecs": -1},
			map[string]any{"durationInSecs": 1, "renewalIntervalInSecs": 1}, map[string]any{"durationInSecs": 86401, "renewalIntervalInSecs": 3601},
			map[string]any{"durationInSecs": 99999999999}, map[string]any{"durationInSecs": "60", "renewalIntervalInSecs": "20"}, map[string]any{"durationInSecs": "x"},
			map[string]any{"durationInSecs": 60, "x": "y"}},
		"metadata": {map[string]any{"n": 1, "b": true}, map[string]any{"null": nil}, map[string]any{"@class": "java.util.Collections$EmptyMap"}, map[string]any{"o": map[string]any{"a": "b"}},
			map[string]any{"": "empty"}, map[string]any{"instanceId": "other"}, map[string]any{"a b": "c", "9": "x", "ü": "ö"}},
		"dataCenterInfo": {map[string]any{}, map[string]any{"name": "MyOwn"}, map[string]any{"@class": "com.netflix.appinfo.MyDataCenterInfo", "name": "MyOwn"},
			map[string]any{"@class": "other", "name": "MyOwn"}, map[string]any{"@class": "com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo"},
			map[string]any{"@class": "com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo", "name": "Bogus"}, map[string]any{"@class": "com.netflix.appinfo.AmazonInfo", "name": "Amazon"},
			map[string]any{"@class": "com.netflix.appinfo.AmazonInfo", "name": "Amazon", "metadata": map[string]any{}},
			map[string]any{"@class": "com.netflix.appinfo.AmazonInfo", "name": "Amazon", "metadata": map[string]any{"instance-id": "i-1", "other": "x"}}},
		"countryId":  {"2", 99999999999},
		"actionType": {"DELETED", "BOGUS"},
		"vipAddress": {"a,b", " ", strings.Repeat("v", 300)},
		"unknown":    {"text"},
		"instanceId": {strings.Repeat("i", 300), "a/b", "a b"},
		"hostName":   {strings.Repeat("h", 300)},
	}
	doc := registration()
	doc["asgName"], doc["appGroupName"], doc["sid"], doc["secureHealthCheckUrl"], doc["unknown"], doc["actionType"] = nil, nil, nil, nil, nil, nil
	for _, field := range slices.Sorted(maps.Keys(doc)) {
		for _, value := range append([]any{leaveOut, nil, "", 7, true, []any{"x"}, map[string]any{"x": "y"}}, more[field]...) {
			name := fmt.Sprintf("register: %s is %.90s", field, jsonOf(value))
			if value == leaveOut {
				name = fmt.Sprintf("register: no %s", field)
			}
			all = append(all, probe{name: name, method: "POST", path: ownApp, body: registered(field, value), fresh: true})
		}
	}
	return all
}

// bodies returns registrations in other wrappings, media types, encodings and paths.
func bodies() (all []probe) {
	good := wrapped(registration())
	add := func(name, path, body string, header map[string]string) {
		all = append(all, probe{name: "register: " + name, method: "POST", path: path, body: body, header: header, fresh: true})
	}
	for name, body := range map[string]string{
		"empty body": "", "{}": "{}", "null": "null", "[]": "[]", "a text": `"x"`, "instance is null": `{"instance":null}`, "instance is a text": `{"instance":"x"}`,
		"two instances in a list": `{"instance":[` + jsonOf(registration()) + `]}`, "not wrapped": jsonOf(registration()), "wrapped by another name": `{"Instance":` + jsonOf(registration()) + `}`,
		"cut off": good[:len(good)/2], "garbage after it": good + "x", "two documents": good + good, "byte order mark": "\ufeff" + good,
		"no UTF-8": strings.Replace(good, "10.0.0.11", "\xff", 1), "white space before it": " \n\t" + good, "a key twice": strings.Replace(good, `"status"`, `"status":"DOWN","status"`, 1),
		"an unknown object": strings.Replace(good, `"status"`, `"x":{"a":{"b":[1]}},"status"`, 1), "an unknown number": strings.Replace(good, `"status"`, `"x":1,"status"`, 1),
		"a comment": strings.Replace(good, `"status"`, `/* x */"status"`, 1), "single quotes": strings.ReplaceAll(good, `"`, "'"),
		"overriddenstatus in lower case": strings.Replace(good, "overriddenStatus", "overriddenstatus", 1),
	} {
		add(name, ownApp, body, nil)
	}
	for _, path := range []string{ownApp + "/", "/eureka//apps/{app}", "/eureka/apps//{app}", "/eureka/apps/{lower}", "/eureka/v2/apps/{app}", "/eureka/v1/apps/{app}", "/eureka/apps/OTHER",
		ownApp + "?x=1", "/eureka/apps", "/eureka/apps/", ownApp + "/{id}"} {
		add("at "+path, path, good, nil)
	}
	for _, kind := range []string{"", "text/plain", "application/xml", "text/json", "application/JSON", "application/json;charset=UTF-8", "application/json;charset=ISO-8859-1",
		"application/json;charset=utf-16", "application/vnd.x+json", "*/*", "no type"} {
		add("JSON as "+kind, ownApp, good, map[string]string{"Content-Type": kind})
	}
	add("gzip", ownApp, good, map[string]string{"Content-Encoding": "gzip"})
	all[len(all)-1].zipped = true
	add("gzip that is none", ownApp, good, map[string]string{"Content-Encoding": "gzip"})
	add("an unknown encoding", ownApp, good, map[string]string{"Content-Encoding": "br"})
	add("XML wanted", ownApp, `{"instance":{"app":"{app}"}}`, map[string]string{"Accept": "application/xml"})
	inXML := map[string]string{"Content-Type": "application/xml"}
	for name, body := range map[string]string{
		"": xmlOf(""), "in capital letters": strings.ToUpper(xmlOf("")), "with an unknown element": xmlOf("<x><y>z</y></x>"), "without app": strings.Replace(xmlOf(""), "<app>{app}</app>", "", 1),
		"without a status": strings.Replace(xmlOf(""), "<status>UP</status>", "", 1), "with a status in lower case": strings.Replace(xmlOf(""), "UP<", "up<", 1),
		"with port -1": strings.Replace(xmlOf(""), "8080</port>", "-1</port>", 1), "with an empty port": strings.Replace(xmlOf(""), "8080</port>", "</port>", 1),
		"cut off": xmlOf("")[:200], "with a document type": "<!DOCTYPE x>" + xmlOf(""), "with a declaration": `<?xml version="1.0" encoding="UTF-8"?>` + xmlOf(""),
		"that is JSON": wrapped(registration()), "with a metadata key that is escaped": xmlOf("<metadata><a_.0020b>c</a_.0020b></metadata>"),
	} {
		add(strings.TrimSpace("XML "+name), ownApp, body, inXML)
	}
	slices.SortFunc(all, func(a, b probe) int { return strings.Compare(a.name, b.name) })
	again := func(name string, change string, value any) {
		all = append(all, probe{name: "register again: " + name, method: "POST", path: ownApp, body: registered(change, value)})
	}
	again("the same", "x", leaveOut)
	again("older", "lastDirtyTimestamp", fmt.Sprint(dirty-1))
	again("newer", "lastDirtyTimestamp", fmt.Sprint(dirty+1))
	again("without a timestamp", "lastDirtyTimestamp", leaveOut)
	again("as OUT_OF_SERVICE", "status", "OUT_OF_SERVICE")
	again("as DOWN", "status", "DOWN")
	again("with an override", "overriddenStatus", "OUT_OF_SERVICE")
	return all
}

// xmlOf returns a registration in XML, with more in it.
func xmlOf(more string) string {
	return `<instance><instanceId>{id}</instanceId><hostName>{host}</hostName><app>{app}</app><ipAddr>10.0.0.11</ipAddr><status>UP</status>` +
		`<overriddenstatus>UNKNOWN</overriddenstatus><port enabled="true">8080</port><securePort enabled="false">443</securePort><countryId>1</countryId>` +
		`<dataCenterInfo class="com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo"><name>MyOwn</name></dataCenterInfo>` +
		`<vipAddress>{lower}</vipAddress><lastDirtyTimestamp>1767225599500</lastDirtyTimestamp>` + more + `</instance>`
}

func gzipped(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write([]byte(text))
	w.Close()
	return b.String()
}

// heartbeats returns heartbeats and cancels, of clients and of other servers.
func heartbeats() (all []probe) {
	peer := map[string]string{"x-netflix-discovery-replication": "true"}
	for _, query := range []string{"", "?status=UP", "?status=up", "?status=BOGUS", "?lastDirtyTimestamp=1767225599500", "?lastDirtyTimestamp=1767225599499", "?lastDirtyTimestamp=1767225599501",
		"?lastDirtyTimestamp=", "?lastDirtyTimestamp=abc", "?lastDirtyTimestamp=-1", "?lastDirtyTimestamp=0", "?lastDirtyTimestamp=9223372036854775807", "?lastDirtyTimestamp=9223372036854775808",
		"?lastDirtyTimestamp=1767225599500&lastDirtyTimestamp=1", "?lastdirtytimestamp=1", "?overriddenstatus=DOWN&lastDirtyTimestamp=1767225599501", "?overriddenstatus=bogus&lastDirtyTimestamp=1767225599501",
		"?overriddenStatus=DOWN&lastDirtyTimestamp=1767225599501", "?x=1", "?%zz"} {
		path := "/eureka/apps/{app}/{id}" + query
		all = append(all, probe{name: "heartbeat " + query, method: "PUT", path: path}, probe{name: "heartbeat of a server " + query, method: "PUT", path: path, header: peer},
			probe{name: "heartbeat of an unknown instance " + query, method: "PUT", path: path, fresh: true})
	}
	for _, path := range []string{"/eureka/apps/{lower}/{id}", "/eureka/apps/{app}/{id}/", "/eureka/apps/{app}//{id}", "/eureka//apps/{app}/{id}", "/eureka/v2/apps/{app}/{id}", "/eureka/apps/{app}/HOST"} {
		all = append(all, probe{name: "PUT " + path, method: "PUT", path: path}, probe{name: "DELETE " + path, method: "DELETE", path: path})
	}
	add := func(name, method, query string, p probe) {
		p.name, p.method, p.path = name, method, "/eureka/apps/{app}/{id}"+query
		all = append(all, p)
	}
	add("heartbeat with {}", "PUT", "", probe{body: "{}"})
	add("heartbeat with garbage", "PUT", "", probe{body: "garbage"})
	add("heartbeat with a text", "PUT", "", probe{body: "text", header: map[string]string{"Content-Type": "text/plain"}})
	add("heartbeat as XML", "PUT", "", probe{header: map[string]string{"Accept": "application/xml"}})
	add("heartbeat of a server that is older, as XML", "PUT", "?lastDirtyTimestamp=1", probe{header: map[string]string{"Accept": "application/xml", "x-netflix-discovery-replication": "true"}})
	add("heartbeat with another word for replication", "PUT", "?lastDirtyTimestamp=1", probe{header: map[string]string{"x-netflix-discovery-replication": "TRUE"}})
	add("cancel", "DELETE", "", probe{})
	add("cancel with a query", "DELETE", "?lastDirtyTimestamp=abc", probe{})
	add("cancel with a body", "DELETE", "", probe{body: "{}"})
	add("cancel by a server", "DELETE", "", probe{header: peer})
	add("cancel of an unknown instance", "DELETE", "", probe{fresh: true})
	return all
}

// overrides returns those of statuses and changes of metadata.
func overrides() (all []probe) {
	for _, query := range []string{"", "?value=", "?value=OUT_OF_SERVICE", "?value=UP", "?value=DOWN", "?value=STARTING", "?value=UNKNOWN", "?value=down", "?value=BOGUS", "?value=DOWN&value=UP",
		"?value=DOWN&lastDirtyTimestamp=1767225599501", "?value=DOWN&lastDirtyTimestamp=1", "?value=DOWN&lastDirtyTimestamp=abc", "?value=DOWN&lastDirtyTimestamp="} {
		path := "/eureka/apps/{app}/{id}/status" + query
		all = append(all, probe{name: "override " + query, method: "PUT", path: path}, probe{name: "end of no override " + query, method: "DELETE", path: path},
			probe{name: "override of an unknown instance " + query, method: "PUT", path: path, fresh: true}, probe{name: "end of an override of an unknown instance " + query, method: "DELETE", path: path, fresh: true})
	}
	for _, query := range []string{"", "?k=v", "?k=", "?k", "?=v", "?k=v&k=w", "?zone=b", "?k=%C3%BC", "?k=%ff", "?a+b=c+d", "?k=" + strings.Repeat("v", 5000)} {
		path := "/eureka/apps/{app}/{id}/metadata" + query
		name := "metadata " + query[:min(len(query), 40)]
		all = append(all, probe{name: name, method: "PUT", path: path})
	}
	return append(all, probe{name: "metadata of an unknown instance", method: "PUT", path: "/eureka/apps/{app}/{id}/metadata?k=v", fresh: true},
		probe{name: "override with {}", method: "PUT", path: "/eureka/apps/{app}/{id}/status?value=DOWN", body: "{}"},
		probe{name: "override by a server", method: "PUT", path: "/eureka/apps/{app}/{id}/status?value=DOWN", header: map[string]string{"x-netflix-discovery-replication": "true"}})
}

// batches returns what servers send each other.
func batches() (all []probe) {
	item := func(action, more string) string {
		return `{"replicationList":[{"appName":"{app}","id":"{id}","action":"` + action + `"` + more + `}]}`
	}
	port := registration()
	port["port"] = map[string]any{"$": -1, "@enabled": "true"}
	for name, body := range map[string]string{
		"empty body": "", "{}": "{}", "no JSON": "{", "null": "null", "a list": "[]", "no items": `{"replicationList":[]}`, "null items": `{"replicationList":null}`, "an unknown key": `{"replicationList":[],"x":1}`,
		"an item that is null": `{"replicationList":[null]}`, "an item without action": `{"replicationList":[{"appName":"{app}","id":"{id}"}]}`, "an item without id": `{"replicationList":[{"appName":"{app}","action":"Heartbeat"}]}`,
		"an item without application": `{"replicationList":[{"id":"{id}","action":"Heartbeat"}]}`, "an action in lower case": item("heartbeat", ""), "an unknown action": item("Bogus", ""),
		"an item with an unknown key": item("Heartbeat", `,"x":1`), "Heartbeat": item("Heartbeat", ""), "an equal Heartbeat": item("Heartbeat", `,"lastDirtyTimestamp":1767225599500,"status":"UP"`),
		"an older Heartbeat": item("Heartbeat", `,"lastDirtyTimestamp":1,"status":"UP"`), "a newer Heartbeat": item("Heartbeat", `,"lastDirtyTimestamp":1767225599501,"status":"UP"`),
		"a newer Heartbeat with an override":   item("Heartbeat", `,"lastDirtyTimestamp":1767225599501,"status":"UP","overriddenStatus":"DOWN"`),
		"a Heartbeat with a timestamp as text": item("Heartbeat", `,"lastDirtyTimestamp":"1"`), "a Heartbeat with a timestamp that is none": item("Heartbeat", `,"lastDirtyTimestamp":"x"`),
		"Cancel": item("Cancel", ""), "StatusUpdate": item("StatusUpdate", `,"lastDirtyTimestamp":1767225599500,"status":"DOWN"`), "StatusUpdate without a status": item("StatusUpdate", ""),
		"StatusUpdate in lower case": item("StatusUpdate", `,"status":"down"`), "DeleteStatusOverride": item("DeleteStatusOverride", `,"lastDirtyTimestamp":1767225599500,"status":"UNKNOWN"`),
		"DeleteStatusOverride without a status": item("DeleteStatusOverride", ""), "Register": item("Register", `,"lastDirtyTimestamp":1767225599500,"status":"UP","instanceInfo":`+jsonOf(registration())),
		"Register without an instance": item("Register", ""), "Register that is wrapped": item("Register", `,"instanceInfo":`+wrapped(registration())),
		"Register with port -1": item("Register", `,"instanceInfo":`+jsonOf(port)),
	} {
		for _, known := range []bool{true, false} {
			suffix := map[bool]string{true: "", false: " (of an unknown instance)"}[known]
			all = append(all, probe{name: "batch: " + name + suffix, method: "POST", path: "/eureka/peerreplication/batch/", body: body, fresh: !known})
		}
	}
	slices.SortFunc(all, func(a, b probe) int { return strings.Compare(a.name, b.name) })
	return append(all,
		probe{name: "batch without a slash at its end", method: "POST", path: "/eureka/peerreplication/batch", body: item("Heartbeat", "")},
		probe{name: "batch as text", method: "POST", path: "/eureka/peerreplication/batch/", body: item("Heartbeat", ""), header: map[string]string{"Content-Type": "text/plain"}},
		probe{name: "batch as XML", method: "POST", path: "/eureka/peerreplication/batch/", body: "<x/>", header: map[string]string{"Content-Type": "application/xml"}},
		probe{name: "batch in gzip", method: "POST", path: "/eureka/peerreplication/batch/", body: item("Heartbeat", ""), zipped: true, header: map[string]string{"Content-Encoding": "gzip"}})
}

// kind is a kind of difference: a regular expression for the whole names of its probes, and how the differing parts
// of the servers begin, alternatives separated by " or ".
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

// kinds has all kinds of differences; a difference belongs to the first that has it.
var kinds = []kind{
	{"reads that accept only HTML", `GET .* as HTML`, "406", "200"},
	{"the base path of version 1, and Netflix's own", `GET (/eureka/v1/apps as .*|/v2/apps)|register: at /eureka/v1/.*`, "404", "200 or 204, then 200"},
	{"the list of overrides", `GET .*/serverinfo/statusoverrides`, "404", "200"},
	{"an extra slash in the path", `.*/(/apps|/\{app\}|/\{id\}|apps//).*`, "404", "200 or 204, then 200"},
	{"an escaped slash in the path", `GET .*%2F.*`, "400", "404"},
	{"dots as a segment of the path", `GET .*/\.\.?/.*`, "404", "400"},
	{"OPTIONS", `OPTIONS .*`, "200", "405"},
	{"a registration of an application called delta, with an invalid body", `POST /eureka/apps/delta`, "405", "400"},
	{"HEAD of the state", `HEAD /eureka/status`, "500", "200"},

	{"a query that cannot be unescaped", `heartbeat .*%zz`, "200 or 404", "400"},
	{"an invalid time or status", `(PUT .*/status|override|heartbeat|end of no override).*`, "500", "400"},
	{"an invalid time or status, for an unknown instance", `.* of an unknown instance .*`, "404", "400"},
	{"the end of an absent override, with an invalid time", `end of no override .*`, "200", "400"},
	{"a heartbeat from a server, with an invalid override", `heartbeat of a server .*bogus.*`, "500", "404"},
	{"a heartbeat from a server, with the time 0", `heartbeat of a server .*=0`, "409", "200"},
	{"a newer heartbeat from a server, with an override", `heartbeat of a server .*=DOWN.*|batch: a newer Heartbeat with an override`,
		"404, then actionType `ADDED` or 200, then actionType `ADDED`", "404, then actionType `MODIFIED` or 200, then actionType `MODIFIED`"},
	{"an override with the status that the instance already has", `override \?value=UP`, "200, then actionType `ADDED`, then overriddenStatus `UNKNOWN`",
		"200, then actionType `MODIFIED`, then overriddenStatus `UP`"},
	{"a change of metadata", `metadata .*`, "200, then actionType `ADDED`, then lastDirtyTimestamp `1767225599500`",
		"200, then actionType `MODIFIED`, then lastDirtyTimestamp `1767225599501`"},
	{"an older registration from a client", `register again: older`, "204, then lastDirtyTimestamp `1767225599500`", "204, then lastDirtyTimestamp `1767225599499`"},
	{"metadata of 5000 bytes", `metadata .*`, "200", "414"},

	{"a batch or registration that is empty, null or has no items", `(batch|register): (empty body|null).*|batch: (\{\}|an item that is null).*|POST .*/batch/`, "500", "400"},
	{"an item of a batch without application or id", `batch: an item without .*`, "200, responseList[0].statusCode", "200, responseList[0].statusCode `400`"},
	{"an item with an invalid status, for an unknown instance", `batch: StatusUpdate .*`, "200, responseList[0].statusCode `404`", "200, responseList[0].statusCode `500`"},
	{"an item whose registration is wrapped", `batch: Register that is wrapped.*`, "200, responseList[0].statusCode `200`, responseList[1].statusCode `500`",
		"200, responseList[0].statusCode `400`"},
	{"a batch as text", `batch as text`, "415", "200"},
	{"a body in gzip", `batch in gzip|register: gzip`, "400", "200 or 204, then 200"},
	{"a registration in an unknown encoding, or uncompressed but declared as gzip", `register: (an unknown encoding|gzip that is none)`, "204, then 200", "415, then 404 or 400, then 404"},

	{"a reason for 400", `register: .*`, "400, type `application/json`", "400, type `text/plain`"},
	{"a registration without application, or without the name of the data center", `register: .*`, "400, error or 400, document `EOF`", "400, no error or 400, no document"},
	{"a list as the application's name", `register: app is \["x"\]`, "400, no error", "400, error"},
	{"a value of another type", `register: \w+ is (\["x"\]|true|7|""|\{"x":"y"\})`, "204, then 200", "400, then 404"},
	{"a number that is invalid or too large", `register: \w+ is ("abc"|"9223372036854775808"|\{"durationInSecs":"x"\}|\{"\$":(65536|"x"),"@enabled":"true"\})`, "204, then 200", "400, then 404"},
	{"an id of 300 bytes", `register: instanceId is "iii.*`, "204, then 200", "400, then 404"},
	{"a duplicate key, a byte order mark, or data after the document", `register: (a key twice|byte order mark|garbage after it|two documents)`, "204, then 200", "400, then 404"},
	{"a port in another form, or with more in it", `register: ((securePort|port) is .*|XML with an empty port)`, "400, then 404", "204, then 200"},
	{"an object instead of a word, or under an unknown name", `register: (isCoordinatingDiscoveryServer|unknown) is \{"x":"y"\}`, "400, then 404", "204, then 200"},
	{"a nested object under an unknown name", `register: an unknown object`, "204, no then statusPageUrl, no then vipAddress",
		"204, then statusPageUrl `http://{host}:8080/info`, then vipAddress `{lower}`"},
	{"a data center whose class is missing or unknown, or has metadata", `register: dataCenterInfo is .*`, "400, then 404", "204, then 200"},
	{"Amazon's data center without metadata", `register: dataCenterInfo is .*`, "204, no then healthCheckUrl", "204, then healthCheckUrl `http://{host}:8080/health`"},
	{"an empty country", `register: countryId is ""`, "204, then countryId `0`", "204, then countryId `1`"},
	{"a client's time that is empty or negative", `register: lastDirtyTimestamp is ("-1"|"")`, "204, then lastDirtyTimestamp `0` or 204, then lastDirtyTimestamp `-1`",
		"204, then lastDirtyTimestamp `now`"},
	{"lease times out of bounds", `register: leaseInfo is .*`, "204, then leaseInfo.durationInSecs or 400, then 404", "204, then leaseInfo.durationInSecs or 204, then 200"},
	{"metadata that is null", `register: metadata is .*`, "204, no then metadata.@class, then metadata.null `null`", "204, then metadata.@class `java.util.Collections$EmptyMap`, no then metadata.null"},
	{"a status or override in lower case, in JSON", `register: (overriddenStatus is "down"|status is "up")`, "204, then leaseInfo.serviceUpTimestamp", "204, then leaseInfo.serviceUpTimestamp"},
	{"a port whose enabled flag is in capital letters", `register: port is .*"TRUE".*`, "204, then port.@enabled `false`", "204, then port.@enabled `true`"},
	{"JSON of another media type", `register: JSON as .*`, "415, then 404", "204, then 200"},
	{"an invalid media type", `register: JSON as .*`, "400", "415"},
}
