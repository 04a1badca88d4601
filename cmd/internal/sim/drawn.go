package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
)

// faultsLast is how long faults happen in a generated schedule, and calmLasts how long nothing does after them: nodes without
// consensus compare what they have once a minute, a tenth earlier or later (docs/understand/replication.md).
const (
	faultsLast = 2 * time.Minute
	calmLasts  = 75 * time.Second
)

// drawing is a schedule that is being drawn.
type drawing struct {
	Schedule
	r     *rand.Rand
	names []string
	at    time.Duration
}

// Generate draws a schedule. The same seed gives the same schedule as long as Generate stays the same.
func Generate(seed uint64) Schedule {
	d := &drawing{r: rand.New(rand.NewPCG(seed, 57))}
	latency := time.Duration(1+d.r.IntN(20)) * time.Millisecond
	d.Cluster = Cluster{Mode: config.CP, Nodes: 3, Datacenters: 1, Latency: latency}
	words := []string{"wal", "snapshots", "oldlevel", "auth"}
	if d.r.IntN(4) == 0 {
		d.Mode, words = config.AP, []string{"always"}
	}
	switch size := d.r.IntN(32); {
	case size < 4:
		d.Datacenters, d.Nodes = 2, 1+d.r.IntN(3)
	case size < 9:
		d.Nodes = 5
	case size < 10:
		d.Nodes = 7
	case size < 13:
		d.Nodes = 1
	}
	for _, word := range words {
		if d.r.IntN(2) == 0 && (word != "auth" || d.Datacenters == 1 && d.r.IntN(2) == 0) {
			d.Settings = append(d.Settings, word)
		}
	}
	d.names = d.Cluster.names()
	for d.later(); d.at < faultsLast; d.later() {
		if d.r.IntN(4) == 0 {
			d.change()
		} else {
			d.fault()
		}
		if d.r.IntN(3) == 0 {
			d.later()
			d.add("heal")
		}
	}
	return d.Schedule
}

// add lets something happen now.
func (d *drawing) add(do string, args ...string) {
	d.Steps = append(d.Steps, Step{d.at, do, args})
}

// later lets time pass.
func (d *drawing) later() { d.at += time.Duration(d.r.IntN(10_000)) * time.Millisecond }

// node draws one.
func (d *drawing) node() string { return d.names[d.r.IntN(len(d.names))] }

// pair draws two nodes, which are the same where there is only one.
func (d *drawing) pair() []string {
	a := d.r.IntN(len(d.names))
	return []string{d.names[a], d.names[(a+1+d.r.IntN(max(len(d.names)-1, 1)))%len(d.names)]}
}

func (d *drawing) span(least, most time.Duration) string {
	return (least + time.Duration(d.r.Int64N(int64(most-least)))).Round(time.Millisecond).String()
}

// away has a node leave for a while.
func (d *drawing) away(act, node string) {
	d.add(act, node)
	d.later()
	d.add("start", node)
}

// fault draws what breaks next.
func (d *drawing) fault() {
	switch n := d.node(); d.r.IntN(17) {
	case 0, 1:
		d.away([]string{"kill", "killbefore", "killafter", "poweroff"}[d.r.IntN(4)], n)
	case 2:
		d.away("stop", n)
	case 3:
		d.add("kill", n) // and stays away for long
	case 4:
		d.add("start", n)
	case 5:
		d.add("cut", d.pair()...)
	case 6:
		d.add("cutoneway", d.pair()...)
	case 7:
		d.add("isolate", n)
	case 8:
		d.add("delay", append(d.pair(), d.span(time.Millisecond, slowest))...)
	case 9:
		d.add("jitter", append(d.pair(), d.span(time.Millisecond, 200*time.Millisecond))...)
	case 10:
		d.add("lose", d.pair()...)
	case 11:
		d.add("reset", d.pair()...)
	case 12:
		d.add("slowdisk", n, d.span(0, 2*time.Second))
		d.later()
		d.add("slowdisk", n, "0s")
	case 13:
		d.away([]string{"faildisk", "eio"}[d.r.IntN(2)], n)
	case 14:
		d.add("hangdisk", n, d.span(100*time.Millisecond, 8*time.Second))
		if d.r.IntN(2) == 0 {
			d.at += time.Second
			d.add("kill", n)
		}
		d.later()
		d.add("start", n)
	case 15:
		d.add("transfer")
	case 16:
		if d.Datacenters > 1 {
			d.add("cutdc")
		} else {
			d.add("heal")
		}
	}
}

// change draws what an operator does next.
func (d *drawing) change() {
	cp := d.Mode == config.CP
	acts := []string{"reload", "save", "restore"}
	if cp && d.Nodes >= 3 {
		acts = append(acts, "remove")
	}
	if slices.Contains(d.Settings, "oldlevel") {
		acts = append(acts, "raise")
	}
	if slices.Contains(d.Settings, "auth") {
		acts = append(acts, "grant", "narrow", "revoke")
	}
	switch act := acts[d.r.IntN(len(acts))]; act {
	case "reload":
		d.add(act, d.node())
	case "remove":
		d.away(act, d.node())
	case "restore":
		d.add("save")
		d.later()
		d.add(act)
	default:
		d.add(act)
	}
}
