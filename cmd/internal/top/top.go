// Package top is `rollcall top`: the overview of a cluster in a terminal, for people who have no browser at hand.
// What it shows comes from the public API, above all from the overview that a server makes of its cluster. It changes
// nothing, and does not judge anew what the server has judged.
//
//	top.go        what the command calls: Show, on the terminal, and Print, one frame as text
//	line.go       lines of text, and how they fit a terminal
//	read.go       what is asked of servers
//	model.go      what is known, and what keys do
//	truth.go      which line is the worst, and what else needs attention
//	frame.go      the lines of a frame
package top

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/gdamore/tcell/v2"

	"github.com/seed-20419f34/rollcall/client"
)

// Config is what an overview needs.
type Config struct {
	Servers  []string      // URLs, in the order they are asked; at least one
	Interval time.Duration // between two questions; positive
	// Open returns a client of some of the servers, whose reads are answered even without a leader. log receives the
	// client's warnings.
	Open func(servers []string, log *slog.Logger) (*client.Client, error)
}

// longestStill is the longest that a frame stays, whatever the interval: times and changes go on.
const longestStill = time.Second

// open returns the reader, whose clients ask one server each, and a client of all servers for the stream of changes.
func (c Config) open(warn func(string)) (*reader, *client.Client, error) {
	r := &reader{}
	for _, address := range c.Servers {
		one, err := c.Open([]string{address}, slog.New(slog.DiscardHandler))
		if err != nil {
			return nil, nil, err
		}
		r.servers = append(r.servers, server{withoutUser(address), one})
	}
	all, err := c.Open(c.Servers, slog.New(warnings{warn}))
	return r, all, err
}

// Print writes one frame as text. It fails if no server responds.
func Print(ctx context.Context, c Config, w io.Writer) error {
	r, _, err := c.open(func(string) {})
	if err != nil {
		return err
	}
	m := newModel(r.names())
	read := r.read(ctx, "")
	if read.server == "" {
		return errors.Join(read.errors()...)
	}
	m.add(read)
	// Even without the events the frame says most.
	if events, err := r.events(ctx); err == nil {
		m.addEvents(time.Now(), events)
	}
	for _, l := range m.frame(time.Now(), 0, 0) {
		if _, err := fmt.Fprintln(w, l.text); err != nil {
			return err
		}
	}
	return nil
}

// message changes the model, in the goroutine that owns it.
type message struct {
	change func(*model)
	redraw bool // at once, and not with the next frame
}

// Show shows the overview on the terminal until a key or ctx ends it. Afterwards the terminal is as it was.
func Show(ctx context.Context, c Config) error {
	screen, err := tcell.NewScreen()
	if err != nil {
		return fmt.Errorf("open the terminal: %w", err)
	}
	return run(ctx, c, screen)
}

// run is Show on any screen.
func run(ctx context.Context, c Config, screen tcell.Screen) error {
	ctx, cancel := context.WithCancel(ctx)
	messages := make(chan message)
	send := func(redraw bool, change func(*model)) {
		select {
		case messages <- message{change, redraw}:
		case <-ctx.Done():
		}
	}
	r, all, err := c.open(func(text string) {
		send(false, func(m *model) { m.breakStream(time.Now(), text) })
	})
	if err == nil {
		err = screen.Init()
	}
	if err != nil {
		cancel()
		return fmt.Errorf("show the overview: %w", err)
	}
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	defer screen.Fini() // first of these three, so that a terminal is never left as it is now
	events := make(chan tcell.Event)
	running.Go(func() { screen.ChannelEvents(events, ctx.Done()) })
	filters := make(chan string, 1) // the newest filter that poll has not seen; only this goroutine sends
	running.Go(func() { poll(ctx, r, c.Interval, filters, send) })
	running.Go(func() { remember(ctx, r, send) })
	running.Go(func() { follow(ctx, all, send) })
	m := newModel(r.names())
	draw(screen, m)
	ticks := time.NewTicker(min(c.Interval, longestStill))
	defer ticks.Stop()
	for !m.quit {
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
			draw(screen, m)
		case msg := <-messages:
			if msg.change(m); msg.redraw {
				draw(screen, m)
			}
		case ev, ok := <-events:
			if !ok && ctx.Err() == nil {
				return errors.New("show the overview: the terminal went away")
			}
			before := m.filter
			handle(screen, m, ev)
			if m.filter != before {
				replace(filters, m.filter)
			}
			draw(screen, m)
		}
	}
	return nil
}

// replace puts a value into a channel of capacity one that nothing else sends to. It never waits.
func replace(c chan string, value string) {
	select {
	case <-c:
	default:
	}
	c <- value
}

// poll reads at every interval, and at once when the filter changes, until ctx ends.
func poll(ctx context.Context, r *reader, interval time.Duration, filters <-chan string, send func(bool, func(*model))) {
	ticks := time.NewTicker(interval)
	defer ticks.Stop()
	filter := ""
	for ctx.Err() == nil {
		read := r.read(ctx, filter)
		send(true, func(m *model) { m.add(read) })
		select {
		case <-ticks.C:
		case filter = <-filters:
		case <-ctx.Done():
		}
	}
}

// remember reads once what happened before the stream of changes.
func remember(ctx context.Context, r *reader, send func(bool, func(*model))) {
	if events, err := r.events(ctx); err == nil {
		send(false, func(m *model) { m.addEvents(time.Now(), events) })
	}
}

// follow passes every change on, from one server after another, until ctx ends.
func follow(ctx context.Context, cl *client.Client, send func(bool, func(*model))) {
	err := cl.Watch(ctx, client.WatchConfig{}, func(event client.WatchEvent) error {
		at := time.Now()
		send(false, func(m *model) { m.follow(at, event) })
		return nil
	})
	if err != nil {
		send(false, func(m *model) { m.breakStream(time.Now(), err.Error()) })
	}
}

// handle passes on a key, and adapts to another size of the terminal.
func handle(screen tcell.Screen, m *model, ev tcell.Event) {
	switch ev := ev.(type) {
	case *tcell.EventKey:
		m.press(ev.Key(), ev.Rune())
	case *tcell.EventResize:
		screen.Sync()
	}
}

// styles are the attributes of lines. Without colors, because the terminal lacks them or NO_COLOR is set, the other
// attributes remain.
var styles = map[style]tcell.Style{
	plain: tcell.StyleDefault,
	head:  tcell.StyleDefault.Bold(true),
	good:  tcell.StyleDefault.Foreground(tcell.ColorGreen),
	warn:  tcell.StyleDefault.Foreground(tcell.ColorOlive).Bold(true),
	bad:   tcell.StyleDefault.Foreground(tcell.ColorMaroon).Bold(true).Reverse(true),
	dim:   tcell.StyleDefault.Dim(true),
}

// draw shows the current frame. The screen sends the terminal only what has changed.
func draw(screen tcell.Screen, m *model) {
	width, height := screen.Size()
	screen.Clear()
	for y, l := range m.frame(time.Now(), width, height) {
		screen.PutStrStyled(0, y, l.text, styles[l.style])
	}
	screen.Show()
}

// warnings passes on a client's warnings: its log has no other reader.
type warnings struct{ send func(text string) }

func (w warnings) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

func (w warnings) Handle(_ context.Context, r slog.Record) error {
	cause := ""
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "err" {
			cause = a.Value.String()
		}
		return true
	})
	w.send(cmp.Or(cause, r.Message))
	return nil
}

func (w warnings) WithAttrs([]slog.Attr) slog.Handler { return w }

func (w warnings) WithGroup(string) slog.Handler { return w }
