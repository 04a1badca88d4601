package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/internal/cli"
)

const (
	// shortestInterval keeps status --watch from being a load of its own.
	shortestInterval = 200 * time.Millisecond
	// overviewTimeout is for one server, which gives other nodes 2 s to respond when it was not asked lately.
	overviewTimeout = 4 * time.Second
	// overviewRows is how many applications, and how many things that need attention, are shown.
	overviewRows = 10
)

// statusWatch shows the overview of a cluster again and again.
type statusWatch struct {
	servers   []*client.Client // each asks one server
	out, errs io.Writer
	form      cli.Output
	erase     bool // what was shown before
}

// newStatusWatch returns a watch whose reads need no leader.
func (c connection) newStatusWatch(out, errs io.Writer) (*statusWatch, error) {
	kind := os.Getenv("TERM")
	w := &statusWatch{out: out, errs: errs, form: c.out}
	w.erase = c.out == cli.Table && cli.IsTerminal(out) && kind != "" && kind != "dumb" // it understands escape sequences
	c.consistency = "stale"
	for _, address := range c.servers(os.Getenv(cli.AddrEnv)) {
		c.addr = address
		one, err := c.open(slog.New(slog.DiscardHandler))
		if err != nil {
			return nil, err
		}
		w.servers = append(w.servers, one)
	}
	return w, nil
}

// run shows the overview at every interval until ctx ends. If no server responds at first, it returns an error.
// Later it says so once, and tries again.
func (w *statusWatch) run(ctx context.Context, interval time.Duration) error {
	ticks := time.NewTicker(interval)
	defer ticks.Stop()
	shown, lost := false, false
	for {
		overview, err := w.ask(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			err = w.show(time.Now(), overview)
			shown, lost = true, false
		case shown && !lost:
			_, err = fmt.Fprintf(w.errs, "\n%s  no server responds, trying again: %s\n",
				timeOfDay(time.Now()), cli.Printable(strings.ReplaceAll(err.Error(), "\n", "; ")))
			lost = true
		case shown:
			err = nil
		}
		if err != nil {
			return err
		}
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// ask asks one server after another until one knows a leader. A server that knows none may be cut off, so its overview
// only counts if no other server knows better.
func (w *statusWatch) ask(ctx context.Context) (client.Overview, error) {
	var leaderless []client.Overview
	var errs []error
	for _, server := range w.servers {
		overview, err := askOverview(ctx, server)
		switch {
		case err != nil:
			errs = append(errs, err)
		case overview.Status.Quorum:
			return overview, nil
		default:
			leaderless = append(leaderless, overview)
		}
	}
	if len(leaderless) > 0 {
		return leaderless[0], nil
	}
	return client.Overview{}, errors.Join(errs...)
}

func askOverview(ctx context.Context, server *client.Client) (client.Overview, error) {
	ctx, cancel := context.WithTimeout(ctx, overviewTimeout)
	defer cancel()
	return server.Overview(ctx, "", overviewRows)
}

func (w *statusWatch) show(now time.Time, overview client.Overview) error {
	if w.form == cli.JSON {
		return cli.PrintLine(w.out, overview)
	}
	var frame bytes.Buffer // written at once, so that a terminal does not flicker
	if w.erase {
		frame.WriteString("\x1b[H\x1b[2J")
	}
	fmt.Fprintf(&frame, "%s  %s\n\n", timeOfDay(now), cli.Printable(overview.Status.Node))
	if err := cli.PrintTable(&frame, clusterOverview{overview}.Table()); err != nil {
		return err
	}
	if !w.erase {
		frame.WriteString("\n")
	}
	_, err := w.out.Write(frame.Bytes())
	return err
}

func timeOfDay(at time.Time) string { return at.UTC().Format("15:04:05Z") }

// clusterOverview is a cluster's status with its figures, what needs attention, and the applications in the most
// trouble.
type clusterOverview struct{ client.Overview }

func (o clusterOverview) Table() [][]string {
	o.Status.Summary = o.Line.Text // which says more
	f := o.Figures
	overdue := "?"
	if f.SampledMS != 0 {
		overdue = strconv.Itoa(f.Overdue)
	}
	rows := append(clusterStatus{o.Status}.Table(),
		[]string{},
		[]string{"UP", "NOT UP", "APPS", "OVERDUE", "CHANGES/MIN", "WRITES/S", "P99", "WATCHERS", "SELF-PRESERVATION"},
		[]string{strconv.Itoa(f.Up), strconv.Itoa(f.NotUp), strconv.Itoa(f.Apps), overdue, oneDecimal(f.Changes),
			oneDecimal(f.Writes), latency(f.WriteP99), strconv.Itoa(f.Watchers), o.SelfPreservation.State})
	if len(o.Attention) > 0 {
		rows = append(rows, []string{}, []string{"NEEDS ATTENTION"})
	}
	for _, a := range o.Attention[:min(len(o.Attention), overviewRows)] {
		rows = append(rows, []string{a.Text})
	}
	rows = append(rows, andMore(len(o.Attention)-overviewRows)...)
	if len(o.Apps) == 0 {
		return rows
	}
	rows = append(rows, []string{}, []string{"APP", "UP", "ALL", "OVERDUE"})
	for _, app := range o.Apps {
		rows = append(rows, []string{app.App, strconv.Itoa(app.Up), strconv.Itoa(app.All), strconv.Itoa(app.Overdue)})
	}
	return append(rows, andMore(f.Applications-len(o.Apps))...)
}

// andMore returns the row below a list that leaves out so many, or no row.
func andMore(left int) [][]string {
	if left <= 0 {
		return nil
	}
	return [][]string{{fmt.Sprintf("and %d more", left)}}
}

// oneDecimal shows a rate, or "?" if the server does not know it yet.
func oneDecimal(x *float64) string {
	if x == nil {
		return "?"
	}
	return strconv.FormatFloat(math.Round(*x*10)/10, 'f', -1, 64)
}

// latency shows a number of seconds as a duration, or "?" if the server does not know it yet.
func latency(s *float64) string {
	if s == nil {
		return "?"
	}
	return time.Duration(*s * float64(time.Second)).Round(100 * time.Microsecond).String()
}
