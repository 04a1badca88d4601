package rollcallpeer

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
)

func TestDifferenceOfFilesIsLoggedOnceAndOnlyIfItStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(strings.Builder)
		own := "a"
		f := &fileComparison{own: func() string { return own }, log: slog.New(slog.NewTextHandler(log, nil))}
		hear := func(digest string, times int) {
			for range times {
				f.heard(digest)
				time.Sleep(10 * time.Second)
			}
		}
		want := func(differs, known bool, warnings int) {
			t.Helper()
			d, ok := f.differs()
			expect.That(t, d == differs && ok == known || !known && !ok, "got %v, %v, want %v, %v", d, ok, differs, known)
			expect.Equal(t, strings.Count(log.String(), "level=WARN"), warnings, "warnings:")
		}
		want(false, false, 0)
		hear("", 20) // an older version
		want(false, false, 0)
		hear("a", 3)
		want(false, true, 0)
		own = "b" // the change reaches this node first
		hear("a", 5)
		want(true, true, 0)
		hear("b", 1)
		want(false, true, 0)
		hear("none", 20)
		want(true, true, 1)
		own = "none"
		want(false, true, 1)
	})
}
