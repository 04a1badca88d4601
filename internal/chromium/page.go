package chromium

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// Page is a page that a test examines and works with. It records what the page should not do: see Complaints.
type Page struct {
	testing.TB
	ctx context.Context
	axe string // the script of axe-core

	mu        sync.Mutex
	complains []string // console errors, exceptions, and requests to others than base
}

// Limit is how long a page may take to show what a test waits for.
const Limit = time.Minute

const tall = 900

// Looks are light and dark, in a wide and a narrow window.
var Looks = []Look{{Theme: "light", Width: 1280, Height: tall}, {Theme: "dark", Width: 1280, Height: tall}, {Theme: "light", Width: 400, Height: tall}, {Theme: "dark", Width: 400, Height: tall}}

// OpenPage starts a browser that may send requests only to base. It ends with the test. The repository at root must
// have axe-core, which finds what keeps people from using a page.
func OpenPage(t testing.TB, root, base string) *Page {
	t.Helper()
	axe, err := os.ReadFile(filepath.Join(root, "integration/clients/browser/node_modules/axe-core/axe.min.js"))
	need.Present(t, err == nil, "axe-core is missing; get it with: make clients")
	p := &Page{TB: t, ctx: Open(t), axe: string(axe)}
	need.OK(t, chromedp.Listen(p.ctx, func(event any) { p.hear(event, base) }))
	p.Do(Command(network.Enable, network.EnableParams{}), Command(log.Enable, cdp.Empty{}), Command(runtime.Enable, cdp.Empty{}))
	return p
}

// complaint records what the page should not do. The browser reports it in a goroutine of its own.
func (p *Page) complaint(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.complains = append(p.complains, text)
}

// Complaints returns what the page did since the last call, and should not do: errors and warnings in the console,
// exceptions, and requests to others.
func (p *Page) Complaints() (all []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all, p.complains = p.complains, nil
	return all
}

func (p *Page) hear(event any, base string) {
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		p.complaint(fmt.Sprintf("exception: %+v", e.ExceptionDetails))
	case *runtime.EventConsoleAPICalled:
		if e.Type == "error" || e.Type == "warning" {
			p.complaint(fmt.Sprintf("console: %s %v", e.Type, e.Args))
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == "error" {
			p.complaint("log: " + e.Entry.Text + " " + e.Entry.URL)
		}
	case *network.EventRequestWillBeSent:
		if url := e.Request.URL; !strings.HasPrefix(url, base) && !strings.HasPrefix(url, "data:") && url != "about:blank" {
			p.complaint("request to " + url)
		}
	}
}

// Do performs actions, one after the other.
func (p *Page) Do(steps ...chromedp.Action[chromedp.Void]) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, Limit)
	defer cancel()
	need.OK(p.TB, chromedp.Do(ctx, steps...))
}

// Ask runs an action that has a result.
func Ask[T any](p *Page, action chromedp.Action[T]) T {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, Limit)
	defer cancel()
	return need.Got(chromedp.Run(ctx, action))(p.TB)
}

// Evaluate runs a script in the page, and waits for its promise.
func Evaluate[T any](p *Page, script string) T {
	p.Helper()
	return Ask(p, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
}

// Violations returns what axe finds in the page.
func (p *Page) Violations() []string {
	p.Helper()
	found := Evaluate[string](p, p.axe+`;axe.run(document, {resultTypes: ["violations"]}).then((r) => JSON.stringify(r.violations.map((v) => v.id + ": " + v.help + " at " + v.nodes.slice(0, 3).map((n) => n.html.slice(0, 120)).join(" | "))))`)
	var all []string
	need.OK(p.TB, json.Unmarshal([]byte(found), &all))
	return all
}

// Judge reports what is wrong with the open page, under its path: what axe finds, what is wider than the window, and
// complaints. It saves a picture to the folder keep, unless that is empty.
func (p *Page) Judge(path string, l Look, keep string) {
	p.Helper()
	for _, v := range p.Violations() {
		p.Errorf("%s, %s, %d wide: %s", path, l.Theme, l.Width, v)
	}
	wide := Evaluate[int64](p, `document.documentElement.scrollWidth`)
	expect.That(p.TB, wide <= l.Width, "%s: at a width of %d the page is %d wide", path, l.Width, wide)
	for _, complaint := range p.Complaints() {
		p.Errorf("%s: %s", path, complaint)
	}
	if keep == "" {
		return
	}
	picture := Ask(p, chromedp.FullScreenshot(100))
	name := strings.Trim(strings.NewReplacer("/", "_", "?", "_", "=", "_", "&", "_", ":", "_", "%3A", "_").Replace(path), "_")
	if name == "" {
		name = "overview"
	}
	need.OK(p.TB, os.MkdirAll(keep, 0o755))
	need.OK(p.TB, os.WriteFile(filepath.Join(keep, fmt.Sprintf("%s-%s-%d.png", name, l.Theme, l.Width)), picture, 0o644))
}

// TabTo presses Tab until the focus is on what a selector names.
func (p *Page) TabTo(selector string) {
	p.Helper()
	for range 100 {
		p.Do(chromedp.KeyEvent(kb.Tab))
		if Evaluate[bool](p, fmt.Sprintf(`document.activeElement.matches(%q)`, selector)) {
			return
		}
	}
	p.Fatalf("100 times Tab do not lead to %s", selector)
}

// Slash presses the key as a person does: a page that keeps the key for itself gets no character. (chromedp.KeyEvent
// sends the character in any case.)
func (p *Page) Slash() {
	p.Helper()
	down := input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: "/", Code: "Slash", Text: "/"}
	up := input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyUp, Key: "/", Code: "Slash"}
	p.Do(Command(input.DispatchKeyEvent, down), Command(input.DispatchKeyEvent, up))
}
