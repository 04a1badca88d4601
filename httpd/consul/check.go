package consul

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/catalog"
	"github.com/seed-20419f34/rollcall/fsm/registry"
)

// Times of checks, as the reference has them (agent/structs/check_type.go, agent/agent.go).
const (
	minInterval    = time.Second
	minReapAfter   = time.Minute
	defaultTimeout = 10 * time.Second
)

var statusWords = [...]string{catalog.Passing: "passing", catalog.Warning: "warning", catalog.Critical: "critical"}

// StatusWord is the word for a check's state.
func StatusWord(s catalog.CheckStatus) string { return statusWords[s] }

// ParseStatus is the inverse of StatusWord.
func ParseStatus(word string) (catalog.CheckStatus, bool) {
	at := slices.Index(statusWords[:], word)
	return catalog.CheckStatus(max(at, 0)), at >= 0
}

// checkBody is a check as the agent's clients define it.
type checkBody struct {
	id, checkID, name, notes, status, service string
	ttl, interval, timeout, reapAfter         duration
	http, method, body, tcp                   string
	header                                    map[string][]string
	skipVerify, noRedirects                   bool
	success, warning, critical                int32
	other                                     string // a way of checking that is asked for and not offered
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *checkBody) UnmarshalJSON(data []byte) error {
	fields := map[string]any{
		"id": &c.id, "checkid": &c.checkID, "name": &c.name, "notes": &c.notes, "status": &c.status, "serviceid": &c.service,
		"ttl": &c.ttl, "interval": &c.interval, "timeout": &c.timeout, "deregistercriticalserviceafter": &c.reapAfter,
		"http": &c.http, "method": &c.method, "body": &c.body, "tcp": &c.tcp, "header": &c.header, "tlsskipverify": &c.skipVerify, "disableredirects": &c.noRedirects,
		"successbeforepassing": &c.success, "failuresbeforewarning": &c.warning, "failuresbeforecritical": &c.critical,
	}
	others := make([]json.RawMessage, len(notOffered))
	for i, name := range notOffered {
		fields[folded(name)] = &others[i]
	}
	err := decodeFields(data, fields)
	if asked := slices.IndexFunc(others, func(value json.RawMessage) bool { return !isZero(value) }); asked >= 0 {
		c.other = notOffered[asked]
	}
	return err
}

// notOffered are the ways of checking that would run programs on the server, or speak protocols that it
// does not.
var notOffered = []string{
	"ScriptArgs", "Args", "Script", "DockerContainerID", "Shell", "GRPC", "H2PING", "UDP", "OSService", "AliasNode", "AliasService", "TCPUseTLS",
}

// isEmpty says whether the check was given as {}: the reference then takes it as not given.
func (c *checkBody) isEmpty() bool {
	return c.id == "" && c.checkID == "" && c.name == "" && c.notes == "" && c.status == "" && c.ttl == 0 && c.interval == 0 &&
		c.http == "" && c.tcp == "" && c.other == ""
}

// isZero says whether a value means "not given".
func isZero(value json.RawMessage) bool {
	switch string(value) {
	case "", "null", `""`, "0", "false", "[]", "{}", `"0s"`:
		return true
	}
	return false
}

// validate says what is wrong with a check, in the reference's words and order
// (agent/structs/check_type.go, CheckType.Validate).
func (c *checkBody) validate() error {
	probed := c.http != "" || c.tcp != ""
	switch {
	case c.other != "":
		return malformed("Invalid check: %s is not supported; a check is one of TTL, HTTP and TCP", c.other)
	case c.interval > 0 && c.ttl > 0:
		return malformed("Invalid check: Interval and TTL cannot both be specified")
	case c.http != "" && c.tcp != "":
		return malformed("Invalid check: HTTP and TCP cannot both be specified")
	case probed && c.interval <= 0:
		return malformed("Invalid check: Interval must be > 0 for Script, HTTP, H2PING, TCP, UDP or OSService checks")
	case !probed && c.ttl <= 0:
		return malformed("Invalid check: TTL must be > 0 for TTL checks")
	case c.success < 0 || c.warning < 0 || c.critical < 0:
		return malformed("Invalid check: SuccessBeforePassing, FailuresBeforeWarning and FailuresBeforeCritical must not be negative")
	case c.warning > c.critical:
		return malformed("Invalid check: FailuresBeforeWarning can't be higher than FailuresBeforeCritical")
	}
	return nil
}

// check is the check that is registered.
func (c *checkBody) check() (*catalog.Check, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	status, known := ParseStatus(c.status)
	switch {
	case c.status == "":
		status = catalog.Critical
	case !known:
		return nil, malformed("Status for checks must 'passing', 'warning', 'critical'")
	}
	made := &catalog.Check{
		ID: cmp.Or(c.id, c.checkID, c.name), Name: c.name, Notes: c.notes, Status: status, Service: c.service,
		TTL: c.ttl.ms(), Type: "ttl", ReapAfter: c.reapAfter.ms(),
	}
	if made.ReapAfter > 0 {
		made.ReapAfter = max(made.ReapAfter, minReapAfter.Milliseconds())
	}
	if c.ttl <= 0 {
		made.Type, made.Probe = "tcp", c.probe()
	}
	if c.http != "" {
		made.Type = "http"
	}
	return made, nil
}

func (c *checkBody) probe() *catalog.Probe {
	p := &catalog.Probe{
		HTTP: c.http, Method: c.method, Body: c.body, SkipVerify: c.skipVerify, NoRedirects: c.noRedirects, TCP: c.tcp,
		Interval: max(c.interval, duration(minInterval)).ms(), Timeout: c.timeout.ms(),
		SuccessBeforePassing: c.success, FailuresBeforeWarning: c.warning, FailuresBeforeCritical: c.critical,
	}
	if p.Timeout == 0 {
		p.Timeout = defaultTimeout.Milliseconds()
	}
	if p.FailuresBeforeWarning == 0 {
		p.FailuresBeforeWarning = p.FailuresBeforeCritical
	}
	for _, name := range slices.Sorted(maps.Keys(c.header)) {
		for _, value := range c.header[name] {
			p.Header = append(p.Header, registry.Pair{Key: name, Value: value})
		}
	}
	return p
}

// DecodeCheck reads the body of agent/check/register. Errors: Malformed.
func DecodeCheck(body []byte) (registry.RegisterCatalog, error) {
	var c checkBody
	if err := decodeBody(body, &c); err != nil {
		return registry.RegisterCatalog{}, err
	}
	if c.name == "" {
		return registry.RegisterCatalog{}, malformed("Missing check name")
	}
	check, err := c.check()
	if err == nil {
		err = checkName("check id", check.ID)
	}
	if err != nil {
		return registry.RegisterCatalog{}, err
	}
	return registry.RegisterCatalog{Checks: []*catalog.Check{check}, KeepStatus: c.status == ""}, nil
}

// DecodeStatus reads the body of agent/check/update. Errors: Malformed.
func DecodeStatus(body []byte) (status catalog.CheckStatus, output string, err error) {
	var word string
	if err := decodeFields(body, map[string]any{"status": &word, "output": &output}); err != nil {
		return 0, "", undecodable(err)
	}
	status, known := ParseStatus(word)
	if !known {
		return 0, "", malformed("Invalid check status: '%s'", word)
	}
	return status, output, nil
}

// Maintenance is the check that keeps a service, or (service "") the logical node, out of use. Texts are
// the reference's (agent/agent.go).
func Maintenance(service, reason string) *catalog.Check {
	id, name, what := catalog.NodeMaintenance, "Node Maintenance Mode", "node"
	if service != "" {
		id, name, what = catalog.ServiceMaintenance+service, "Service Maintenance Mode", "service"
	}
	if reason == "" {
		reason = fmt.Sprintf("Maintenance mode is enabled for this %s, but no reason was provided. This is a default message.", what)
	}
	return &catalog.Check{ID: id, Name: name, Notes: reason, Status: catalog.Critical, Service: service, Type: "maintenance"}
}
