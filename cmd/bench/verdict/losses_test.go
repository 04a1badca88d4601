package verdict

import (
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/bench/scenario"
	"github.com/seed-20419f34/rollcall/cmd/bench/trial"
	"github.com/seed-20419f34/rollcall/internal/expect"
)

// sealWrite is an acknowledged registration of a sealed instance that took 1 ms from a moment on, in ms.
func sealWrite(from trial.Micros) trial.SealWrite {
	return trial.SealWrite{Outcome: trial.Done, Called: from * ms, Returned: (from + 1) * ms}
}

func sealCancel(from trial.Micros) trial.SealWrite {
	w := sealWrite(from)
	w.Cancel = true
	return w
}

// ended is a write with another outcome.
func ended(w trial.SealWrite, o trial.Outcome) trial.SealWrite {
	w.Outcome = o
	if o == trial.Unknown {
		w.Returned = endless
	}
	return w
}

// doubtful is a write of which an earlier try got no answer.
func doubtful(w trial.SealWrite) trial.SealWrite {
	w.Doubtful = true
	return w
}

// sealedIn are the ends of nodes that list the only sealed instance in such versions.
func sealedIn(versions ...int) []trial.Ending {
	var found []trial.Ending
	for node, v := range versions {
		found = append(found, trial.Ending{Node: node, Sealed: []int{v}, Watched: 1})
	}
	return found
}

func TestSealedInstanceIsLostIfANodeDoesNotHoldWhatWasAcknowledged(t *testing.T) {
	type writes = []trial.SealWrite
	const no, registration, update, cancel = "no claim", "registration", "update", "cancel"
	for _, c := range []struct {
		name   string
		writes writes
		kind   string
		kept   []int // the versions in which the nodes hold it, if nothing is lost
		lost   []int
	}{
		{"registered", writes{sealWrite(0)}, registration, []int{1, 1, 1}, []int{1, 0, 1}},
		{"registered, and lost by all", writes{sealWrite(0)}, registration, []int{1, 1, 1}, []int{0, 0, 0}},
		{"registered at the second try", writes{doubtful(sealWrite(0))}, registration, []int{1, 1, 1}, []int{1, 1, 0}},
		{"updated", writes{sealWrite(0), sealWrite(1000)}, update, []int{2, 2, 2}, []int{2, 2, 1}},
		{"updated, and lost by all", writes{sealWrite(0), sealWrite(1000)}, update, []int{2, 2, 2}, []int{0, 0, 0}},
		{"updated, the first registration unknown", writes{ended(sealWrite(0), trial.Unknown), sealWrite(1000)}, update, []int{2, 2, 2}, []int{1, 2, 2}},
		{"perhaps updated", writes{sealWrite(0), ended(sealWrite(1000), trial.Unknown)}, registration, []int{1, 2, 1}, []int{0, 2, 2}},
		{"not updated", writes{sealWrite(0), ended(sealWrite(1000), trial.Refused)}, registration, []int{1, 1, 1}, []int{0, 1, 1}},
		{"canceled", writes{sealWrite(0), sealCancel(1000)}, cancel, []int{0, 0, 0}, []int{0, 1, 0}},
		{"canceled at the second try", writes{sealWrite(0), doubtful(sealCancel(1000))}, cancel, []int{0, 0, 0}, []int{1, 1, 1}},
		{"not canceled", writes{sealWrite(0), ended(sealCancel(1000), trial.Unreached)}, registration, []int{1, 1, 1}, []int{1, 1, 0}},

		{"not found to cancel", writes{sealWrite(0), ended(sealCancel(1000), trial.NotFound)}, registration, []int{1, 1, 1}, []int{0, 0, 0}},
		{"not found to cancel, and listed by some", writes{sealWrite(0), ended(sealCancel(1000), trial.NotFound)}, registration, []int{1, 1, 1}, []int{1, 0, 1}},

		{"not found to cancel at the second try", writes{sealWrite(0), doubtful(ended(sealCancel(1000), trial.NotFound))}, no, []int{0, 0, 0}, nil},
		{"not found to cancel, the registration may come late", writes{doubtful(sealWrite(0)), ended(sealCancel(1000), trial.NotFound)}, no, []int{0, 0, 0}, nil},
		{"never written", nil, no, []int{0, 1, 0}, nil},
		{"perhaps registered", writes{ended(sealWrite(0), trial.Unknown)}, no, []int{0, 1, 0}, nil},
		{"not registered", writes{ended(sealWrite(0), trial.Refused)}, no, []int{0, 0, 0}, nil},
		{"perhaps canceled", writes{sealWrite(0), ended(sealCancel(1000), trial.Unknown)}, no, []int{0, 1, 0}, nil},
		{"refused to cancel at the second try", writes{sealWrite(0), doubtful(ended(sealCancel(1000), trial.Refused))}, no, []int{0, 0, 0}, nil},
		{"canceled, an earlier try of the registration may come late", writes{doubtful(sealWrite(0)), sealCancel(1000)}, no, []int{0, 1, 0}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			judged := func(held []int) Losses {
				return losses(&trial.Trial{
					Nodes: three, Sealed: []trial.Sealed{{ID: "s", Writes: c.writes}}, Ending: sealedIn(held...),
					Faults: []trial.Fault{{Kills: []trial.Kill{{At: 3001 * ms}, {At: 9000 * ms}}}},
				}, scenario.Column{}, scenario.Scenario{}, nil)
			}
			for i, held := range [][]int{c.kept, c.lost} {
				found := judged(held)
				for kind, loss := range map[string]Loss{registration: found.Registrations, update: found.Updates, cancel: found.Cancels} {
					of, count := toNumber(kind == c.kind), toNumber(kind == c.kind && i == 1)
					expect.That(t, loss.Of == of && loss.Count == count, "held in versions %v: %ss are %+v, want %d lost of %d", held, kind, loss, count, of)
				}
			}
			if c.lost == nil {
				return
			}
			age := 3.0 // from the registration to the first kill after it
			if c.kind != registration {
				age = 2
			}
			found := judged(c.lost)
			all := append(append(found.Registrations.Names, found.Updates.Names...), found.Cancels.Names...)
			expect.Slice(t, all, []string{"s"}, "names are")
			got := found.Registrations.Age.Max + found.Updates.Age.Max + found.Cancels.Age.Max
			expect.Equal(t, got, age, "seconds from the acknowledgement to the kill:")
		})
	}
}

func TestClaimThatASilentNodeMayRefuteIsNotJudged(t *testing.T) {
	lose := []trial.Fault{{Kind: scenario.Lose, Nodes: []int{1}}}
	for _, c := range []struct {
		name               string
		alter              func(e []trial.Ending) []trial.Ending
		faults             []trial.Fault
		of, lost, unjudged int
	}{
		{"all answer", func(e []trial.Ending) []trial.Ending { return e }, nil, 1, 0, 0},
		{"one is silent", func(e []trial.Ending) []trial.Ending { e[1].Failed = "no answer"; return e }, nil, 0, 0, 1},
		{"one was not asked", func(e []trial.Ending) []trial.Ending { return e[1:] }, nil, 0, 0, 1},
		{"one was asked twice", func(e []trial.Ending) []trial.Ending { return append(e, e[0]) }, nil, 0, 0, 1},
		{"one was not asked for it", func(e []trial.Ending) []trial.Ending { e[1].Sealed = nil; return e }, nil, 0, 0, 1},
		{"none was asked", func([]trial.Ending) []trial.Ending { return nil }, nil, 0, 0, 1},
		{"one is silent, another one lost it", func(e []trial.Ending) []trial.Ending { e[1].Failed, e[2].Sealed = "no answer", []int{0}; return e }, nil, 1, 1, 0},
		{"a lost one is silent", func(e []trial.Ending) []trial.Ending { e[1].Failed = "no answer"; return e }, lose, 1, 0, 0},
	} {
		found := losses(&trial.Trial{
			Nodes: three, Sealed: []trial.Sealed{{ID: "s", Writes: []trial.SealWrite{sealWrite(0)}}}, Ending: c.alter(sealedIn(1, 1, 1)), Faults: c.faults,
		}, scenario.Column{}, scenario.Scenario{}, nil).Registrations
		expect.That(t, found.Of == c.of && found.Count == c.lost && found.Unjudged == c.unjudged, "%s: got %+v, want %d lost of %d, %d unjudged", c.name, found, c.lost, c.of, c.unjudged)
	}
}

func TestRollbackIsAnOlderVersionThatStaysAfterAProcessEnded(t *testing.T) {
	const kill = 2000 // ms
	type calls = []trial.Call
	before := calls{write(1, 0, 1), write(2, 10, 11)}
	for _, c := range []struct {
		name     string
		calls    calls // after those before
		of, lost int
	}{
		{"read in the older version", calls{look(1, 2500, 2501)}, 1, 1},
		{"read as not registered", calls{look(0, 2500, 2501)}, 1, 1},
		{"read in the version", calls{look(2, 2500, 2501)}, 1, 0},
		{"read in the version again, at another node", calls{look(1, 2500, 2501), look(2, 2600, 2601)}, 1, 0},
		{"read in the version before", calls{look(2, 1990, 1991), look(1, 2500, 2501)}, 1, 1},
		{"not read", nil, 0, 0},
		{"read before the process ended only", calls{look(1, 1990, 1991)}, 0, 0},
		{"read again while the process ends only", calls{look(2, 2050, 2051), look(1, 2500, 2501)}, 1, 1},
		{"read again when it has ended", calls{look(2, 2051, 2052), look(1, 2500, 2501)}, 1, 0},
		{"read without an answer", calls{of(look(1, 2500, 2501), trial.Unknown)}, 0, 0},
		{"a newer write hides it", calls{write(3, 2100, 2101), look(3, 2500, 2501)}, 0, 0},
		{"a newer write may hide it", calls{of(write(3, 2100, 2101), trial.Unknown), look(1, 2500, 2501)}, 0, 0},
		{"a newer write came after the read", calls{look(1, 2500, 2501), write(3, 2600, 2601), look(3, 2700, 2701)}, 1, 1},
		{"a newer write was under way when the process ended", calls{of(write(3, 1999, 2001), trial.Unknown), look(1, 2500, 2501)}, 0, 0},
		{"a newer write was refused", calls{of(write(3, 2100, 2101), trial.Refused), look(1, 2500, 2501)}, 1, 1},
		{"a removal hides it", calls{remove(3, 2100, 2101), look(0, 2500, 2501)}, 0, 0},
		{"removed before the process ended", calls{remove(3, 100, 101), look(0, 2500, 2501)}, 0, 0},
		{"perhaps removed before", calls{of(remove(3, 100, 101), trial.Unknown), look(0, 2500, 2501)}, 0, 0},
		{"not removed", calls{of(remove(3, 100, 101), trial.Refused), look(0, 2500, 2501)}, 1, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			all := keysOf(append(append(calls{}, before...), c.calls...))
			got := rollbacks(killed(kill*ms), all, false)
			expect.That(t, got.Of == c.of && got.Count == c.lost, "%d rolled back of %d, want %d of %d", got.Count, got.Of, c.lost, c.of)
			if c.lost > 0 {
				expect.Slice(t, got.Names, []string{"own-1 version 2"}, "names are")
				expect.Equal(t, got.Age.Max, 1.989, "seconds from the acknowledgement to the end of the process:")
			}
		})
	}
}

// killed is a trial in which processes ended at some moments.
func killed(at ...trial.Micros) *trial.Trial {
	f := trial.Fault{Kind: scenario.Kill, Nodes: []int{0}}
	for _, end := range at {
		f.Kills = append(f.Kills, trial.Kill{At: end})
	}
	return &trial.Trial{Nodes: three, Faults: []trial.Fault{f}}
}

// What a node had not sent to the others before its end it sends when it is there again.
func TestRollbackIsNotClaimedBeforeNodesThatAllEndedCouldTellEachOther(t *testing.T) {
	for _, c := range []struct {
		name  string
		nodes []int
		read  trial.Micros
		want  int
	}{
		{"all ended, soon after they are back", []int{0, 1, 2}, 8999, 0},
		{"all ended, a second after they are back", []int{0, 1, 2}, 9000, 1},
		{"others were there", []int{0, 1}, 2997, 1},
	} {
		ended := killed(2000 * ms)
		ended.Faults[0].Nodes, ended.Faults[0].Ready = c.nodes, 8000*ms
		got := rollbacks(ended, keysOf([]trial.Call{write(1, 0, 1), write(2, 1995, 1996), look(1, c.read, c.read+1)}), false)
		expect.That(t, got.Of == c.want && got.Count == c.want, "%s: %+v, want %d", c.name, got, c.want)
	}
}

func TestRollbackIsNotClaimedOfReadsThatComeTooEarly(t *testing.T) {
	for _, c := range []struct {
		name string
		read trial.Micros
		want int
	}{
		{"within a second of the acknowledgement", 1010, 0},
		{"later", 1011, 1},
	} {
		got := rollbacks(killed(500*ms), keysOf([]trial.Call{write(1, 0, 1), write(2, 10, 11), look(1, c.read, c.read+1)}), false)
		expect.That(t, got.Of == c.want && got.Count == c.want, "%s: %+v, want %d", c.name, got, c.want)
	}
}

// A cancel of unknown outcome may take effect after a registration that was sent, and acknowledged, later.
func TestRollbackIsNotClaimedIfALateCancelExplainsIt(t *testing.T) {
	got := rollbacks(killed(500*ms), keysOf([]trial.Call{write(1, 0, 1), of(remove(2, 10, 11), trial.Unknown), write(3, 20, 21), look(0, 2500, 2501)}), false)
	expect.That(t, got.Count == 0, "%+v, want none", got)
}

func TestRollbackIsCountedOnceHoweverManyProcessesEnd(t *testing.T) {
	calls := keysOf([]trial.Call{write(1, 0, 1), write(2, 10, 11), look(1, 2500, 2501), look(1, 6000, 6001)})
	got := rollbacks(killed(500*ms, 2000*ms, 5000*ms), calls, false)
	expect.That(t, got.Count == 1 && got.Age.Max == 0.489, "%+v, want one, by the first end", got)
}

func TestReadWithoutAQuorumProvesNoRollback(t *testing.T) {
	other := func(from, to trial.Micros, o trial.Outcome) trial.Call {
		c := of(write(1, from, to), o)
		c.Key, c.Node = "own-2", 1
		return c
	}
	elsewhere := other(2100, 2101, trial.Done)
	elsewhere.Node = 0
	for _, c := range []struct {
		name     string
		other    trial.Call // of another key
		of, lost int
	}{
		{"the node has acknowledged nothing yet", other(2600, 2601, trial.Done), 0, 0},
		{"it has", other(2100, 2499, trial.Done), 1, 1},
		{"it acknowledges at that moment", other(2100, 2501, trial.Done), 0, 0},
		{"it had before only", other(1900, 1901, trial.Done), 0, 0},
		{"another node has", elsewhere, 0, 0},
		{"it may have", other(2100, 2101, trial.Unknown), 0, 0},
	} {
		calls := keysOf([]trial.Call{write(1, 0, 1), write(2, 10, 11), look(1, 2500, 2501), c.other})
		got := rollbacks(killed(2000*ms), calls, true)
		expect.That(t, got.Of == c.of && got.Count == c.lost, "%s: %d rolled back of %d, want %d of %d", c.name, got.Count, got.Of, c.lost, c.of)
	}
}

func TestHeartbeatIsForgottenWithinTheLeaseOnly(t *testing.T) {
	lease := scenario.Scenario{Load: scenario.Load{Lease: scenario.Span(3 * time.Second)}}
	for _, c := range []struct {
		name      string
		forgotten trial.Forgotten
		want      int
		age       float64 // 0: none
	}{
		{"within the lease", trial.Forgotten{ID: "a", Last: 1000 * ms, At: 3999 * ms}, 1, 0.5},
		{"beyond the lease", trial.Forgotten{ID: "a", Last: 1000 * ms, At: 4000 * ms}, 0, 0},
		{"before any process ended", trial.Forgotten{ID: "a", Last: 1000 * ms, At: 1400 * ms}, 1, 0},
		{"after the processes ended", trial.Forgotten{ID: "a", Last: 7000 * ms, At: 8000 * ms}, 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := losses(&trial.Trial{
				Nodes: three, Length: 10_000 * ms, Forgotten: []trial.Forgotten{c.forgotten},
				Faults: []trial.Fault{{Kills: []trial.Kill{{At: 5000 * ms}, {At: 1500 * ms}}}},
				Series: []trial.Series{
					{Operation: trial.Heartbeat, Bins: []trial.Bin{{Done: 7, NotFound: 2, Refused: 4}}},
					{Operation: trial.Register, Bins: []trial.Bin{{Done: 5}}},
				},
			}, scenario.Column{}, lease, nil).Heartbeats
			expect.That(t, got.Of == 9 && got.Count == c.want && got.Age.Max == c.age, "%+v, want %d of 9, %v s before a kill", got, c.want, c.age)
		})
	}
}
