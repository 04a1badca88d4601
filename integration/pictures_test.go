package integration

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"html"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/seed-20419f34/rollcall/internal/chromium"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// sampleServices are the applications of a small shop, with the number of their instances, which are spread over three zones.
var sampleServices = map[string]int{"CATALOG": 6, "CHECKOUT": 3, "MAIL": 1, "ORDERS": 6, "PAYMENTS": 3, "SEARCH": 9}

const (
	sampleLease = 30              // seconds
	sampleEvery = 2 * time.Second // between the renewals of an instance
)

// zones are those of the three nodes, and of the instances.
var zones = []string{"a", "b", "c"}

// fleet are the sample's instances.
type fleet struct {
	instances []Instance
}

// newFleet lays out the instances of the sample: the k-th one of an application is in the k-th zone. MAIL's only one is DOWN.
func newFleet() (f fleet) {
	for _, app := range slices.Sorted(maps.Keys(sampleServices)) {
		for k := range sampleServices[app] {
			name := fmt.Sprintf("%s-%d", strings.ToLower(app), k+1)
			i := Instance{App: app, ID: name, Host: name + ".shop.example", Port: 8080, Duration: sampleLease,
				Metadata: map[string]string{"zone": zones[k%len(zones)], "version": "1.4.2"}}
			if app == "MAIL" {
				i.Status = "DOWN"
			}
			f.instances = append(f.instances, i)
		}
	}
	return f
}

// in are the instances of some zones.
func (f fleet) in(zones ...string) fleet {
	return fleet{slices.DeleteFunc(slices.Clone(f.instances), func(i Instance) bool { return !slices.Contains(zones, i.Metadata["zone"]) })}
}

// renewUntil renews all instances through a node until ready returns nil.
func (f fleet) renewUntil(t *testing.T, n *Node, what string, ready func() error) {
	t.Helper()
	var err error
	for began := time.Now(); time.Since(began) < 2*ReadyLimit; Pass(t, sampleEvery) {
		for _, i := range f.instances {
			n.Renew(i.App, i.ID) // one that is refused is sent again in two seconds
		}
		if err = ready(); err == nil {
			return
		}
	}
	need.OKf(t, err, "%s", what)
}

// TestPicturesOfDocuments makes the pictures that README and docs/run/dashboard.md show, where ROLLCALL_PICTURES names their directory
// (make pictures): a shop's services are registered at three nodes; then a zone fails, with its node and its instances.
func TestPicturesOfDocuments(t *testing.T) {
	dir := os.Getenv("ROLLCALL_PICTURES")
	if dir == "" {
		t.Skip("pictures are made by: make pictures")
	}
	page := chromium.Open(t)
	c := StartCluster(t, Config{Of: func(name string) map[string]string {
		return map[string]string{"node.zone": zones[int(name[1]-'1')]}
	}})
	leader := c.Leader()
	lost := c.Others(leader)[1] // not the first node, in whose zone MAIL is
	zone := zones[slices.Index(c.Nodes, lost)]
	all := newFleet()
	for _, i := range all.instances {
		mustRegister(t, leader, i)
	}
	began := time.Now()
	all.renewUntil(t, leader, "a minute of ordinary life", func() error {
		return unless(time.Since(began) > time.Minute, "it lasts %v", time.Since(began))
	})
	kept := all.in(slices.DeleteFunc(slices.Clone(zones), func(z string) bool { return z == zone })...)
	need.That(t, leader.OverrideFor("SEARCH", kept.named("SEARCH"), "OUT_OF_SERVICE", time.Hour, "ann", "kernel update").Status == 200, "the override is refused")
	lost.Kill()
	kept.renewUntil(t, leader, "the overview shows the trouble", func() error {
		state, err := leader.Preservation()
		overdue := strings.Contains(string(leader.Get("/").Body), "leases are overdue") // the figures are ten seconds old at most
		return unless(err == nil && overdue && int(state.Withheld) >= len(all.instances)-len(kept.instances), "it says %s; %v", leader.line(), err)
	})
	wide := chromium.Look{Theme: "light", Width: 1280, Height: 880}
	keepPicture(t, page, filepath.Join(dir, "overview.png"), leader.URL()+"/", wide)
	wide.Theme, wide.Height = "dark", 924 // to the end of the metadata
	keepPicture(t, page, filepath.Join(dir, "instance.png"), leader.URL()+"/ui/apps/ORDERS/"+all.in(zone).named("ORDERS"), wide)
	report := need.Got(filepath.Abs("../docs/benchmarks/report.html"))(t)
	wide.Theme, wide.Height = "light", 880
	keepPicture(t, page, filepath.Join(dir, "report.png"), "file://"+report, wide)
}

// named is the id of the fleet's first instance of an application.
func (f fleet) named(app string) string {
	return f.instances[slices.IndexFunc(f.instances, func(i Instance) bool { return i.App == app })].ID
}

// keepPicture writes what a window shows of a page.
func keepPicture(t *testing.T, page context.Context, file, url string, l chromium.Look) {
	t.Helper()
	need.OK(t, chromedp.Do(page, chromium.As(l), chromedp.Navigate(url), chromedp.WaitReady(chromedp.CSS("main"))))
	picture := need.Got(png.Decode(bytes.NewReader(need.Got(chromedp.Run(page, chromedp.CaptureScreenshot()))(t))))(t)
	var small bytes.Buffer
	need.OK(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&small, paletted(picture)))
	need.That(t, small.Len() < largestPicture, "%s has %d bytes", file, small.Len())
	need.OK(t, os.MkdirAll(filepath.Dir(file), 0o755))
	need.OK(t, os.WriteFile(file, small.Bytes(), 0o644))
}

// largestPicture is how many bytes a picture may have: it stays in the history of the repository for good.
const largestPicture = 150_000

// paletted is a picture in its 256 most frequent colours. Pages have few, but for the edges of letters.
func paletted(p image.Image) *image.Paletted {
	counts := map[color.Color]int{}
	b := p.Bounds()
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			counts[p.At(x, y)]++
		}
	}
	// In one order, so that the same picture is the same file.
	palette := slices.SortedFunc(maps.Keys(counts), func(a, b color.Color) int {
		return cmp.Or(counts[b]-counts[a], strings.Compare(fmt.Sprint(a), fmt.Sprint(b)))
	})
	small := image.NewPaletted(b, palette[:min(len(palette), 256)])
	nearest := map[color.Color]uint8{}
	for c := range counts {
		nearest[c] = uint8(small.Palette.Index(c))
	}
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			small.SetColorIndex(x, y, nearest[p.At(x, y)])
		}
	}
	return small
}

// line is the line of state that a node's dashboard shows.
func (n *Node) line() string {
	page := string(n.Get("/ui/nodes").Body)
	found := regexp.MustCompile(`(?s)<div id="truth"[^>]*>(.*?)</div>`).FindStringSubmatch(page)
	if found == nil {
		return ""
	}
	return html.UnescapeString(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(found[1], " "))
}
