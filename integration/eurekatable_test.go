package integration

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/seed-20419f34/rollcall/internal/need"
)

// pairing is an instance, the server at which its client registers and renews it, and the server at which something is done
// to it.
type pairing struct {
	id, kinds string // kinds: of the home, and of the other
	home, at  *Node
	stop      func()
}

// tableApp is the application of all pairings, tableLease the duration of their leases (s), tableLimit the time that one act
// may take to reach all servers.
const (
	tableApp   = "TABLE"
	tableLease = 30
	tableLimit = 3 * time.Minute
)

// act is something that is done to an instance, and how a server shows that it was.
type act struct {
	name string
	do   func(p pairing) Response
	// done is asked with what the server showed before the act, and what it shows now; nil: nothing.
	done func(before, now *Listed, at time.Time) bool
	// few: it is done to one instance of each home, 7 of 49. A server that loses more than 15 % of its instances at once keeps
	// them: self-preservation.
	few bool
}

func status(word string) func(before, now *Listed, at time.Time) bool {
	return func(_, now *Listed, _ time.Time) bool { return now != nil && now.Status == word }
}

// tableActs are in the order in which they are done.
var tableActs = []act{
	{name: "heartbeat", do: func(p pairing) Response { return p.home.Renew(tableApp, p.id) },
		done: func(before, now *Listed, _ time.Time) bool {
			return now != nil && before != nil && now.LeaseInfo.Renewed > before.LeaseInfo.Renewed
		}},
	{name: "metadata", do: func(p pairing) Response {
		return p.at.Do(Request{Method: http.MethodPut, Path: path(tableApp, p.id) + "/metadata?color=blue"})
	}, done: func(_, now *Listed, _ time.Time) bool { return now != nil && now.Metadata["color"] == "blue" }},
	{name: "override", do: func(p pairing) Response { return p.at.Override(tableApp, p.id, "OUT_OF_SERVICE") }, done: status("OUT_OF_SERVICE")},
	{name: "end of the override", do: func(p pairing) Response { return p.at.EndOverride(tableApp, p.id) }, done: status("UP")},
	{name: "cancel while it lives", do: func(p pairing) Response { return p.at.Cancel(tableApp, p.id) },
		done: func(_, now *Listed, at time.Time) bool {
			return now != nil && now.Status == "UP" && now.LeaseInfo.Registered >= at.UnixMilli()
		}},
	{name: "metadata after it", do: func(p pairing) Response {
		return p.home.Do(Request{Method: http.MethodPut, Path: path(tableApp, p.id) + "/metadata?color=red"})
	}, done: func(_, now *Listed, _ time.Time) bool { return now != nil && now.Metadata["color"] == "red" }},
	{name: "eviction", few: true, do: func(p pairing) Response {
		p.stop()
		return Response{Status: http.StatusOK}
	}, done: func(_, now *Listed, _ time.Time) bool { return now == nil }},
}

// kindOf is the kind of a server by its name.
func kindOf(n *Node) string { return strings.TrimRight(n.Name, "0123456789") }

// TestTableOfAMixedCluster prints how long every act at every server takes until every server shows it, in a cluster of two
// published Eureka servers, three nodes with consensus and two without it. make eureka-table runs it.
func TestTableOfAMixedCluster(t *testing.T) {
	if os.Getenv("ROLLCALL_EUREKA_TABLE") == "" {
		t.Skip("it takes some minutes: make eureka-table")
	}
	m := startMixed(t, 2, 3, 2)
	var all []pairing
	registered := time.Now()
	for _, home := range m.all() {
		for _, at := range m.all() {
			p := pairing{id: home.Name + "-" + at.Name, kinds: kindOf(home) + " → " + kindOf(at), home: home, at: at}
			p.stop = startClient(t, home, Instance{App: tableApp, ID: p.id, Duration: tableLease, Dirty: time.Now().UnixMilli()}, true)
			all = append(all, p)
		}
	}
	table := map[string]map[string]time.Duration{}
	register := act{name: "register", do: func(pairing) Response { return Response{Status: http.StatusOK} }, done: status("UP")}
	shown := observe(t, m, register, all, nil, func(pairing) time.Time { return registered }, table)
	for _, a := range tableActs {
		if a.few {
			all = slices.DeleteFunc(all, func(p pairing) bool { return p.home != p.at })
		}
		done := map[string]time.Time{}
		for _, p := range all {
			done[p.id] = time.Now()
			mustDo(t, a.name, a.do(p))
		}
		shown = observe(t, m, a, all, shown, func(p pairing) time.Time { return done[p.id] }, table)
	}
	printTable(table, append([]act{register}, tableActs...))
}

// observe asks all servers until each shows that an act was done to every instance, and notes the longest time by kinds of servers. It
// returns what they show then, by server and id.
func observe(t *testing.T, m mixed, a act, all []pairing, before map[string]map[string]*Listed, since func(pairing) time.Time, table map[string]map[string]time.Duration) map[string]map[string]*Listed {
	t.Helper()
	shown := map[string]map[string]*Listed{}
	table[a.name] = map[string]time.Duration{}
	for _, n := range m.all() {
		shown[n.Name] = map[string]*Listed{}
	}
	for end := time.Now().Add(tableLimit); ; time.Sleep(pollInterval) {
		var missing []string
		for _, n := range m.all() {
			for _, p := range all {
				if _, seen := shown[n.Name][p.id]; seen {
					continue
				}
				now := need.Got(n.Lookup(tableApp, p.id))(t)
				if !a.done(before[n.Name][p.id], now, since(p)) {
					missing = append(missing, fmt.Sprintf("%s of %s: %+v", n.Name, p.id, now))
					continue
				}
				shown[n.Name][p.id] = now
				table[a.name][p.kinds] = max(table[a.name][p.kinds], time.Since(since(p)))
			}
		}
		if len(missing) == 0 {
			return shown
		}
		need.That(t, time.Now().Before(end), "%s: %d of %d are not shown, such as at %v", a.name, len(missing), len(all)*len(m.all()), missing[:min(10, len(missing))])
	}
}

// printTable prints the longest times in seconds; -: it was not done there.
func printTable(table map[string]map[string]time.Duration, acts []act) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	defer w.Flush()
	var kinds []string
	for k := range table["register"] {
		kinds = append(kinds, k)
	}
	slices.Sort(kinds)
	fmt.Fprintf(w, "home → done at\t%s\n", strings.Join(kinds, "\t"))
	for _, a := range acts {
		fmt.Fprint(w, a.name)
		for _, k := range kinds {
			took, was := table[a.name][k]
			if !was {
				fmt.Fprint(w, "\t-")
				continue
			}
			fmt.Fprintf(w, "\t%.1f", took.Seconds())
		}
		fmt.Fprintln(w)
	}
}
