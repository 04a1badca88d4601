package scenario

import (
	"cmp"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// pages are where docs/scenarios.md is, from here.
const pages = "../../../docs/"

func page(t *testing.T) string {
	t.Helper()
	text := need.Got(os.ReadFile(pages + "scenarios.md"))(t)
	return string(text)
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
	all := need.Got(Builtin())(t)
	return all
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

// statesCostsOnly reports whether a scenario only shows what renewals cost: how many a machine carries is no promise.
func statesCostsOnly(s Scenario) bool { return s.HeartbeatsOnly() && s.Name != "heartbeats-1000" }

func TestBuiltinScenariosOfHeartbeatsSendNothingElse(t *testing.T) {
	for _, s := range builtins(t) {
		is := s.Name == "idle" || strings.HasPrefix(s.Name, "heartbeats-")
		expect.Equal(t, s.HeartbeatsOnly(), is, "%s: nothing but heartbeats:", s.Name)
	}
}

// Kills amid writes need writes that overlap, of keys whose histories the checker decides however many calls overlap.
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
			_, err := FindColumn(c.text)
			expect.ErrorSays(t, err, c.want, "FindColumn(%q) =", c.text)
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
