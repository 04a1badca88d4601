package httpd

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/seed-20419f34/rollcall/httpd/eureka"
)

// longPoll answers with the changes after the feed's position as soon as there are any, and with
// none when the time has passed or the node shuts down. It answers at most maxRead; the next poll
// gets the others at once.
func (h *Handler) longPoll(ctx context.Context, w http.ResponseWriter, f *feed, wait time.Duration) error {
	out := newWatchWriter(w, h.watches.pace)
	out.pause()
	defer out.end()
	changes, err := f.next(ctx, wait)
	if reason := lost(err); reason != "" {
		return h.gone(f, reason, err)
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Rollcall-Index", f.at.String())
	out.begin()
	out.buf = append(eureka.AppendText(append(out.buf, `{"index":`...), f.at.String()), `,"changes":[`...)
	for i, c := range changes {
		if i > 0 {
			out.buf = append(out.buf, ',')
		}
		out.buf = appendChange(out.buf, f.at.epoch, c)
		if out.full() && out.flush() != nil {
			return nil // the client went away, or reads nothing
		}
	}
	out.buf = append(out.buf, "]}\n"...)
	if out.flush() == nil {
		h.watches.events.Add(float64(len(changes)))
	}
	return nil
}

// gone tells a watcher to fetch everything and from where to go on then.
func (h *Handler) gone(f *feed, reason string, cause error) error {
	if err := f.restart(); err != nil {
		return err
	}
	h.watches.resets.WithLabelValues(reason).Inc()
	return &refusal{status: http.StatusGone, text: lostText[reason], index: f.at.String(), cause: cause}
}
