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

// minReapAfter is the shortest time after which a critical service is removed (hashicorp/consul, agent/agent.go).
const minReapAfter = time.Minute

var statusWords = [...]string{catalog.Passing: "passing", catalog.Warning: "warning", catalog.Critical: "critical"}

// StatusWord returns the word for a check's state.
func StatusWord(s catalog.CheckStatus) string { return statusWords[s] }

// parseStatus reverses StatusWord.
func parseStatus(word string) (catalog.CheckStatus, bool) {
	at := slices.Index(statusWords[:], word)
	return catalog.CheckStatus(max(at, 0)), at >= 0
}

// checkBody is a check as the agent's clients define it.
type checkBody struct {
	id, checkID, name, notes, status, service string
	ttl, interval, timeout, reapAfter         duration
	http, method, body                        string
	tcp, udp, grpc, h2ping, serverName        string
	aliasNode, aliasService                   string
	header                                    map[string][]string
	skipVerify, noRedirects, tcpTLS, grpcTLS  bool
	h2TLS                                     *bool // nil if not given, which means true
	success, warning, critical                int32
	outputMaxSize                             int64
	other                                     string // a requested kind of probe that is not offered
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *checkBody) UnmarshalJSON(data []byte) error {
	fields := map[string]any{
		"id": &c.id, "checkid": &c.checkID, "name": &c.name, "notes": &c.notes, "status": &c.status, "serviceid": &c.service,
		"ttl": &c.ttl, "interval": &c.interval, "timeout": &c.timeout, "deregistercriticalserviceafter": &c.reapAfter,
		"http": &c.http, "method": &c.method, "body": &c.body, "header": &c.header, "tlsskipverify": &c.skipVerify, "disableredirects": &c.noRedirects,
		"tcp": &c.tcp, "udp": &c.udp, "grpc": &c.grpc, "h2ping": &c.h2ping, "tlsservername": &c.serverName,
		"tcpusetls": &c.tcpTLS, "grpcusetls": &c.grpcTLS, "h2pingusetls": &c.h2TLS, "aliasnode": &c.aliasNode, "aliasservice": &c.aliasService,
		"successbeforepassing": &c.success, "failuresbeforewarning": &c.warning, "failuresbeforecritical": &c.critical,
		"outputmaxsize": &c.outputMaxSize,
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

// notOffered lists the kinds of probes that would run programs on the server, or ask it about itself.
var notOffered = []string{"ScriptArgs", "Args", "Script", "DockerContainerID", "Shell", "OSService"}

// isEmpty reports whether the check was given as {}, which Consul takes as not given.
func (c *checkBody) isEmpty() bool {
	return c.id == "" && c.checkID == "" && c.name == "" && c.notes == "" && c.status == "" && c.ttl == 0 && c.interval == 0 &&
		len(c.ways()) == 0 && !c.isAlias() && c.other == ""
}

// way is a kind of probe, by the names of its type and of its field.
type way struct{ kind, field string }

// ways returns the kinds of probes that were given.
func (c *checkBody) ways() (given []way) {
	for _, each := range [...]struct {
		way
		target string
	}{
		{way{"http", "HTTP"}, c.http}, {way{"tcp", "TCP"}, c.tcp}, {way{"udp", "UDP"}, c.udp}, {way{"grpc", "GRPC"}, c.grpc}, {way{"h2ping", "H2PING"}, c.h2ping},
	} {
		if each.target != "" {
			given = append(given, each.way)
		}
	}
	return given
}

func (c *checkBody) isAlias() bool { return c.aliasNode != "" || c.aliasService != "" }

// isZero reports whether a value means "not given".
func isZero(value json.RawMessage) bool {
	switch string(value) {
	case "", "null", `""`, "0", "false", "[]", "{}", `"0s"`:
		return true
	}
	return false
}

// validate returns what is wrong with a check, in Consul's words and order (agent/structs/check_type.go,
// CheckType.Validate). Given two kinds of probes Consul silently takes one.
func (c *checkBody) validate() error {
	ways := c.ways()
	switch probed := len(ways) > 0; {
	case c.other != "":
		return malformed("Invalid check: %s is not supported; a check is one of TTL, HTTP, TCP, UDP, GRPC, H2PING, and AliasService or AliasNode", c.other)
	case c.interval > 0 && c.ttl > 0:
		return malformed("Invalid check: Interval and TTL cannot both be specified")
	case len(ways) > 1:
		return malformed("Invalid check: %s and %s cannot both be specified", ways[0].field, ways[1].field)
	case probed && c.interval <= 0:
		return malformed("Invalid check: Interval must be > 0 for Script, HTTP, H2PING, TCP, UDP or OSService checks")
	case probed && c.isAlias():
		return malformed("Invalid check: Interval cannot be set for Alias checks")
	case c.isAlias() && c.ttl > 0:
		return malformed("Invalid check: TTL must be not be set for Alias checks")
	case !probed && !c.isAlias() && c.ttl <= 0:
		return malformed("Invalid check: TTL must be > 0 for TTL checks")
	case c.success < 0 || c.warning < 0 || c.critical < 0:
		return malformed("Invalid check: SuccessBeforePassing, FailuresBeforeWarning and FailuresBeforeCritical must not be negative")
	case c.outputMaxSize < 0:
		return malformed("Invalid check: MaxOutputMaxSize must be positive")
	case c.warning > c.critical:
		return malformed("Invalid check: FailuresBeforeWarning can't be higher than FailuresBeforeCritical")
	}
	return nil
}

// check returns the check to register.
func (c *checkBody) check() (*catalog.Check, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	status, known := parseStatus(c.status)
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
	switch ways := c.ways(); {
	case len(ways) > 0:
		made.Type, made.Probe = ways[0].kind, c.probe()
	case c.isAlias():
		made.Type, made.Alias = "alias", &catalog.Alias{Named: c.aliasNode != "", Node: nodeOf(c.aliasNode), Service: c.aliasService}
		return made, c.checkAlias()
	}
	return made, nil
}

// checkAlias returns what is wrong with the names of an alias check's target. The target need not exist yet.
func (c *checkBody) checkAlias() error {
	if c.aliasNode != "" {
		if err := checkName("alias node", c.aliasNode); err != nil {
			return err
		}
	}
	if c.aliasService != "" {
		return checkName("alias service id", c.aliasService)
	}
	return nil
}

// probe returns what the leader should try. A missing Timeout, and an Interval that is too short, are shown as given;
// the prober has its own bounds.
func (c *checkBody) probe() *catalog.Probe {
	p := &catalog.Probe{
		HTTP: c.http, Method: c.method, Body: c.body, SkipVerify: c.skipVerify, NoRedirects: c.noRedirects, TCP: c.tcp,
		Interval: c.interval.ms(), Timeout: c.timeout.ms(),
		SuccessBeforePassing: c.success, FailuresBeforeWarning: c.warning, FailuresBeforeCritical: c.critical,
		GRPC: c.grpc, UDP: c.udp, H2PING: c.h2ping, ServerName: c.serverName,
	}
	p.UseTLS = c.tcp != "" && c.tcpTLS || c.grpc != "" && c.grpcTLS || c.h2ping != "" && (c.h2TLS == nil || *c.h2TLS)
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

// decodeCheck reads the body of agent/check/register. Errors: a refusal.
func decodeCheck(body []byte) (registry.RegisterCatalog, error) {
	var c checkBody
	if err := decodeBody(body, &c); err != nil {
		return registry.RegisterCatalog{}, err
	}
	if c.name == "" {
		return registry.RegisterCatalog{}, malformed("Missing check name")
	}
	check, err := c.check()
	if err == nil {
		err = cmp.Or(checkName("check id", check.ID), checkOwn(check.ID))
	}
	if err != nil {
		return registry.RegisterCatalog{}, err
	}
	return registry.RegisterCatalog{Checks: []*catalog.Check{check}, KeepStatus: true}, nil
}

// checkOwn refuses the id of the check that each agent has: a replacement could declare the whole node dead.
func checkOwn(id string) error {
	if id == catalog.SerfHealth {
		return malformed("Invalid check id, %q stands for the agent itself", id)
	}
	return nil
}

// decodeStatus reads the body of agent/check/update. Errors: a refusal.
func decodeStatus(body []byte) (status catalog.CheckStatus, output string, err error) {
	var word string
	if err := decodeFields(body, map[string]any{"status": &word, "output": &output}); err != nil {
		return 0, "", undecodable(requestFailed, err)
	}
	status, known := parseStatus(word)
	if !known {
		return 0, "", malformed("Invalid check status: '%s'", word)
	}
	return status, output, nil
}

// maintenance returns the check that keeps a service, or with service "" an agent's node, out of use. Its
// texts are Consul's (agent/agent.go).
func maintenance(service, reason string) *catalog.Check {
	id, name, what := catalog.NodeMaintenance, "Node Maintenance Mode", "node"
	if service != "" {
		id, name, what = catalog.ServiceMaintenance+service, "Service Maintenance Mode", "service"
	}
	if reason == "" {
		reason = fmt.Sprintf("Maintenance mode is enabled for this %s, but no reason was provided. This is a default message.", what)
	}
	return &catalog.Check{ID: id, Name: name, Notes: reason, Status: catalog.Critical, Service: service, Type: "maintenance"}
}
