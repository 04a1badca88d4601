package ownroutes

import (
	"net/http"

	"github.com/seed-20419f34/rollcall/httpd/web"
)

// healthz is GET /healthz: the process answers.
func (c call) healthz() (any, error) { return c.SendText("ok\n") }

// part is what a node needs to be ready.
type part struct {
	name  string
	lacks string // in words; "": nothing
}

// parts are what a node needs to be asked, and with writes to change something.
func (c call) parts(writes bool) []part {
	health := c.Service.Health()
	lacking := func(is bool, text string) string {
		if is {
			return text
		}
		return ""
	}
	all := []part{
		{"running", lacking(c.Draining.Load(), "the node is shutting down")},
		{"state", lacking(!health.Ready, "the node is still loading its state or has not heard of a leader yet")},
	}
	if writes && !c.WithoutConsensus {
		all = append(all, part{"writes", lacking(!health.Quorum, "no leader is known, or no majority of the nodes can be reached")})
	}
	return all
}

// readyz is GET /readyz: the node may be asked; with writes, a write would not fail for want of a leader. With verbose it has
// a line for each part.
func (c call) readyz() (any, error) {
	verbose, writes := c.Given("verbose"), c.Given("writes")
	if c.Err != nil {
		return nil, c.Err
	}
	status, lines := http.StatusOK, ""
	for _, p := range c.parts(writes || verbose) {
		if p.lacks == "" {
			lines += p.name + ": ok\n"
			continue
		}
		lines += p.name + ": " + p.lacks + "\n"
		if p.name == "writes" && !writes {
			continue // shown only
		}
		if status = http.StatusServiceUnavailable; !verbose {
			return nil, &web.Refusal{Status: status, Text: "not ready: " + p.lacks}
		}
	}
	if !verbose {
		lines = "ready\n"
	}
	web.Respond(c.W, c.R, status, "text/plain; charset=utf-8", []byte(lines))
	return web.Sent, nil
}
