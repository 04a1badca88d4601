package own

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/httpd/web"
)

// selfPreservation is GET /v1/rollcall/self-preservation.
func (c call) selfPreservation(v web.FreshView) (any, error) {
	return preservation(v.View, c.leaseClock(v.View)), nil
}

// releasePreservation is POST /v1/rollcall/self-preservation/release.
func (c call) releasePreservation() (any, error) {
	return c.preserve(registry.SelfPreservation{To: registry.PreservationReleased})
}

// holdPreservation is POST /v1/rollcall/self-preservation/hold.
func (c call) holdPreservation() (any, error) {
	return c.preserve(registry.SelfPreservation{To: registry.PreservationHeld, For: c.length(true)})
}

// preserve performs an operator's transition, with the numbers as this node sees them, and responds with the resulting
// state of self-preservation.
func (c call) preserve(op registry.SelfPreservation) (any, error) {
	c.IgnoreBody()
	op.By = c.By()
	if c.Err != nil {
		return nil, c.Err
	}
	before := web.StaleView(c.Service)
	if before == nil {
		return nil, registry.ErrClosed
	}
	op.From, op.Figures = before.Preservation().State, before.Freshness(c.leaseClock(before).Now)
	result, err := c.Apply(registry.FromClient, op)
	if err != nil {
		return nil, err
	}
	after, err := c.ViewAfterWrite(c.R.Context())
	if err != nil {
		return nil, err
	}
	if result.Outcome == registry.Refused {
		p := after.Preservation()
		text := fmt.Sprintf("self-preservation is %s: there is nothing to release", p.State)
		if p.State == registry.PreservationReleased {
			text = fmt.Sprintf("self-preservation is released since %s: there is nothing to release", shownTime(p.Since.Wall))
		}
		return nil, &web.Refusal{Status: http.StatusConflict, Text: text}
	}
	c.Log.Info("an operator changed self-preservation", "state", op.To, "for_ms", op.For, "author", op.By.Author, "reason", op.By.Reason)
	after.Label(c.W.Header(), after.Index())
	return preservation(after.View, c.leaseClock(after.View)), nil
}

// preservation returns self-preservation with its history and the single applications.
func preservation(v *registry.View, at Clock) api.SelfPreservation {
	shown := PreservationNow(v, at, v.Freshness(at.Now))
	shown.Applications, shown.Transitions = []api.AppFigures{}, []api.PreservationStep{}
	for _, a := range v.FreshnessByApp(at.Now) {
		app := api.AppFigures{App: a.App, Figures: api.Figures{Leases: a.Leases, Counted: a.Counted, Fresh: a.Fresh, Expired: a.Expired}, Overdue: []api.Overdue{}}
		for _, o := range a.Overdue {
			app.Overdue = append(app.Overdue, api.Overdue{ID: o.Key.ID, SilentMS: o.Silent, EndsInMS: o.Ends})
		}
		shown.Applications = append(shown.Applications, app)
	}
	for _, p := range v.Transitions() {
		shown.Transitions = append(shown.Transitions, api.PreservationStep{
			State: p.State.String(), At: p.Since.Wall, Author: p.By.Author, Reason: p.By.Reason, Says: p.By.Says,
			Counted: p.Figures.Counted, Fresh: p.Figures.Fresh, Expired: p.Figures.Expired,
		})
	}
	return shown
}

// PreservationNow is preservation without its history and the single applications. f is what v.Freshness counted at
// about the same time: counting walks all leases.
func PreservationNow(v *registry.View, at Clock, f registry.Figures) api.SelfPreservation {
	p, s, e := v.Preservation(), v.Settings(), v.Expectation()
	holds, why := v.Condition(f)
	shown := api.SelfPreservation{
		State: p.State.String(), Reason: preservationReason(v, at, f, why), Since: p.Since.Wall,
		Author: p.By.Author, Note: p.By.Reason, Says: p.By.Says,
		Enabled: s.SelfPreservation, Threshold: float64(s.Threshold) / float64(registry.Whole), Population: s.Population, Condition: holds,
		Figures: api.Figures{Leases: f.Leases, Counted: f.Counted, Fresh: f.Fresh, Expired: f.Expired}, Clock: at.kind(),
		Upstream: api.Upstream{
			Decides: s.Expectation, ExpectedClients: e.Clients, Threshold: e.Threshold,
			LastMinute: e.Renewals, Sliding: e.Sliding, AllowsEviction: e.Allows,
		},
	}
	if p.Until != 0 {
		shown.Until = at.wall(p.Until)
	}
	if p.State.Withholds() {
		shown.Withheld = f.Expired
	}
	return shown
}

// preservationReason says in sentences what self-preservation does, why, until when, and what an operator can do; why
// is the condition's own sentence.
func preservationReason(v *registry.View, at Clock, f registry.Figures, why string) string {
	p := v.Preservation()
	switch p.State {
	case registry.PreservationOn:
		return fmt.Sprintf("Self-preservation is on since %s: %s. Evictions are withheld%s: %s. It goes off by itself when enough leases are fresh; %s lets evictions go on now.",
			shownTime(p.Since.Wall), why, untilText(p, at, ", at the latest until "), endedLeases(f), releaseCall)
	case registry.PreservationHeld:
		return fmt.Sprintf("%s. Evictions are withheld%s: %s. Without the hold: %s. %s ends it.",
			byWhom("Held", p), untilText(p, at, " until "), endedLeases(f), why, releaseCall)
	case registry.PreservationReleased:
		how := "It was on for as long as it may be, and released itself at " + shownTime(p.Since.Wall)
		if p.By != (registry.Act{}) {
			how = byWhom("Released", p)
		}
		return fmt.Sprintf("%s. Evictions go on although %s. It can come on again after that was not so once.", how, why)
	}
	if !v.Settings().SelfPreservation {
		return strings.ToUpper(why[:1]) + why[1:] + ". Leases are evicted when they end."
	}
	return fmt.Sprintf("Self-preservation is off: %s. Leases are evicted when they end.", why)
}

// releaseCall is what an operator calls to let evictions go on.
const releaseCall = "`rollcall self-preservation release` (POST /v1/rollcall/self-preservation/release)"

// byWhom names the operator behind a state, the time and the reason.
func byWhom(what string, p registry.Preservation) string {
	text := fmt.Sprintf("%s by %s at %s", what, p.By.Author, shownTime(p.Since.Wall))
	if p.By.Reason != "" {
		text += " (" + p.By.Reason + ")"
	}
	return text
}

func untilText(p registry.Preservation, at Clock, lead string) string {
	if p.Until == 0 {
		return ""
	}
	return lead + shownTime(at.wall(p.Until))
}

func endedLeases(f registry.Figures) string {
	if f.Expired == 1 {
		return "1 lease has ended"
	}
	return fmt.Sprintf("%d leases have ended", f.Expired)
}
