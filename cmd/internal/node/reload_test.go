package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/cmd/internal/logging"
	"github.com/seed-20419f34/rollcall/httpd"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestReloadAppliesWhatCanChangeAndNothingElse(t *testing.T) {
	before := *config.Default()
	limited, slow := before, before
	slow.Store.Test.SyncDelay = time.Second
	limited.HTTPD.RateLimit = httpd.RateLimit{Enabled: true, BurstSize: 1, FetchRate: 2, FullFetchRate: 3, ThrottleStandard: true, Privileged: []string{"a"}}
	other := before
	other.LogFormat, other.Store.EvictionInterval = "json", 7
	for _, tc := range []struct {
		name string
		load func() (config.Loaded, error)
		want []config.Config // as applied
		says []string
	}{
		{name: "the limiter", load: func() (config.Loaded, error) { return config.Loaded{Config: &limited}, nil },
			want: []config.Config{limited},
			says: []string{"level=INFO", "rate-limiter.burst-size"}},
		{name: "the delay of syncs", load: func() (config.Loaded, error) { return config.Loaded{Config: &slow}, nil },
			want: []config.Config{slow},
			says: []string{"level=INFO", "changed=[test.sync-delay]"}},
		{name: "something else", load: func() (config.Loaded, error) { return config.Loaded{Config: &other}, nil },
			want: []config.Config{before},
			says: []string{"level=WARN", "need a restart", "[eviction.interval log.format]"}},
		{name: "a mistake", load: func() (config.Loaded, error) { return config.Loaded{Config: &limited}, errors.New("c.yaml:1: no") },
			says: []string{"level=ERROR", "the old ones hold", "c.yaml:1: no"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var said bytes.Buffer
			var applied []config.Config
			r := reloader{load: tc.load, reread: func() []string { return nil }, apply: func(c *config.Config) { applied = append(applied, *c) }, running: before, log: slog.New(slog.NewTextHandler(&said, nil))}
			r.reload()
			expect.Deep(t, applied, tc.want, "applied")
			for _, want := range tc.says {
				expect.That(t, strings.Contains(said.String(), want), "it says %q, want %q in it", &said, want)
			}
		})
	}
}

func TestReloadComparesWithTheOneBefore(t *testing.T) {
	c := *config.Default()
	c.HTTPD.RateLimit.BurstSize = 5
	var said bytes.Buffer
	r := reloader{load: func() (config.Loaded, error) { return config.Loaded{Config: &c}, nil }, reread: func() []string { return nil }, apply: func(*config.Config) {}, running: *config.Default(), log: slog.New(slog.NewTextHandler(&said, nil))}
	r.reload()
	said.Reset()
	r.reload()
	expect.That(t, strings.Contains(said.String(), "changed=[]"), "a second reload says %q, want that nothing has changed", &said)
}

func TestReloadFollowsASignal(t *testing.T) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	reloaded := make(chan bool)
	r := reloader{load: func() (config.Loaded, error) { close(reloaded); return config.Loaded{}, errors.New("stop here") }, log: quiet}
	go r.run(t.Context(), hup)
	need.OK(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
	<-reloaded
}

// refuses says whether many fetches of the whole registry in a row are too many.
func refuses(url string) bool {
	for range 20 {
		if status(url+"/eureka/apps") == http.StatusServiceUnavailable {
			return true
		}
	}
	return false
}

func TestReloadTurnsTheRateLimiterOnAndOffWhileTheNodeRuns(t *testing.T) {
	c := oneNode(t)
	n := need.Got(open(Options{Config: c, Version: "test", Log: quiet, Level: logging.NewLevel("info")}))(t)
	file := filepath.Join(t.TempDir(), "rollcall.yaml")
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	config.AddFlags(flags)
	need.OK(t, flags.Parse([]string{"--config", file, "--data-dir", c.Store.DataDir}))
	r := reloader{load: func() (config.Loaded, error) { return config.Load(config.FromProcess(flags)) }, apply: n.apply, reread: n.reread, running: *c, log: quiet}
	hup := make(chan os.Signal)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.during(ctx, hup, n.run) }()
	url := "http://" + n.listeners[0].Addr().String()
	awaitReady(t, url)
	const few = "rate-limiter: {enabled: true, burst-size: 1, registry-fetch-average-rate: 1, full-fetch-average-rate: 1}"
	for _, step := range []struct {
		name, file string
		refuses    bool
	}{
		{name: "off", file: ""},
		{name: "on", file: few, refuses: true},
		{name: "a mistake changes nothing", file: "rate-limiter: {enabled: perhaps}", refuses: true},
		{name: "off again", file: "rate-limiter: {enabled: false}"},
	} {
		// The second reload of the step before may read now, and must not find half a file.
		next := file + ".next"
		need.OK(t, errors.Join(os.WriteFile(next, []byte(step.file), 0o600), os.Rename(next, file)))
		hup <- syscall.SIGHUP
		hup <- syscall.SIGHUP // accepted once the first one has taken effect
		expect.Equal(t, refuses(url), step.refuses, "%s: fetches are refused:", step.name)
	}
	cancel()
	expect.OK(t, <-ended)
}

func TestLogLevelIsChangedByARequestForAWhileAndBySIGHUP(t *testing.T) {
	level := logging.NewLevel("warn")
	c := oneNode(t)
	c.LogLevel = "warn"
	n := need.Got(open(Options{Config: c, Version: "test", Log: quiet, Level: level}))(t)
	stop := started(t, n)
	url := "http://" + n.listeners[0].Addr().String() + "/v1/rollcall/log-level"
	ask := func(method, query string) string {
		resp := need.Got(http.DefaultClient.Do(need.Got(http.NewRequest(method, url+query, nil))(t)))(t)
		defer resp.Body.Close()
		return fmt.Sprint(resp.StatusCode, " ", string(need.Got(io.ReadAll(resp.Body))(t)))
	}
	expect.Equal(t, ask("GET", ""), "200 {\"level\":\"warn\",\"configured\":\"warn\"}\n", "at first")
	for _, query := range []string{"", "?level=loud", "?level=debug&for=1ms", "?level=debug&for=25h"} {
		got := ask("PUT", query)
		expect.That(t, strings.HasPrefix(got, "400 "), "PUT %s: %s, want 400", query, got)
	}
	before := time.Now()
	got := ask("PUT", "?level=debug&for=1m")
	now, _, until := level.Show()
	expect.That(t, strings.HasPrefix(got, `200 {"level":"debug","configured":"warn","until":`) && now == "debug" && until.After(before.Add(50*time.Second)), "PUT: %s; the level is %s until %v", got, now, until)
	c.LogLevel = "error"
	n.apply(c)
	_, configured, _ := level.Show()
	expect.Equal(t, configured, "error", "configured after SIGHUP")
	expect.OK(t, stop())
}
