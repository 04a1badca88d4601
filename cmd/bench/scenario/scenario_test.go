package scenario

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// pages is the path to docs/ from here.
const pages = "../../../docs/"

func page(t *testing.T) string {
	t.Helper()
	return string(need.Got(os.ReadFile(pages + "scenarios.md"))(t))
}

func TestScenarioPageShowsTheExampleFile(t *testing.T) {
	example := need.Got(os.ReadFile(pages + "scenarios/example.yaml"))(t)
	expect.That(t, strings.Contains(page(t), "```yaml\n"+string(example)+"```\n"), "docs/scenarios.md does not show docs/scenarios/example.yaml as it is")
}

func TestFaultExamplesOfThePageAreFaults(t *testing.T) {
	shown := regexp.MustCompile("`({at: .*})` \\|").FindAllStringSubmatch(page(t), -1)
	need.That(t, len(shown) == len(kinds), "%d examples, want one of each of the %d kinds", len(shown), len(kinds))
	seen := make(map[Kind]bool)
	for _, example := range shown {
		s, err := Parse("page", []byte("name: x\ndatacenters: 2\nfaults:\n- "+example[1]))
		if err != nil {
			t.Errorf("%s: %v", example[1], err)
			continue
		}
		seen[s.Faults[0].Kind] = true
	}
	expect.That(t, len(seen) == len(kinds), "examples of %v only, want one of each kind", seen)
}

func TestScenarioPageShowsEveryKeyWithItsDefault(t *testing.T) {
	text, fresh := page(t), defaults()
	for _, tt := range []struct {
		values any
		shown  bool // with their defaults
	}{
		{fresh, false},
		{fresh.Load, true},
		{Fault{}, false},
		{Limits{}, false},
	} {
		v := reflect.ValueOf(tt.values)
		for i := range v.NumField() {
			key := v.Type().Field(i).Tag.Get("yaml")
			if key == "-" {
				continue // no file has it
			}
			row := fmt.Sprintf("\n| `%s` | ", key)
			if tt.shown {
				row += fmt.Sprintf("`%v` | ", v.Field(i))
			}
			expect.That(t, strings.Contains(text, row), "docs/scenarios.md has no row %q", row)
		}
	}
}

func TestScenarioPageShowsEveryBuiltinScenario(t *testing.T) {
	text := page(t)
	for _, s := range builtins(t) {
		row := fmt.Sprintf("| [`%s`](../cmd/bench/scenario/scenarios/%s.yaml) | %s |\n", s.Name, s.Name, s.About)
		expect.That(t, strings.Contains(text, row), "docs/scenarios.md lacks\n%s", row)
	}
}

func builtins(t *testing.T) []Scenario {
	t.Helper()
	return need.Got(Builtin())(t)
}

func TestBuiltinScenariosAreTheFilesOfTheirNames(t *testing.T) {
	entries := need.Got(files.ReadDir("scenarios"))(t)
	all := builtins(t)
	for _, entry := range entries {
		name := strings.TrimSuffix(entry.Name(), ".yaml")
		expect.That(t, slices.ContainsFunc(all, func(s Scenario) bool { return s.Name == name }),
			"scenarios/%s is in no order, or has another name within", entry.Name())
	}
	expect.That(t, len(all) == len(entries), "Builtin() has %d scenarios, want %d", len(all), len(entries))
}

func TestBuiltinScenariosFitQuickAndFullTrials(t *testing.T) {
	for _, s := range builtins(t) {
		for _, length := range []time.Duration{10 * time.Second, 15 * time.Second, s.Length.Duration()} {
			if s.Length == 0 || s.Length.Duration() == length {
				expect.OK(t, s.Fits(cmp.Or(length, usual)))
			}
		}
	}
}

func TestBuiltinScenariosSayWhatTheyShowAndStateLimits(t *testing.T) {
	for _, s := range builtins(t) {
		expect.That(t, len(s.About) >= 40 && s.Title != s.Name, "%s: about %q, title %q; want sentences, and a title in words", s.Name, s.About, s.Title)
		if statesCostsOnly(s) {
			continue
		}
		for _, c := range Columns() {
			l := s.LimitsOf(c)
			expect.That(t, !c.Promises() || l.FalseEvictions != nil || l.Converged != nil || s.HeartbeatsOnly() && l.WriteSuccess != nil, "%s states no limits for the column %s", s.Name, c.Name)
		}
	}
}

// statesCostsOnly reports whether a scenario only shows what renewals cost: nobody promises how many a machine carries.
func statesCostsOnly(s Scenario) bool { return s.HeartbeatsOnly() && s.Name != "heartbeats-1000" }

func TestBuiltinScenariosOfHeartbeatsSendNothingElse(t *testing.T) {
	for _, s := range builtins(t) {
		expect.Equal(t, s.HeartbeatsOnly(), s.Name == "idle" || strings.HasPrefix(s.Name, "heartbeats-"), "%s: nothing but heartbeats:", s.Name)
	}
}

// Kills amid writes need overlapping writes, of keys whose histories the checker decides however many calls overlap.
func TestKillsAmidWritesAreManyAndOfSharedKeysOnly(t *testing.T) {
	all := builtins(t)
	s := all[slices.IndexFunc(all, func(s Scenario) bool { return s.Name == "kills-amid-writes" })]
	expect.That(t, s.Load.OwnKeys == 0 && s.Load.SharedKeys > 0 && s.Load.KeyWriters >= 20, "its load is %+v, want 20 writers of shared keys", s.Load)
	expect.That(t, s.Faults[0].Times >= 20 && s.Load.Sealed > 0, "%d kills and %v sealed instances per second, want 20 and some", s.Faults[0].Times, s.Load.Sealed)
}

// A lost majority is noticed after 3 s; a shorter fault would not show what follows.
func TestFaultsThatTakeTheMajorityOutlastItsNotice(t *testing.T) {
	for _, s := range builtins(t) {
		for _, f := range s.Faults {
			if f.Kind != Isolate && f.Kind != Pause {
				continue
			}
			lasts := f.For.In(10 * time.Second)
			expect.That(t, lasts >= 4*time.Second, "%s: %s lasts %s in a trial of 10 s, want 4s at least", s.Name, f.Kind, lasts)
		}
	}
}

func column(t *testing.T, text string) Column {
	t.Helper()
	return need.Got(FindColumn(text))(t)
}

func TestFindColumnReadsOneThatIsDescribed(t *testing.T) {
	got := column(t, "slow=cp,test.sync-delay=20ms,data.sync=always")
	want := Column{Name: "slow", Title: "slow", System: Rollcall, Mode: CP, Settings: map[string]string{"test.sync-delay": "20ms", "data.sync": "always"}}
	expect.Deep(t, got, want, "FindColumn() =")
	expect.Deep(t, column(t, "plain=ap"), Column{Name: "plain", Title: "plain", System: Rollcall, Mode: AP, Settings: map[string]string{}}, "without settings")
	expect.Equal(t, column(t, "filter=cp,a.b=c=d").Settings["a.b"], "c=d", "a value with an equals sign")
}

func TestFindColumnSaysWhatIsWrong(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"unknown", "raft", `there is no column "raft"; name one of cp, ap, eureka, cp-stale, ap-always, or describe one`},
		{"empty", "", `there is no column ""`},
		{"a known name described anew", "cp=ap", `"cp" is the name of a column that comes with the program`},
		{"no name", "=cp", `column "": want a name`},
		{"a name that is none", "a b=cp", `column "a b": want a name of up to 64 letters`},
		{"a name too long", strings.Repeat("a", 65) + "=cp", "want a name"},
		{"no mode", "mine=", `column mine: "" is no mode`},
		{"a setting for a mode", "mine=data.sync=always", `column mine: "data.sync=always" is no mode`},
		{"another system's mode", "mine=eureka", `"eureka" is no mode`},
		{"a setting without a value", "mine=cp,data.sync", `column mine: "data.sync" is no setting`},
		{"a setting without a key", "mine=cp,=always", `"=always" is no setting`},
		{"an empty setting", "mine=cp,", `"" is no setting`},
	} {
		t.Run(c.name, func(t *testing.T) {
			expect.ErrorSays(t, expect.Err(FindColumn(c.text)), c.want, "FindColumn(%q) =", c.text)
		})
	}
}

func TestColumnsPromiseWhatTheirSettingsMakeOfThem(t *testing.T) {
	for _, c := range []struct {
		column                                  string
		linearizable, leads, promises, streamed bool
	}{
		{"cp", true, true, true, true},
		{"ap", false, false, true, true},
		{"eureka", false, false, false, false},
		{"cp-stale", false, true, true, true},
		{"ap-always", false, false, true, true},
		{"plain=cp,reads.eureka=linearizable", true, true, true, true},
		{"stale=cp,reads.eureka=stale", false, true, true, true},
	} {
		got := column(t, c.column)
		is := [...]bool{got.Linearizable(), got.Leads(), got.Promises(), got.Streams()}
		expect.Equal(t, is, [...]bool{c.linearizable, c.leads, c.promises, c.streamed}, "%s: linearizable, leads, promises, streams:", c.column)
	}
}

func TestLimitsOfAColumnAreThoseOfItsNameBeforeThoseOfItsMode(t *testing.T) {
	s := Scenario{Limits: map[string]Limits{"cp": {MayLose: true}, "ap": {FalseEvictions: new(1)}, "ap-always": {FalseEvictions: new(2)}}}
	for name, want := range map[string]Limits{
		"cp": {MayLose: true}, "cp-stale": {MayLose: true},
		"ap": {FalseEvictions: new(1)}, "ap-always": {FalseEvictions: new(2)}, "mine=ap": {FalseEvictions: new(1)},
		"eureka": {},
	} {
		expect.Deep(t, s.LimitsOf(column(t, name)), want, "limits of %s are", name)
	}
}

func TestCannotIsOfWhatEurekaHasNot(t *testing.T) {
	slow := Scenario{Datacenters: 1, Faults: []Fault{{Kind: Kill}, {Kind: SlowDisk}}}
	two := Scenario{Datacenters: 2}
	for _, c := range []struct {
		column string
		s      Scenario
		want   string
	}{
		{"eureka", slow, "Eureka writes to no disk that could be slow"},
		{"eureka", two, "Eureka has no datacenters that replicate to each other"},
		{"eureka", Scenario{Datacenters: 1, Faults: []Fault{{Kind: Kill}}}, ""},
		{"cp", slow, ""},
		{"ap-always", two, ""},
	} {
		expect.Equal(t, column(t, c.column).Cannot(c.s), c.want, "%s in %+v:", c.column, c.s)
	}
}

func TestRoundsOfBriefColumnsAndWithoutFaultsAreFew(t *testing.T) {
	steady := Scenario{Datacenters: 1, Load: Load{Reads: 1}, Faults: []Fault{{Kind: Kill}}}
	chosen := steady
	chosen.Chosen = true
	heartbeats := Scenario{Datacenters: 1, Load: Load{Instances: 5}}
	for _, c := range []struct {
		name, column string
		s            Scenario
		rounds, want int
	}{
		{"as many as are asked for", "cp", steady, 10, 10},
		{"none where it cannot", "eureka", Scenario{Datacenters: 2, Chosen: true}, 10, 0},
		{"a brief column where it is not chosen", "cp-stale", steady, 10, 0},
		{"a brief column where it is chosen", "cp-stale", chosen, 10, 3},
		{"a brief column of fewer rounds", "ap-always", chosen, 2, 2},
		{"any column in a scenario of heartbeats", "eureka", heartbeats, 10, 3},
		{"fewer rounds of heartbeats", "ap", heartbeats, 1, 1},
		{"any column where nothing goes wrong", "cp", Scenario{Datacenters: 1, Load: Load{Reads: 1}}, 10, 3},
		{"one without a leader where the leader makes the difference", "eureka", Scenario{Name: "mine", Twin: "leader-killed", Datacenters: 1}, 10, 0},
		{"a scenario of one's own by the name of another", "eureka", Scenario{Name: "node-killed", Datacenters: 1, Faults: []Fault{{Kind: Kill}}}, 10, 10},
		{"storms are as many as faults", "cp", Scenario{Datacenters: 1, Load: Load{Reads: 1}, Storms: []Storm{{}}}, 10, 10},
		{"one that starts slowly where servers are killed again and again", "eureka", Scenario{Datacenters: 1, Faults: []Fault{{Kind: Kill, Times: 20}}}, 10, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			expect.Equal(t, column(t, c.column).RoundsOf(c.s, c.rounds), c.want, "%s runs %d rounds as", c.column, c.rounds)
		})
	}
}

func TestSettingsOfAColumnAreAboveThoseOfItsScenario(t *testing.T) {
	s := Scenario{Settings: map[string]string{"data.sync": "never", "commit.in-flight": "3"}}
	expect.Deep(t, column(t, "ap-always").SettingsFor(s), map[string]string{"data.sync": "always", "commit.in-flight": "3"}, "of ap-always:")
	expect.Deep(t, column(t, "ap").SettingsFor(s), s.Settings, "of ap:")
	expect.That(t, column(t, "eureka").SettingsFor(s) == nil, "eureka is given Rollcall's settings")
	expect.Equal(t, s.Settings["data.sync"], "never", "the scenario's own setting is now")
}

func TestHeadingIsTheTitleOrElseTheName(t *testing.T) {
	expect.Equal(t, column(t, "cp").Heading(), "CP", "heading:")
	expect.Equal(t, Column{Name: "mine"}.Heading(), "mine", "heading without a title:")
}

func TestHeartbeatsOnlyMeansThatNothingElseIsSent(t *testing.T) {
	for name, change := range map[string]func(*Scenario){
		"registers": func(s *Scenario) { s.Load.Registers = 1 }, "writes": func(s *Scenario) { s.Load.Writes = 1 },
		"reads": func(s *Scenario) { s.Load.Reads = 1 }, "fetches": func(s *Scenario) { s.Load.Fetches = 1 },
		"deltas": func(s *Scenario) { s.Load.Deltas = 1 }, "sightings": func(s *Scenario) { s.Load.Sightings = 1 },
		"sealed": func(s *Scenario) { s.Load.Sealed = 1 }, "watchers": func(s *Scenario) { s.Load.Watchers = 1 },
		"storms": func(s *Scenario) { s.Storms = []Storm{{}} }, "faults": func(s *Scenario) { s.Faults = []Fault{{}} },
	} {
		s := Scenario{Load: Load{Instances: 5, KeyWriters: 3}}
		expect.That(t, s.HeartbeatsOnly(), "%s is no load of heartbeats", name)
		change(&s)
		expect.That(t, !s.HeartbeatsOnly(), "with %s it is still one of heartbeats", name)
	}
}

func TestPairNamesScenariosThatDifferOnlyInTheLeader(t *testing.T) {
	named := func(name, nodes string, change func(*Scenario)) Scenario {
		s := Scenario{Name: name, Load: Load{Reads: 1}, Faults: []Fault{{Kind: Kill, Nodes: nodes}}}
		change(&s)
		return s
	}
	alike := func(*Scenario) {}
	first := named("first", "leader", alike)
	for _, c := range []struct {
		name string
		run  []Scenario
		want string // the last one's twin
	}{
		{"exchanged", []Scenario{first, named("x", "follower", func(s *Scenario) { s.Title, s.Chosen, s.Limits = "X", true, map[string]Limits{"cp": {}} })}, "first"},
		{"exchanged the other way round", []Scenario{named("x", "follower", alike), first}, "x"},
		{"the other is not in the run", []Scenario{named("node-killed", "follower", alike)}, ""},
		{"the same nodes", []Scenario{first, named("x", "leader", alike)}, ""},
		{"another load", []Scenario{first, named("node-killed", "follower", func(s *Scenario) { s.Load.Reads = 2 })}, ""},
		{"another kind", []Scenario{first, named("node-killed", "follower", func(s *Scenario) { s.Faults[0].Kind = Pause })}, ""},
		{"all nodes", []Scenario{named("first", "all", alike), named("x", "all", alike)}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			Pair(c.run)
			expect.Equal(t, c.run[len(c.run)-1].Twin, c.want, "twin:")
			expect.Equal(t, c.run[0].Twin, "", "twin of the first:")
		})
	}
	builtin := need.Got(Builtin())(t)
	Pair(builtin)
	twins := map[string]string{}
	for _, s := range builtin {
		if s.Twin != "" {
			twins[s.Name] = s.Twin
		}
	}
	expect.Deep(t, twins, map[string]string{"node-killed": "leader-killed", "leader-isolated": "partition-minority"}, "of those that come with the program:")
}

func TestParseFillsInTheDefaults(t *testing.T) {
	got := need.Got(Parse("short.yaml", []byte("name: short")))(t)
	want := defaults()
	want.Name, want.Title = "short", "short"
	expect.Deep(t, got, want, "Parse() =")
}

const everything = `
name: everything
title: Every key
about: One of each.
quick: true
chosen: true
datacenters: 2
length: 20s
load: {instances: 10, heartbeat: 2s, lease: 7s, registers: 1, writes: 2.5, reads: 3, fetches: 4, deltas: 5, watchers: 6, sightings: 7, own-keys: 8, shared-keys: 9, key-writers: 20, sealed: 10.5}
storms:
  - {at: 10%, for: 2s, load: {registers: 11, reads: 0, sealed: 12}}
faults:
  - {at: 1s, for: 12.5%, kind: kill, nodes: "leader, node5"}
  - {at: 50%, for: 10%, kind: slow-disk, nodes: dc2, delay: 5ms}
  - {at: 60%, kind: die, instances: 10%}
  - {at: 70%, for: 10%, kind: kill, nodes: leader, times: 5}
  - {at: 90%, kind: lose, nodes: node2}
settings: {data.sync: always, commit.in-flight: 3}
limits:
  cp: {write-gap: 1s, read-gap: 2s, write-success: 0.5, read-success: 1, converged: 3s, false-evictions: 0, removal: 4s}
  ap: {}
  mine: {may-lose: true}
`

func TestParseReadsEveryKey(t *testing.T) {
	got := need.Got(Parse("everything.yaml", []byte(everything)))(t)
	want := Scenario{
		Name: "everything", Title: "Every key", About: "One of each.", Quick: true, Chosen: true, Datacenters: 2,
		Length: Span(20 * time.Second),
		Load: Load{Instances: 10, Heartbeat: Span(2 * time.Second), Lease: Span(7 * time.Second), Registers: 1, Writes: 2.5, Reads: 3,
			Fetches: 4, Deltas: 5, Watchers: 6, Sightings: 7, OwnKeys: 8, SharedKeys: 9, KeyWriters: 20, Sealed: 10.5},
		Storms: []Storm{{At: Moment{Percent: 10}, For: Moment{Fixed: 2 * time.Second}, Load: map[string]float64{"registers": 11, "reads": 0, "sealed": 12}}},
		Faults: []Fault{
			{At: Moment{Fixed: time.Second}, For: Moment{Percent: 12.5}, Kind: Kill, Nodes: "leader, node5"},
			{At: Moment{Percent: 50}, For: Moment{Percent: 10}, Kind: SlowDisk, Nodes: "dc2", Delay: Span(5 * time.Millisecond)},
			{At: Moment{Percent: 60}, Kind: Die, Instances: "10%"},
			{At: Moment{Percent: 70}, For: Moment{Percent: 10}, Kind: Kill, Nodes: "leader", Times: 5},
			{At: Moment{Percent: 90}, Kind: Lose, Nodes: "node2"},
		},
		Settings: map[string]string{"data.sync": "always", "commit.in-flight": "3"},
		Limits: map[string]Limits{
			"cp": {WriteGap: new(Span(time.Second)), ReadGap: new(Span(2 * time.Second)), WriteSuccess: new(0.5), ReadSuccess: new(1.0),
				Converged: new(Span(3 * time.Second)), FalseEvictions: new(0), Removal: new(Span(4 * time.Second))},
			"ap":   {},
			"mine": {MayLose: true},
		},
	}
	expect.Deep(t, got, want, "Parse() =")
}

func TestParseNamesWhatIsWrongAndWhere(t *testing.T) {
	for _, tt := range []struct {
		name string
		text string // after "name: x"
		want string
	}{
		{"no scenario", "", ""},
		{"unknown key", "lenght: 10s", "x.yaml: yaml: unmarshal errors:\n  line 2: field lenght not found"},
		{"unknown key within", "load:\n  instance: 5", "line 3: field instance not found"},
		{"repeated key", "datacenters: 1\ndatacenters: 2", `line 3: mapping key "datacenters" already defined at line 2`},
		{"no flag", "quick: often", "line 2: cannot unmarshal !!str `often` into bool"},
		{"no number", "load: {reads: many}", "line 2: cannot unmarshal !!str `many` into float64"},
		{"no duration", "length: 10", `x.yaml: line 2: "10" is no duration; want one such as 15s`},
		{"a list for a value", "title: [a]", "line 2: cannot unmarshal !!seq into string"},
		{"a value for a list", "faults: none", "line 2: cannot unmarshal !!str `none` into []scenario.Fault"},
		{"a value for keys", "load: much", "line 2: cannot unmarshal !!str `much` into scenario.Load"},
		{"more datacenters than can be", "datacenters: 4", "x.yaml: datacenters: is 4; want 1 to 3"},
		{"no datacenters", "datacenters: 0", "x.yaml: datacenters: is 0; want 1 to 3"},
		{"rounds, which are the comparison's", "rounds: 1", "line 2: field rounds not found"},
		{"length too short", "length: 1s", "x.yaml: length: is 1s; want 2s to 1h0m0s"},
		{"no instances", "load: {instances: 0}", "x.yaml: load.instances: is 0; want 1 to 100000"},
		{"negative rate", "load: {reads: -1}", "x.yaml: load.reads: is -1; want 0 to"},
		{"rate that is no number", "load: {reads: .nan}", "x.yaml: load.reads: is NaN; want 0 to"},
		{"negative rate of sealed instances", "load: {sealed: -1}", "x.yaml: load.sealed: is -1; want 0 to"},
		{"more writers than can be", "load: {key-writers: 1001}", "x.yaml: load.key-writers: is 1001; want 0 to 1000"},
		{"broken seconds", "load: {heartbeat: 1500ms, lease: 6s}", "load.heartbeat: is 1.5s; want whole seconds"},
		{"lease too short", "load: {lease: 2s}", "load.lease: is 2s; want whole seconds, at least three heartbeats (3s)"},
		{"lease of two heartbeats", "load: {heartbeat: 5s, lease: 10s}", "at least three heartbeats (15s)"},
		{"calls on no keys", "load: {own-keys: 0, shared-keys: 0}", "writes and reads have nothing to call on"},
		{"storm on no keys", "load: {own-keys: 0, shared-keys: 0, writes: 0, reads: 0}\nstorms:\n- {at: 1s, for: 1s, load: {reads: 5}}", "x.yaml: storms[0].load: has writes or reads"},
		{"storm of what is no rate", "storms:\n- at: 1s\n  for: 1s\n  load: {instances: 5}", "x.yaml: storms[0].load.instances: is no rate; want one of deltas, fetches, reads, registers, sealed, writes"},
		{"storm of nothing", "storms:\n- {at: 1s, for: 1s}", "x.yaml: storms[0].load: is missing"},
		{"storm without an end", "storms:\n- {at: 1s, load: {reads: 5}}", "storms[0].for: is missing"},
		{"overlapping storms", "storms:\n- {at: 10%, for: 4s, load: {reads: 5}}\n- {at: 5s, for: 1s, load: {reads: 5}}", "x.yaml: storms[1]: overlaps storms[0]"},
		{"unknown kind", "faults:\n- {at: 1s, for: 1s, kind: explode}", `x.yaml: faults[0].kind: is "explode"; want one of cut-link, die,`},
		{"no node to kill", "faults:\n- {at: 1s, for: 1s, kind: kill}", "faults[0].nodes: is missing; want the nodes that it strikes"},
		{"nodes that die", "faults:\n- {at: 1s, kind: die, instances: 1, nodes: all}", "faults[0].nodes: is given, but die has none"},
		{"a node that is not there", "faults:\n- {at: 1s, for: 1s, kind: kill, nodes: node4}", `faults[0].nodes: "node4" selects no node; want leader, follower`},
		{"all nodes isolated", "faults:\n- {at: 1s, for: 1s, kind: isolate, nodes: all}", "faults[0].nodes: are all nodes"},
		{"a cut with one datacenter", "faults:\n- {at: 1s, for: 1s, kind: cut-link}", "faults[0].kind: cuts datacenters off from each other, but there is one; want datacenters: 2"},
		{"death with an end", "faults:\n- {at: 1s, for: 1s, kind: die, instances: 1}", "faults[0].for: is given, but die has none"},
		{"a loss with an end", "faults:\n- {at: 1s, for: 1s, kind: lose, nodes: node1}", "faults[0].for: is given, but lose has none"},
		{"a loss of no node", "faults:\n- {at: 1s, kind: lose}", "faults[0].nodes: is missing"},
		{"a loss of the majority", "faults:\n- {at: 1s, kind: lose, nodes: followers}", "faults[0].nodes: are half of the nodes or more, which no mode survives"},
		{"a loss of half", "datacenters: 2\nfaults:\n- {at: 1s, kind: lose, nodes: dc2}", "faults[0].nodes: are half of the nodes or more"},
		{"a loss during another fault of processes", "faults:\n- {at: 1s, for: 5s, kind: pause, nodes: node2}\n- {at: 2s, kind: lose, nodes: node1}", "faults[1]: overlaps faults[0]"},
		{"pauses that are repeated", "faults:\n- {at: 1s, for: 2s, kind: pause, nodes: all, times: 2}", "faults[0].times: is given, but pause strikes once"},
		{"kills too often", "faults:\n- {at: 1s, for: 2s, kind: kill, nodes: all, times: 101}", "faults[0].times: is 101; want 0 to 100"},
		{"no end", "faults:\n- {at: 1s, kind: pause, nodes: all}", "faults[0].for: is missing"},
		{"disks as slow as ever", "faults:\n- {at: 1s, for: 1s, kind: slow-disk, nodes: all}", "faults[0].delay: is missing"},
		{"disks too slow", "faults:\n- {at: 1s, for: 1s, kind: slow-disk, nodes: all, delay: 2s}", "faults[0].delay: is 2s; want at most 1s"},
		{"more deaths than instances", "faults:\n- {at: 1s, kind: die, instances: 301}", `faults[0].instances: "301" is no part of 300 instances`},
		{"no time", "faults:\n- {at: soon, kind: die, instances: 1}", `line 3: "soon" is no time of a trial; want a share such as 20%`},
		{"no share", "faults:\n- {at: 120%, kind: die, instances: 1}", `line 3: "120%" is no share; want one from 0% to 100%`},
		{"fault after the end", "length: 10s\nfaults:\n- {at: 8s, for: 3s, kind: kill, nodes: all}", "x.yaml: faults[0]: lasts from 8s to 11s; want it within the 10s of the load"},
		{"fault that begins at the end", "faults:\n- {at: 100%, kind: die, instances: 1}", "faults[0]: lasts from 15s to 15s"},
		{"overlapping faults of processes", "faults:\n- {at: 1s, for: 3s, kind: pause, nodes: node1}\n- {at: 2s, for: 3s, kind: kill, nodes: node1}", "x.yaml: faults[1]: overlaps faults[0]; want one of the faults of processes to end"},
		{"limits of a column that comes with the program", "limits: {ap-always: {}}", ""},
		{"limits of the user's column", "limits: {mine: {}}", ""},
		{"limits of no column", "limits: {my own: {}}", "x.yaml: limits.my own: is no mode and no column's name; want cp, ap or such a name"},
		{"unknown limit of a column", "limits: {mine: {gap: 1s}}", "field gap not found"},
		{"share above one", "limits: {cp: {read-success: 99}}", "limits.cp.read-success: is 99; want 0 to 1"},
		{"limit of no time", "limits: {cp: {removal: 0s}}", "limits.cp.removal: is 0s"},
		{"negative count", "limits: {ap: {false-evictions: -1}}", "limits.ap.false-evictions: is negative"},
		{"two documents", "---\nname: y", "holds more than one YAML document"},
		{"no YAML", "a: [", "x.yaml: yaml:"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := expect.Err(Parse("x.yaml", []byte("name: x\n"+tt.text)))
			expect.That(t, (err == nil) == (tt.want == "") && (err == nil || strings.Contains(err.Error(), tt.want)), "Parse(%q) =\n%v, want %q in it", tt.text, err, tt.want)
		})
	}
}

func TestParseReportsAllMistakesOfAKindAtOnce(t *testing.T) {
	for text, want := range map[string][]string{
		"name: x\nlenght: 10s\ndatacenters: many\n": {"line 2: field lenght not found", "line 3: cannot unmarshal"},
		"name: not a name\ndatacenters: 0\nfaults:\n  - at: 1s\n    kind: kill\n": {
			"bad.yaml: name: ", "bad.yaml: datacenters: ", "bad.yaml: faults[0].nodes: ", "bad.yaml: faults[0].for: "},
	} {
		err := expect.Err(Parse("bad.yaml", []byte(text)))
		for _, says := range want {
			expect.ErrorSays(t, err, says, "Parse(%q) =", text)
		}
	}
}

func TestParseRefusesAnEmptyFile(t *testing.T) {
	for _, text := range []string{"", "# nothing\n"} {
		expect.ErrorSays(t, expect.Err(Parse("x.yaml", []byte(text))), "x.yaml: is empty", "Parse(%q) =", text)
	}
}

func TestReadFileNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mine.yaml")
	_, err := ReadFile(path)
	expect.That(t, err != nil && strings.Contains(err.Error(), "mine.yaml"), "ReadFile of an absent file = %v, want its name", err)
	need.OK(t, os.WriteFile(path, []byte("name: mine\ndatacenters: 0\n"), 0o600))
	_, err = ReadFile(path)
	expect.That(t, err != nil && strings.HasPrefix(err.Error(), "mine.yaml: datacenters:"), "ReadFile of a wrong file = %v, want file and key", err)
}

func TestScenariosSurviveJSON(t *testing.T) {
	s := need.Got(Parse("everything.yaml", []byte(everything)))(t)
	sameThroughJSON(t, s)
}

func sameThroughJSON(t *testing.T, s Scenario) {
	t.Helper()
	text := need.Got(json.Marshal(s))(t)
	var back Scenario
	need.OKf(t, json.Unmarshal(text, &back), "read %s", text)
	expect.Deep(t, back, s, "through %s\ngot", text)
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(everything))
	f.Add([]byte("name: x\nfaults: [{at: 20%, kind: die, instances: 1}]"))
	f.Add([]byte("name: &a x\ntitle: *a\nload: {<<: {reads: 1}}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := Parse("fuzz.yaml", text)
		if err != nil {
			return
		}
		expect.OKf(t, asError(s.Name, mistakes(s)), "Parse accepted a mistake")
		sameThroughJSON(t, s)
	})
}

func TestSelect(t *testing.T) {
	one, two := Places(1), Places(2)
	for _, tt := range []struct {
		selector string
		nodes    []Place
		leader   int
		want     []int
	}{
		{"leader", one, 1, []int{1}},
		{"follower", one, 1, []int{2}},
		{"follower", one, 2, []int{0}},
		{"follower", two, 2, []int{0}},
		{"followers", one, 1, []int{0, 2}},
		{"followers", two, 1, []int{0, 2}},
		{"all", two, 0, []int{0, 1, 2, 3, 4, 5}},
		{"dc2", two, 0, []int{3, 4, 5}},
		{"node3", one, 0, []int{2}},
		{"node3, leader,node1", one, 0, []int{0, 2}},
	} {
		got, err := Select(tt.selector, tt.nodes, tt.leader)
		expect.That(t, err == nil && slices.Equal(got, tt.want),
			"Select(%q, %d nodes, leader %d) = %v, %v, want %v", tt.selector, len(tt.nodes), tt.leader, got, err, tt.want)
	}
}

func TestSelectRefusesWhatIsNoNode(t *testing.T) {
	for selector, want := range map[string]string{"": `""`, "dc2": `"dc2"`, "leader, nobody": `"nobody"`} {
		_, err := Select(selector, Places(1), 0)
		expect.That(t, err != nil && strings.Contains(err.Error(), want+" selects no node"),
			"Select(%q) = %v, want that %s selects no node", selector, err, want)
	}
}

func TestShareReadsNumbersAndPercentages(t *testing.T) {
	for _, tt := range []struct {
		which string
		of    int
		want  int // 0 if refused
	}{
		{"1", 300, 1},
		{"300", 300, 300},
		{"301", 300, 0},
		{"0", 300, 0},
		{"-1", 300, 0},
		{"10%", 300, 30},
		{"7%", 300, 21},
		{"1%", 10, 1},
		{"12.5%", 80, 10},
		{"100%", 7, 7},
		{"0%", 300, 0},
		{"101%", 300, 0},
		{"NaN%", 300, 0},
		{"some", 300, 0},
		{"", 300, 0},
	} {
		got, err := Share(tt.which, tt.of)
		expect.That(t, got == tt.want && (err == nil) == (tt.want > 0), "Share(%q, %d) = %d, %v, want %d", tt.which, tt.of, got, err, tt.want)
	}
}
