package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/localcluster"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// output is what a process prints.
type output struct {
	mu     sync.Mutex // guards what follows
	buffer bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buffer.Write(p)
}

func (o *output) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buffer.String()
}

// eventually waits for a minute at most until something holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(50 * time.Millisecond) {
		need.That(t, time.Now().Before(deadline), "%s: not within a minute", what)
	}
}

func get(url string) string {
	resp, err := http.Get(url)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return string(b)
}

// startDev runs dev with the tests' own program until the end of the test, and waits until it is ready.
func startDev(t *testing.T, args ...string) (said *output) {
	t.Helper()
	said = new(output)
	dev := exec.Command(os.Args[0], append([]string{"dev"}, args...)...)
	dev.Stdout, dev.Stderr = said, said
	need.OK(t, dev.Start())
	t.Cleanup(func() {
		dev.Process.Signal(syscall.SIGTERM)
		dev.Wait()
	})
	eventually(t, "dev is ready", func() bool { return strings.HasSuffix(said.text(), "\nready\n") })
	return said
}

// TestDevNodeThatWasKilledComesBackByTheCommandThatDevPrints runs the demo meanwhile, which goes on.
func TestDevNodeThatWasKilledComesBackByTheCommandThatDevPrints(t *testing.T) {
	for _, mode := range config.Modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			port := need.Got(localcluster.ClaimPort(1, 2, -1000, -999, -998))(t)
			said := startDev(t, "--demo", "--mode", mode, "--http-port", strconv.Itoa(port), "--data", filepath.Join(t.TempDir(), "data"))
			url := func(i int) string { return "http://" + localcluster.Address(port+i) }
			up := func(i int, renewedAfter time.Time) (instances int) {
				var list []api.Instance
				_ = json.Unmarshal([]byte(get(url(i)+"/v1/rollcall/apps")), &list)
				for _, instance := range list {
					if instance.Status == "UP" && instance.LastRenewal > renewedAfter.UnixMilli() {
						instances++
					}
				}
				return instances
			}
			eventually(t, "the samples are registered", func() bool { return up(1, time.Time{}) > 25 })

			_, rest, _ := strings.Cut(said.text(), "pid=")
			pid, _, _ := strings.Cut(rest, "\n")
			need.OK(t, syscall.Kill(need.Got(strconv.Atoi(pid))(t), syscall.SIGKILL))
			const mark = "\nto start it again, in another terminal: "
			eventually(t, "dev says how the node comes back", func() bool { return strings.Contains(said.text(), mark) })
			killed := time.Now()
			eventually(t, "the samples are renewed after a node was killed", func() bool { return up(1, killed) > 25 })

			_, command, _ := strings.Cut(said.text(), mark)
			words := strings.Fields(command)
			again := exec.Command(words[0], words[1:4]...)
			need.OK(t, again.Start())
			t.Cleanup(func() {
				again.Process.Signal(syscall.SIGTERM)
				again.Wait()
			})
			eventually(t, "the node is back, with what the others have", func() bool { return get(url(0)+"/readyz") == "ready\n" && up(0, killed) > 25 })
		})
	}
}

func TestDemoHasSomethingToShow(t *testing.T) {
	for _, mode := range config.Modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			ports := need.Got(localcluster.ClaimPorts(2))(t)
			n := &localcluster.Node{Name: "n1", Datacenter: "dc1", Mode: mode, HTTP: localcluster.Address(ports[0]), Cluster: localcluster.Address(ports[1])}
			n.PutBelow(t.TempDir())
			need.OK(t, n.Start(os.Args[0]))
			t.Cleanup(n.Stop)
			need.OK(t, localcluster.AwaitReady(t.Context(), []*localcluster.Node{n}))
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- runDemo(ctx, []*localcluster.Node{n}, 2500*time.Millisecond) }()

			seen := map[string]bool{}
			cl := need.Got(client.New(client.Config{Servers: []string{n.URL()}}))(t)
			watched, enough := context.WithTimeout(ctx, time.Minute)
			want := []string{"DOWN", "DELETED canceled", "DELETED evicted"}
			need.OK(t, cl.Watch(watched, client.WatchConfig{}, func(event client.WatchEvent) error {
				if e, ok := event.(client.WatchChange); ok {
					seen[e.Action+" "+e.Why], seen[e.Status] = true, true
				}
				for _, w := range want {
					if !seen[w] {
						return nil
					}
				}
				enough()
				return nil
			}))
			expect.That(t, seen[want[0]] && seen[want[1]] && seen[want[2]], "seen are %v, want %v", seen, want)
			// One application has a single instance, which is not listed while it is in trouble.
			eventually(t, "a dozen applications are listed", func() bool { return len(need.Got(cl.Apps(ctx))(t)) >= 12 })
			if mode == config.CP {
				for _, path := range []string{"/v1/rollcall/locks", "/v1/session/list", "/v1/kv/?keys", "/v1/health/state/any"} {
					eventually(t, path+" has something", func() bool {
						var list []any
						return json.Unmarshal([]byte(get(n.URL()+path)), &list) == nil && len(list) > 1
					})
				}
			}
			cancel()
			expect.OKf(t, <-ended, "the demo")
		})
	}
}
