package transport

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestCallFindsRollcallOnceAmongServersOfBothKinds(t *testing.T) {
	j := newJournal()
	c := servers{"a": j.around(always(404, springAnswer)), "b": always(200, `{}`)}.cluster(t, "a", "b")
	for range 3 {
		need.Got(c.status(t.Context()))(t)
	}
	expect.Equal(t, len(j.lines), 1, "requests at the server that is not Rollcall:")
}

// TestCallToOneServerThatIsNotRollcallProvesNothing: the others may answer the next time.
func TestCallToOneServerThatIsNotRollcallProvesNothing(t *testing.T) {
	_, err := servers{"a": always(404, "<html>"), "b": unreachable}.cluster(t, "a", "b").status(t.Context())
	expect.That(t, err != nil && !errors.Is(err, ErrNeedsRollcall) && strings.Contains(err.Error(), "http://a"),
		"Status: %v, want an error that names both servers and is not ErrNeedsRollcall", err)
}

func TestWriteHasThreeOutcomes(t *testing.T) {
	unknown := always(504, "", "X-Rollcall-Outcome", "unknown")
	for _, tc := range []struct {
		name          string
		first, second func(*http.Request) (*http.Response, error)
		want          error // nil: done
		status        int   // of the StatusError; 0: none; negative: any other error
	}{
		{name: "done", first: always(200, ""), second: cutOff},
		{name: "unknown instance", first: always(404, ""), second: cutOff, want: errMissing},
		{name: "refused", first: always(400, "no"), second: always(200, ""), status: 400},
		{name: "no leader there, done elsewhere", first: always(503, ""), second: always(200, "")},
		{name: "no leader anywhere", first: always(503, ""), second: always(503, ""), status: 503},
		{name: "unreachable, done elsewhere", first: unreachable, second: always(200, "")},
		{name: "unreachable, unknown instance elsewhere", first: unreachable, second: always(404, ""), want: errMissing},
		{name: "the server does not know", first: unknown, second: always(200, ""), want: ErrUnknownOutcome},
		{name: "cut off, done elsewhere", first: cutOff, second: always(200, "")},
		{name: "cut off, no server elsewhere", first: cutOff, second: unreachable, want: ErrUnknownOutcome},
		{name: "cut off, no leader elsewhere", first: cutOff, second: always(503, ""), want: ErrUnknownOutcome},
		{name: "cut off, gone elsewhere", first: cutOff, second: always(404, "")},
		{name: "a proxy's timeout, no server elsewhere", first: always(504, ""), second: unreachable, want: ErrUnknownOutcome},
		{name: "a redirect, done elsewhere", first: always(302, ""), second: always(200, "")},
		{name: "a stock server that is not up and may have done it all the same", first: always(307, ""), second: always(503, ""), want: ErrUnknownOutcome},
		{name: "this mode has no such thing", first: always(501, ""), second: always(200, ""), status: 501},
		{name: "any other failure of the server, done elsewhere", first: always(508, ""), second: always(200, "")},
		{name: "it is not trusted, no server elsewhere", first: untrusted, second: unreachable, status: -1},
		{name: "no response, done elsewhere", first: silent, second: always(200, "")},
		{name: "no response anywhere", first: silent, second: silent, want: ErrUnknownOutcome},
	} {
		inBubble(t, tc.name, func(t *testing.T) {
			err := servers{"a": tc.first, "b": tc.second}.cluster(t, "a", "b").cancelLease(t.Context())
			expect.That(t, tc.want == nil || errors.Is(err, tc.want), "Cancel: %v, want %v", err, tc.want)
			var status *Refusal
			if tc.status > 0 && (!errors.As(err, &status) || status.Status != tc.status || errors.Is(err, ErrUnknownOutcome)) {
				t.Errorf("Cancel: %v, want a plain status %d", err, tc.status)
			}
			if tc.status < 0 && (err == nil || errors.Is(err, ErrUnknownOutcome)) {
				t.Errorf("Cancel: %v, want an error that says that nothing was done", err)
			}
			expect.That(t, tc.want != nil || tc.status != 0 || err == nil, "Cancel: %v, want success", err)
		})
	}
}

func TestReadThatFailsIsNeverAnUnknownOutcome(t *testing.T) {
	_, err := servers{"a": cutOff, "b": unreachable}.cluster(t, "a", "b").fetch(t.Context(), "apps")
	expect.That(t, err != nil && !errors.Is(err, ErrUnknownOutcome), "fetch: %v, want an error that is not an unknown outcome", err)
}

func TestServerThatRespondedIsAskedFirstNextTime(t *testing.T) {
	j := newJournal()
	down := true
	flaky := func(r *http.Request) (*http.Response, error) {
		if down {
			return unreachable(r)
		}
		return responded(200, "")
	}
	c := servers{"a": j.around(flaky), "b": always(200, "")}.cluster(t, "a", "b")
	for range 3 {
		need.OK(t, c.renew(t.Context()))
		down = false
	}
	expect.Equal(t, len(j.lines), 1, "how often the first server was asked, before the second one answered:")
}

func TestServerThatIsSilentCostsOneTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := servers{"a": silent, "b": always(200, "")}.cluster(t, "a", "b")
		start := time.Now()
		need.OK(t, c.renew(t.Context()))
		expect.Equal(t, time.Since(start), usualTimeout, "took")
	})
}
