package rollcall_test

import (
	"cmp"
	"html"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/seed-20419f34/rollcall/internal/chromium"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// site is what `make site` built, since the last change of a page or of the site's own files.
func site(t *testing.T) fs.FS {
	t.Helper()
	stamp, err := os.Stat("data/site/.stamp")
	need.Present(t, err == nil, "the site is not built; build it with: make site")
	for _, dir := range []string{"docs", "site"} {
		need.OK(t, filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
			if err != nil || entry.Name() == "node_modules" {
				return cmp.Or(err, filepath.SkipDir)
			}
			info, err := entry.Info()
			need.That(t, err != nil || !info.ModTime().After(stamp.ModTime()), "%s is newer than the site; run make site", file)
			return err
		}))
	}
	return os.DirFS("data/site")
}

var (
	pageID   = regexp.MustCompile(`\bid="([^"]+)"`)
	pageLink = regexp.MustCompile(`\b(?:href|src)="([^"]+)"`)
)

// TestLinksOfTheSiteLeadSomewhere follows every link from a page of the site to another, and to its headings.
func TestLinksOfTheSiteLeadSomewhere(t *testing.T) {
	built := site(t)
	ids := map[string]map[string]bool{} // by page
	links := map[string][]string{}
	need.OK(t, fs.WalkDir(built, ".", func(file string, _ fs.DirEntry, err error) error {
		if err != nil || path.Ext(file) != ".html" {
			return err
		}
		text, err := fs.ReadFile(built, file)
		ids[file] = map[string]bool{}
		for _, m := range pageID.FindAllSubmatch(text, -1) {
			ids[file][html.UnescapeString(string(m[1]))] = true
		}
		for _, m := range pageLink.FindAllSubmatch(text, -1) {
			links[file] = append(links[file], html.UnescapeString(string(m[1])))
		}
		return err
	}))
	followed := 0
	for file, all := range links {
		for _, link := range all {
			u := need.Got(url.Parse(link))(t)
			if u.Scheme != "" {
				continue
			}
			followed++
			to := strings.TrimPrefix(need.Got(url.Parse("/"+file))(t).ResolveReference(u).Path, "/")
			if to == "" || strings.HasSuffix(to, "/") {
				to += "index.html"
			}
			_, err := fs.Stat(built, to)
			expect.That(t, err == nil, "%s links to %s, which is not there", file, link)
			expect.That(t, err != nil || u.Fragment == "" || ids[to][u.Fragment], "%s links to %s: no heading has this anchor", file, link)
		}
	}
	expect.That(t, followed >= len(links) && len(links) > 0, "the site has %d links on %d pages", followed, len(links))
}

// openSite serves the site on loopback until the test ends, and returns a page and a function that opens a page of the
// site.
func openSite(t *testing.T) (p *chromium.Page, open func(path string)) {
	t.Helper()
	server := httptest.NewServer(http.FileServerFS(site(t)))
	t.Cleanup(server.Close)
	p = chromium.OpenPage(t, ".", server.URL)
	return p, func(path string) {
		p.Do(chromedp.Navigate(server.URL + path))
		// A click before the script has started is lost.
		chromium.Evaluate[bool](p, `new Promise((then) => { const look = () => document.getElementById("app").__vue_app__ ? then(true) : setTimeout(look, 20); look() })`)
	}
}

// TestPagesOfTheSiteAreUsableInABrowser opens pages of each kind, light and dark, in a wide and a narrow window. With
// ROLLCALL_SCREENS it keeps pictures there.
func TestPagesOfTheSiteAreUsableInABrowser(t *testing.T) {
	p, open := openSite(t)
	for _, path := range []string{"/", "/start.html", "/run/dashboard.html", "/adr/"} {
		for k, l := range chromium.Looks {
			p.Do(chromium.As(l))
			if k == 0 {
				open(path)
			}
			p.Judge(path, l, os.Getenv("ROLLCALL_SCREENS"))
		}
	}
}

// TestSiteIsFollowedAndSearched follows the sidebar, in a wide and a narrow window, and searches by keyboard alone.
func TestSiteIsFollowedAndSearched(t *testing.T) {
	p, open := openSite(t)
	for _, l := range []chromium.Look{chromium.Looks[2], chromium.Looks[0]} {
		p.Do(chromium.As(l))
		open("/")
		if l.Width < 960 { // below this width the sidebar is behind a button
			p.Do(chromedp.Click(chromedp.CSS(".VPLocalNav .menu")), chromedp.WaitVisible(chromedp.CSS(".VPSidebar.open")))
			// A click while it slides in is lost.
			chromium.Evaluate[bool](p, `new Promise((then) => { const look = () => document.querySelector(".VPSidebar").getBoundingClientRect().left >= 0 ? then(true) : setTimeout(look, 20); look() })`)
		}
		p.Do(chromedp.Click(chromedp.CSS(`.VPSidebar a[href="/run/three-machines.html"]`)), chromedp.WaitReady(chromedp.CSS("#three-machines")))
	}
	open("/")
	p.Slash()
	p.Do(chromedp.WaitVisible(chromedp.CSS("#localsearch-input")), chromedp.KeyEvent("linearizable reads"), chromedp.WaitVisible(chromedp.CSS("#localsearch-list .result.selected")))
	p.Do(chromedp.KeyEvent(kb.Enter), chromedp.WaitNotPresent(chromedp.CSS("#localsearch-input")))
	main := strings.ToLower(chromium.Ask(p, chromedp.Text(chromedp.CSS("main"))))
	where := chromium.Evaluate[string](p, "location.pathname")
	expect.That(t, where != "/" && strings.Contains(main, "linearizable"), "the search leads to %s", where)
	expect.Slice(t, p.Complaints(), nil, "the browser complains:")
}
