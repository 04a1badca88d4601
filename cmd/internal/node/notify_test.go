package node

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/cmd/internal/logging"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/localcluster"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// manager is the socket of a service manager, which wants a sign of life every 600 ms.
type manager struct {
	t *testing.T
	*net.UnixConn
}

func newManager(t *testing.T) manager {
	t.Helper()
	dir := need.Got(os.MkdirTemp("", "notify"))(t) // of a short name, as sockets have
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	conn := need.Got(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"}))(t)
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "600000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	return manager{t, conn}
}

// next is the next message; "" after a time without one.
func (m manager) next(within time.Duration) string {
	m.t.Helper()
	need.OK(m.t, m.SetReadDeadline(time.Now().Add(within)))
	b := make([]byte, 4096)
	count, err := m.Read(b)
	if os.IsTimeout(err) {
		return ""
	}
	need.OK(m.t, err)
	return string(b[:count])
}

const sign = "WATCHDOG=1"

// until returns the messages up to the first one with a text, but not the signs of life unless one is what is waited for.
func (m manager) until(text string) (messages []string) {
	m.t.Helper()
	for {
		message := m.next(30 * time.Second)
		need.That(m.t, message != "", "no message with %q came after %q", text, messages)
		if message != sign || text == sign {
			messages = append(messages, message)
		}
		if strings.Contains(message, text) {
			return messages
		}
	}
}

func managed(t *testing.T, mode string) *config.Config {
	t.Helper()
	c := oneNode(t)
	c.Mode, c.HTTP.Addr = mode, localcluster.Address(need.Got(localcluster.ClaimPorts(1))(t)[0])
	if mode == config.AP {
		c.HTTPD.Reads = "stale"
	}
	need.OK(t, c.Validate())
	return c
}

func TestServiceManagerHearsOfReadinessReloadsAndTheEnd(t *testing.T) {
	for _, mode := range config.Modes {
		t.Run(mode, func(t *testing.T) {
			m, c := newManager(t), managed(t, mode)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			level, hangups := logging.NewLevel("info"), make(chan os.Signal)
			go func() {
				ended <- Run(ctx, Options{Config: c, Hangups: hangups, Load: func() (config.Loaded, error) { return config.Loaded{Config: c}, nil },
					Version: "test", Log: quiet, Level: level, Metrics: logging.NewQueue(os.Stderr).Dropped})
			}()
			for _, message := range m.until("READY=1") {
				expect.That(t, strings.HasPrefix(message, "STATUS=") || strings.HasPrefix(message, "READY=1\nSTATUS=ready"), "before it was ready came %q", message)
			}
			expect.Equal(t, status("http://"+c.HTTP.Addr+"/readyz"), http.StatusOK, "after READY /readyz is")
			m.until(sign)

			hangups <- syscall.SIGHUP
			reload := m.until("READY=1")
			expect.That(t, len(reload) == 2 && strings.HasPrefix(reload[0], "RELOADING=1\nMONOTONIC_USEC=") && reload[1] == "READY=1", "a reload is %q", reload)

			cancel()
			expect.OKf(t, <-ended, "run")
			expect.Slice(t, m.until("STOPPING=1"), []string{"STOPPING=1\nEXTEND_TIMEOUT_USEC=19000000\nSTATUS=not ready: the node is shutting down"}, "at the end")
			for {
				message := m.next(10 * time.Millisecond)
				if message == "" {
					break
				}
				expect.Equal(t, message, sign, "after the end came")
			}
		})
	}
}

func TestServiceManagerHearsNoReadyOfANodeThatWaitsForOthers(t *testing.T) {
	m, c := newManager(t), managed(t, config.CP)
	c.Store.BootstrapExpect, c.Store.Join = 2, []string{localcluster.Address(need.Got(localcluster.ClaimPorts(1))(t)[0])}
	n := need.Got(open(Options{Config: c, Version: "test", Log: quiet, Level: logging.NewLevel("info")}))(t)
	stop := started(t, n)
	before := append(m.until("STATUS=not ready: "), m.until(sign)...)
	for range 5 {
		before = append(before, m.until(sign)...)
	}
	expect.That(t, !strings.Contains(strings.Join(before, "\n"), "READY="), "before it was ready came %q", before)
	expect.OKf(t, stop(), "run")
}

// A disk whose writes take 3 s hangs for the service manager, and for the node not yet.
func TestServiceManagerHearsNoSignOfLifeWhileTheStoreHangs(t *testing.T) {
	for _, mode := range config.Modes {
		t.Run(mode, func(t *testing.T) {
			m, c := newManager(t), managed(t, mode)
			n := need.Got(open(Options{Config: c, Version: "test", Log: quiet, Level: logging.NewLevel("info")}))(t)
			stop := started(t, n)
			m.until("READY=1")
			m.until(sign)
			slow := *c
			slow.Store.Test.SyncDelay = 3 * time.Second
			n.apply(&slow)
			written := make(chan error, 1)
			go func() {
				resp, err := http.Post("http://"+c.HTTP.Addr+"/eureka/apps/A", "application/json", strings.NewReader(`{"instance":{"instanceId":"a","app":"A","hostName":"h",
					"ipAddr":"10.0.0.1","status":"UP","dataCenterInfo":{"@class":"com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo","name":"MyOwn"}}}`))
				if err == nil {
					resp.Body.Close()
				}
				written <- err
			}()
			await(t, "signs of life end while the store hangs", func() bool { return m.next(1500*time.Millisecond) == "" })
			n.apply(c)
			m.until(sign)
			expect.OKf(t, <-written, "register")
			expect.OKf(t, stop(), "run")
		})
	}
}

func TestNodeWithoutAServiceManagerTellsNothing(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	n := notifier{log: quiet} // a look at the node, or a sign of life, would panic
	n.run(t.Context())
}
