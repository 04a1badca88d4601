package verdict

import (
	"slices"
	"testing"

	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
)

func TestStaleAnswers(t *testing.T) {
	for _, c := range []struct {
		name   string
		calls  []trial.Call // the last one is the look
		age    trial.Micros // in ms
		behind int
	}{
		{"the newest is fresh", []trial.Call{write(1, 0, 1), write(2, 2, 3), look(2, 4, 5)}, 0, 0},
		{"the one before is as old as the acknowledgement of the next", []trial.Call{write(1, 0, 1), write(2, 2, 3), look(1, 7, 8)}, 4, 1},
		{"of several next ones the first counts", []trial.Call{write(1, 0, 1), write(2, 2, 3), write(3, 4, 6), look(1, 13, 14)}, 10, 2},
		{"acknowledged after the call is no older", []trial.Call{write(1, 0, 1), write(2, 2, 8), look(1, 7, 9)}, 0, 0},
		{"a newer version than the acknowledged ones is fresh", []trial.Call{write(1, 0, 1), write(2, 2, 8), look(2, 4, 5)}, 0, 0},
		{"what was refused makes nothing old", []trial.Call{write(1, 0, 1), of(write(2, 2, 3), trial.Refused), look(1, 4, 5)}, 0, 0},
		{"what nobody knows neither", []trial.Call{write(1, 0, 1), of(write(2, 2, 3), trial.Unknown), look(1, 4, 5)}, 0, 0},
		{"a canceled instance", []trial.Call{write(1, 0, 1), remove(2, 2, 3), look(1, 5, 6)}, 2, 1},
		{"absent after its cancel", []trial.Call{write(1, 0, 1), remove(2, 2, 3), look(0, 5, 6)}, 0, 0},
		{"absent while it is canceled", []trial.Call{write(1, 0, 1), remove(2, 2, 9), look(0, 5, 6)}, 0, 0},
		{"absent though registered again", []trial.Call{write(1, 0, 1), remove(2, 2, 3), write(3, 4, 5), look(0, 7, 8)}, 2, 1},
		{"absent though never canceled", []trial.Call{write(1, 0, 1), write(2, 2, 3), look(0, 7, 8)}, 6, 2},
		{"absent before the first registration", []trial.Call{write(1, 9, 10), look(0, 7, 8)}, 0, 0},
		{"absent by a cancel of unknown outcome", []trial.Call{write(1, 0, 1), of(remove(2, 2, 3), trial.Unknown), write(3, 4, 5), look(0, 7, 8)}, 0, 0},
		{"a cancel that found nothing removed nothing", []trial.Call{write(1, 0, 1), of(remove(2, 2, 3), trial.NotFound), look(1, 7, 8)}, 0, 0},
		{"written late, after its cancel", []trial.Call{of(write(1, 0, 1), trial.Unknown), remove(2, 2, 3), look(1, 5, 6)}, 0, 0},
		{"written late, under a newer version", []trial.Call{of(write(1, 0, 1), trial.Unknown), write(2, 2, 3), look(1, 5, 6)}, 2, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			age, behind := stale(c.calls, c.calls[len(c.calls)-1])
			if age != c.age*ms || behind != c.behind {
				t.Errorf("%d versions behind by %v, want %d by %v", behind, age.Duration(), c.behind, (c.age * ms).Duration())
			}
		})
	}
}

func TestStalenessSumsUpAnsweredLooks(t *testing.T) {
	calls := []trial.Call{
		write(1, 0, 1), write(2, 2, 3), write(3, 4, 5),
		look(1, 13, 14), look(2, 15, 16), look(3, 17, 18), look(3, 19, 20), of(look(1, 21, 22), trial.Unreached),
	}
	got := keysOf(calls).staleness(always)
	want := Staleness{Reads: 4, Stale: 2, Share: 0.5, Behind: 2, Age: Spread{Count: 2, P50: 0.01, P90: 0.01, P99: 0.01, P999: 0.01, Max: 0.01}}
	if got != want {
		t.Errorf("staleness is %+v, want %+v", got, want)
	}
}

func TestAgesAreThoseOfAnsweredLooks(t *testing.T) {
	calls := []trial.Call{write(1, 0, 1), write(2, 2, 3), look(1, 13, 14), look(2, 15, 16), of(look(1, 21, 22), trial.Refused)}
	got := Ages(&trial.Trial{History: calls})
	if want := []Age{{Called: 13 * ms, Age: 10 * ms}, {Called: 15 * ms}}; !slices.Equal(got, want) {
		t.Errorf("ages are %v, want %v", got, want)
	}
}
