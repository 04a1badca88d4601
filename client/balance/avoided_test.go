package balance

import (
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/fsm/registry"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// TestADeadInstanceIsPassedOverForATime: from the call that finds it dead on, until the time is over.
func TestADeadInstanceIsPassedOverForATime(t *testing.T) {
	tests := []struct {
		name  string
		avoid time.Duration
		want  map[time.Duration][]string // who is asked, by time since the first call
	}{
		{name: "by default", want: map[time.Duration][]string{
			0:                            {"h0:8080", "h1:8080"},
			time.Millisecond:             {"h1:8080"},
			DefaultAvoid - 1:             {"h1:8080"},
			DefaultAvoid:                 {"h0:8080", "h1:8080"},
			DefaultAvoid + 1:             {"h1:8080"},
			2*DefaultAvoid + time.Second: {"h0:8080", "h1:8080"},
		}},
		{name: "as configured", avoid: time.Minute, want: map[time.Duration][]string{
			0:               {"h0:8080", "h1:8080"},
			time.Minute - 1: {"h1:8080"},
			time.Minute:     {"h0:8080", "h1:8080"},
		}},
		{name: "never", avoid: -1, want: map[time.Duration][]string{
			0: {"h0:8080", "h1:8080"},
			1: {"h0:8080", "h1:8080"},
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &network{hosts: map[string]func(*http.Request) (*http.Response, error){"h1:8080": ok}}
				transport := list(instances("ORDERS", 2)...).transport(t, Config{Base: n, Picker: inTurn{}, Avoid: test.avoid})
				start := time.Now()
				for _, after := range sortedKeys(test.want) {
					time.Sleep(time.Until(start.Add(after)))
					expect.OKf(t, expect.Err(get(t, transport, "http://orders/")), "after %v", after)
					expect.Slice(t, n.took(), test.want[after], "after %v asked", after)
				}
			})
		})
	}
}

func sortedKeys(m map[time.Duration][]string) []time.Duration {
	var keys []time.Duration
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// TestWhenAllAreAvoidedAllAreTried: none is worse than another, and the first that is back is used again
// at once, by others too.
func TestWhenAllAreAvoidedAllAreTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{hosts: map[string]func(*http.Request) (*http.Response, error){}}
		transport := list(instances("ORDERS", 2)...).transport(t, Config{Base: n, Picker: inTurn{}})
		for range 2 {
			_, err := get(t, transport, "http://orders/")
			need.That(t, err != nil, "no error")
			expect.Slice(t, n.took(), []string{"h0:8080", "h1:8080"}, "asked")
		}
		n.hosts["h1:8080"] = ok
		for _, want := range [][]string{{"h0:8080", "h1:8080"}, {"h1:8080"}} {
			expect.OK(t, expect.Err(get(t, transport, "http://orders/")))
			expect.Slice(t, n.took(), want, "asked")
		}
	})
}

// TestAnInstanceThatWasStartedAnewIsNotAvoided: at another address, or registered again at the same.
func TestAnInstanceThatWasStartedAnewIsNotAvoided(t *testing.T) {
	for name, start := range map[string]func(i *registry.Instance) (at string){
		"elsewhere":         func(i *registry.Instance) string { i.Port.Number = 8081; return "h0:8081" },
		"at the same place": func(i *registry.Instance) string { i.LastDirty++; return "h0:8080" },
	} {
		t.Run(name, func(t *testing.T) {
			n := &network{hosts: map[string]func(*http.Request) (*http.Response, error){"h1:8080": ok}}
			all := instances("ORDERS", 2)
			l := list(all...)
			transport := l.transport(t, Config{Base: n, Picker: inTurn{}})
			need.Got(get(t, transport, "http://orders/"))(t)
			n.took()
			restarted := *all[0]
			at := start(&restarted)
			n.hosts[at] = ok
			all = slices.Clone(all)
			all[0] = &restarted
			l.Store(&all)
			need.Got(get(t, transport, "http://orders/"))(t)
			asked := n.took()
			expect.That(t, slices.Equal(asked, []string{at}), "asked %v, want where it is now", asked)
		})
	}
}

// TestWhatIsOverIsForgotten: addresses that will never come back must not pile up.
func TestWhatIsOverIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &avoided{time: time.Second}
		for port := range uint16(100) {
			a.add(listed{address: address{"h", port}})
			time.Sleep(100 * time.Millisecond)
			n := len(*a.until.Load())
			need.That(t, n <= 10, "%d addresses are remembered, want those of the last second", n)
		}
		time.Sleep(time.Second)
		now := a.now()
		expect.That(t, now == nil && a.until.Load() == nil, "%v are remembered, want none", now)
	})
}
