package own

import (
	"net/http"

	"github.com/seed-20419f34/rollcall/httpd/web"
)

// healthz is GET /healthz: the process answers.
func (c call) healthz() (any, error) { return c.SendText("ok\n") }

// readyz is GET /readyz: the node may be asked; with writes, a write would also find a leader. With verbose it has a
// line for each part.
func (c call) readyz() (any, error) {
	verbose, writes := c.Given("verbose"), c.Given("writes")
	status, lines := http.StatusOK, ""
	for _, p := range c.NeededParts(writes || verbose) {
		if p.Lacks == "" {
			lines += p.Name + ": ok\n"
			continue
		}
		lines += p.Name + ": " + p.Lacks + "\n"
		if p.Name == "writes" && !writes {
			continue // shown only
		}
		if status = http.StatusServiceUnavailable; !verbose {
			return nil, &web.Refusal{Status: status, Text: p.Sentence()}
		}
	}
	if !verbose {
		lines = web.Ready + "\n"
	}
	web.Respond(c.W, c.R, status, "text/plain; charset=utf-8", []byte(lines))
	return web.Sent, nil
}
