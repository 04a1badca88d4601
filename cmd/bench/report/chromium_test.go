package report

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/need"
)

// TestPageDrawsEverythingInChromium opens the page in a browser that can resolve no name.
func TestPageDrawsEverythingInChromium(t *testing.T) {
	chromium := findChromium(t)
	dir := t.TempDir()
	r := &Report{Comparison: judgedSample().Comparison, Verdicts: judgedSample().Verdicts}
	need.OK(t, r.Write(dir))
	// A plot for the one at the top, one for each scenario, five ways, two removals, two backlogs.
	want := map[string]string{"charts": "13", "errors": "0"}
	for _, theme := range []string{"light", "dark"} {
		t.Run(theme, func(t *testing.T) {
			dom, log, requested := open(t, chromium, filepath.Join(dir, HTMLFile)+"?theme="+theme)
			for name, value := range want {
				if !strings.Contains(dom, `data-`+name+`="`+value+`"`) {
					t.Errorf("the page does not say data-%s=%q: %s", name, value, regexp.MustCompile(`<html[^>]*>`).FindString(dom))
				}
			}
			for _, line := range regexp.MustCompile(`.*CONSOLE.*`).FindAllString(log, -1) {
				t.Errorf("on the console: %s", line)
			}
			for _, request := range requested {
				t.Errorf("the page asked for %s", request)
			}
		})
	}
}

func findChromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	const how = "chromium is not on the PATH; get it with: apt-get install chromium"
	if os.Getenv("ROLLCALL_TEST_ALL") == "1" {
		t.Fatal(how)
	}
	t.Skip(how)
	return ""
}

// open returns the document as it is after the scripts ran, and what the page wrote to the console and asked the
// network for.
func open(t *testing.T, chromium, path string) (dom, log string, requested []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	netLog := filepath.Join(t.TempDir(), "net.json")
	cmd := exec.CommandContext(ctx, chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--user-data-dir="+t.TempDir(), "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=5000", "--enable-logging=stderr",
		"--log-net-log="+netLog, "--dump-dom", "file://"+path)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	requests := need.Got(os.ReadFile(netLog))(t)
	// What the browser asks for itself, such as updates, comes from no page and has no origin.
	for _, request := range regexp.MustCompile(`"initiator":"([^"]*)".*?"url":"([^"]*)"`).FindAllStringSubmatch(string(requests), -1) {
		if request[1] != "not an origin" {
			requested = append(requested, request[2])
		}
	}
	return stdout.String(), stderr.String(), requested
}
