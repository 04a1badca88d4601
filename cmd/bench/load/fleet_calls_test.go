package load

import (
	"net/http"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/cmd/bench/truth"
)

func TestAnInstanceThatIsNotKnownRegistersAgainAtOnce(t *testing.T) {
	c := newFakeCluster(t, 2)
	l := registered(t, c, scenario.Load{Instances: 4})
	i := l.fleet.lasting[2]
	c.forget(i.id)
	beat(t, l)
	if got := c.version(i.id); got != 2 {
		t.Errorf("the forgotten instance is registered in version %d, want 2", got)
	}
	if !l.Book.Alive(i.id) {
		t.Error("the book takes the forgotten instance for dead")
	}
	if got := len(c.requests(http.MethodPost, "")); got != 5 {
		t.Errorf("%d registrations, want the first 4 and another one", got)
	}
	beat(t, l)
	if got := len(c.requests(http.MethodPut, i.id)); got != 2 {
		t.Errorf("%d heartbeats, want 2", got)
	}
}

func TestAnInstanceThatIsNotRegisteredIsNotRenewed(t *testing.T) {
	c := newFakeCluster(t, 1)
	l := registered(t, c, scenario.Load{Instances: 1})
	c.forget(l.fleet.lasting[0].id)
	c.decide(func(s seen) int {
		if s.method == http.MethodPost {
			return http.StatusServiceUnavailable
		}
		return 0
	})
	beat(t, l)
	beat(t, l)
	if got := len(c.requests(http.MethodPut, "")); got != 1 {
		t.Errorf("%d heartbeats, want none after the one that was not found", got)
	}
}

func TestAnUncertainRegistrationIsRepeatedInTheNextVersion(t *testing.T) {
	c := newFakeCluster(t, 1)
	l := registered(t, c, scenario.Load{Instances: 1})
	i := l.fleet.lasting[0]
	c.decide(func(s seen) int {
		if s.method == http.MethodPost && s.version < 4 {
			return http.StatusGatewayTimeout
		}
		return 0
	})
	c.forget(i.id)
	beat(t, l)
	tended(t, l.fleet)
	eventually(t, "the instance is registered again", func() bool { return c.version(i.id) == 4 })
	eventually(t, "its client renews it", func() bool { beat(t, l); return len(c.requests(http.MethodPut, i.id)) > 1 })
}

func TestTheBookKnowsOfTriesThatMayComeThroughLate(t *testing.T) {
	for _, tc := range []struct {
		name    string
		a       answer
		revived bool // a server that lists the instance after its cancel has revived it
	}{
		{name: "done at the first try", a: answer{outcome: trial.Done}, revived: true},
		{name: "done at the second", a: answer{outcome: trial.Done, doubtful: true}},
		{name: "nobody knows", a: answer{outcome: trial.Unknown}},
		{name: "refused", a: answer{outcome: trial.Refused}, revived: true},
		{name: "not reached", a: answer{outcome: trial.Unreached}, revived: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b, now := new(truth.Book), time.Now()
			b.Registering("i", 1, now)
			b.Registered("i", 1, now)
			b.Registering("i", 2, now)
			tc.a.done = now
			tell(b, "i", 2, tc.a, b.Registering, b.Registered)
			b.Canceling("i", 3, now)
			b.Canceled("i", 3, now)
			if _, revived, _ := b.End(truth.Listing{"i": 2}, now.Add(time.Second), 0); len(revived) > 0 != tc.revived {
				t.Errorf("revived: %v, want %t", revived, tc.revived)
			}
		})
	}
}
