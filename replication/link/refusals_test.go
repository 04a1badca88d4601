package link

import (
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

func TestRefusalIsLoggedOncePerChangeAndCountedEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &strings.Builder{}
		r := NewRefusals(nil, slog.New(slog.NewTextHandler(log, nil)))
		big, lines := registry.NewKey("BIG", "b"), func() int { return strings.Count(log.String(), "\n") }
		for range 3 {
			r.Record(big, "register", "old1", "too much metadata")
			time.Sleep(time.Minute)
		}
		r.Record(big, "register", "old2", "too much metadata")
		r.Record(registry.NewKey("FINE", "f"), "register", "old1", "")
		expect.Equal(t, lines(), 2, "lines of two servers' refusals: %s", log)
		expect.Equal(t, testutil.ToFloat64(r.Total), 4, "refusals counted")
		all := r.List()
		expect.That(t, len(all) == 2 && all[0].From == "old1" && all[0].Times == 3 && all[0].Last-all[0].Since == 120_000 && all[0].Text == "too much metadata", "refused: %+v", all)

		r.Record(big, "register", "old1", "")
		expect.Equal(t, lines(), 3, "lines after it was accepted: %s", log)
		expect.That(t, len(r.List()) == 1 && r.List()[0].From == "old2", "refused after it was accepted: %+v", r.List())
		time.Sleep(refusedFor)
		expect.Equal(t, len(r.List()), 1, "refused an hour later")
		time.Sleep(time.Second)
		expect.Equal(t, len(r.List()), 0, "refused a second after that")
	})
}

func TestWhatIsHeldIsDueInTimeAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRefusals(nil, slog.New(slog.DiscardHandler))
		a, gone, refused := registry.NewKey("A", "a"), registry.NewKey("A", "gone"), registry.NewKey("A", "refused")
		r.Hold(a, "register", "", "held", time.Minute)
		r.Hold(gone, "register", "", "held", time.Minute)
		r.Record(refused, "register", "", "refused for good")
		due := func(want ...registry.Key) {
			t.Helper()
			expect.Slice(t, r.Due(10*time.Second, func(k registry.Key) bool { return k != gone }), want, "due")
		}
		expect.That(t, r.Held(a, "") && !r.Held(refused, "") && !r.Held(a, "dc2"), "held")
		due()
		time.Sleep(time.Minute)
		expect.That(t, !r.Held(a, ""), "it is held after its time")
		due(a)
		due()
		expect.Equal(t, len(r.List()), 2, "remembered after one is not there any more")
		time.Sleep(10 * time.Second)
		due(a) // nothing was heard of the first
		r.Drop(refused, "")
		r.Drop(a, "")
		expect.That(t, len(r.List()) == 1 && r.List()[0].ID == "refused", "remembered: %+v", r.List())
	})
}

func TestRefusalsAreBounded(t *testing.T) {
	r := NewRefusals(nil, slog.New(slog.DiscardHandler))
	for n := range refusalsKept + 10 {
		r.Record(registry.NewKey("A", strconv.Itoa(n)), "register", "old1", strings.Repeat("ä", refusedText))
	}
	all := r.List()
	expect.Equal(t, len(all), refusalsKept, "remembered")
	expect.That(t, len(all[0].Text) <= refusedText+len("…")+len("\uFFFD"), "a reason of %d bytes is remembered", len(all[0].Text))
}
