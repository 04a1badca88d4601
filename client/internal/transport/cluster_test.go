package transport

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/client/internal/fake"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestCallFindsRollcallOnceAmongServersOfBothKinds(t *testing.T) {
	j := fake.NewJournal()
	c := clusterOf(t, fake.Servers{"a": j.Around(fake.Always(404, springAnswer)), "b": fake.Always(200, `{}`)}, "a", "b")
	for range 3 {
		need.Got(c.status(t.Context()))(t)
	}
	expect.Equal(t, len(j.Times()), 1, "requests at the server that is not Rollcall:")
}

// TestCallToOneServerThatIsNotRollcallProvesNothing: the others may answer the next time.
func TestCallToOneServerThatIsNotRollcallProvesNothing(t *testing.T) {
	_, err := clusterOf(t, fake.Servers{"a": fake.Always(404, "<html>"), "b": fake.Unreachable}, "a", "b").status(t.Context())
	expect.That(t, err != nil && !errors.Is(err, ErrNeedsRollcall) && strings.Contains(err.Error(), "http://a"),
		"Status: %v, want an error that names both servers and is not ErrNeedsRollcall", err)
}

func TestWriteHasThreeOutcomes(t *testing.T) {
	unknown := fake.Always(504, "", "X-Rollcall-Outcome", "unknown")
	for _, tc := range []struct {
		name          string
		first, second func(*http.Request) (*http.Response, error)
		want          error // nil: done
		status        int   // of the StatusError; 0: none; negative: any other error
	}{
		{name: "done", first: fake.Always(200, ""), second: fake.CutOff},
		{name: "unknown instance", first: fake.Always(404, ""), second: fake.CutOff, want: errMissing},
		{name: "refused", first: fake.Always(400, "no"), second: fake.Always(200, ""), status: 400},
		{name: "no leader there, done elsewhere", first: fake.Always(503, ""), second: fake.Always(200, "")},
		{name: "no leader anywhere", first: fake.Always(503, ""), second: fake.Always(503, ""), status: 503},
		{name: "unreachable, done elsewhere", first: fake.Unreachable, second: fake.Always(200, "")},
		{name: "unreachable, unknown instance elsewhere", first: fake.Unreachable, second: fake.Always(404, ""), want: errMissing},
		{name: "the server does not know", first: unknown, second: fake.Always(200, ""), want: ErrUnknownOutcome},
		{name: "cut off, done elsewhere", first: fake.CutOff, second: fake.Always(200, "")},
		{name: "cut off, no server elsewhere", first: fake.CutOff, second: fake.Unreachable, want: ErrUnknownOutcome},
		{name: "cut off, no leader elsewhere", first: fake.CutOff, second: fake.Always(503, ""), want: ErrUnknownOutcome},
		{name: "cut off, gone elsewhere", first: fake.CutOff, second: fake.Always(404, "")},
		{name: "a proxy's timeout, no server elsewhere", first: fake.Always(504, ""), second: fake.Unreachable, want: ErrUnknownOutcome},
		{name: "a redirect, done elsewhere", first: fake.Always(302, ""), second: fake.Always(200, "")},
		{name: "a stock server that is not up and may have done it all the same", first: fake.Always(307, ""), second: fake.Always(503, ""), want: ErrUnknownOutcome},
		{name: "this mode has no such thing", first: fake.Always(501, ""), second: fake.Always(200, ""), status: 501},
		{name: "any other failure of the server, done elsewhere", first: fake.Always(508, ""), second: fake.Always(200, "")},
		{name: "it is not trusted, no server elsewhere", first: untrusted, second: fake.Unreachable, status: -1},
		{name: "no response, done elsewhere", first: fake.Silent, second: fake.Always(200, "")},
		{name: "no response anywhere", first: fake.Silent, second: fake.Silent, want: ErrUnknownOutcome},
	} {
		fake.InBubble(t, tc.name, func(t *testing.T) {
			err := clusterOf(t, fake.Servers{"a": tc.first, "b": tc.second}, "a", "b").cancelLease(t.Context())
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
	_, err := clusterOf(t, fake.Servers{"a": fake.CutOff, "b": fake.Unreachable}, "a", "b").fetch(t.Context(), "apps")
	expect.That(t, err != nil && !errors.Is(err, ErrUnknownOutcome), "fetch: %v, want an error that is not an unknown outcome", err)
}

func TestServerThatRespondedIsAskedFirstNextTime(t *testing.T) {
	j := fake.NewJournal()
	down := true
	flaky := func(r *http.Request) (*http.Response, error) {
		if down {
			return fake.Unreachable(r)
		}
		return fake.Respond(200, "")
	}
	c := clusterOf(t, fake.Servers{"a": j.Around(flaky), "b": fake.Always(200, "")}, "a", "b")
	for range 3 {
		need.OK(t, c.renew(t.Context()))
		down = false
	}
	expect.Equal(t, len(j.Times()), 1, "how often the first server was asked, before the second one answered:")
}

func TestServerThatIsSilentCostsOneTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clusterOf(t, fake.Servers{"a": fake.Silent, "b": fake.Always(200, "")}, "a", "b")
		start := time.Now()
		need.OK(t, c.renew(t.Context()))
		expect.Equal(t, time.Since(start), usualTimeout, "took")
	})
}
