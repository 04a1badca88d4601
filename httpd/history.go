package httpd

import (
	"fmt"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/httpd/api"
)

func historyOf(events []registry.Event) []api.HistoryEvent {
	shown := []api.HistoryEvent{}
	for _, e := range events {
		shown = append(shown, api.HistoryEvent{
			At: e.At.Wall, What: e.Kind.String(), Text: eventText(e), Times: max(e.Times, 1),
			Author: e.By.Author, Reason: e.By.Reason,
		})
	}
	return shown
}

// eventText says what happened. Who did it, why, and how often has fields of its own.
func eventText(e registry.Event) string {
	switch e.Kind {
	case registry.EventRegistered, registry.EventReregistered:
		return fmt.Sprintf("%s as %s %s", e.Kind, e.Status, bySender(e.Origin))
	case registry.EventKept:
		return "an older registration " + bySender(e.Origin) + " was not taken over; the lease began anew"
	case registry.EventRenewedLate:
		return fmt.Sprintf("renewed %s after the renewal before", shownSpan(e.For))
	case registry.EventStatus:
		return fmt.Sprintf("status became %s %s", e.Status, bySender(e.Origin))
	case registry.EventOverridden:
		return fmt.Sprintf("%s forced %s", e.Status, howLong(e.For))
	case registry.EventOverrideEnded:
		return fmt.Sprintf("override ended; status became %s", e.Status)
	case registry.EventQuarantined:
		return "taken out of every list " + howLong(e.For)
	case registry.EventQuarantineEnded:
		return fmt.Sprintf("listed again as %s", e.Status)
	case registry.EventMetadata:
		return "metadata changed " + bySender(e.Origin)
	case registry.EventCanceled:
		if e.By.Reason != "" { // the leader did
			return "deregistered"
		}
		return "canceled " + bySender(e.Origin)
	case registry.EventEvicted:
		return fmt.Sprintf("evicted %s after the last renewal", shownSpan(e.For))
	}
	return e.Kind.String()
}

// howLong is the length (ms) of an override or quarantine.
func howLong(ms int64) string {
	if ms == 0 {
		return "without end"
	}
	return "for " + shownSpan(ms)
}
