// Package chromium opens pages in a headless Chromium: for the tests of the dashboard, and for the pictures in
// documents. The tests say what a page must be like.
package chromium

import (
	"context"
	"os/exec"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/seed-20419f34/rollcall/internal/need"
)

// Open starts a browser with one page, for at most ten minutes, and returns the context of the page. The browser ends
// with the test, which is skipped if Chromium is missing.
func Open(t testing.TB) context.Context {
	t.Helper()
	_, missing := exec.LookPath("chromium")
	need.Present(t, missing == nil, "chromium is missing; get it with: apt-get install chromium")
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath("chromium"), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.UserDataDir(t.TempDir()))
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	allocator, endAll := chromedp.NewExecAllocator(ctx, options...)
	page, end := chromedp.NewContext(allocator)
	t.Cleanup(func() {
		_ = chromedp.Cancel(page) // waits for its end
		end()
		endAll()
		cancel()
	})
	return page
}

// Command is a command of the browser's protocol.
func Command[P, R any](c cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, c, params)
		return err
	})
}

// Look is how a page is displayed.
type Look struct {
	Theme  string // light or dark
	Width  int64  // pixels
	Height int64  // pixels
}

// As displays the page with a look.
func As(l Look) chromedp.Action[chromedp.Void] {
	return chromedp.Steps(chromedp.EmulateViewport(l.Width, l.Height),
		Command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: l.Theme}}}))
}
