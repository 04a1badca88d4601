package integration

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/need"
)

// BenchmarkFewRenewals renews 5,000 instances every 30 s at the three nodes of clusters that take turns: one whose leader lets
// renewals wait for each other, and one whose leader does not, or which ROLLCALL_BASELINE_BIN runs. It reports what one renewal
// costs each node on the disk, and all of them in CPU time above an idle cluster, and their latency.
func BenchmarkFewRenewals(b *testing.B) {
	const window = 15 * time.Second
	clusters := map[string]*renewed{"wait": startRenewed(b, "100ms", ""), "none": startRenewed(b, "0s", os.Getenv("ROLLCALL_BASELINE_BIN"))}
	figures := make(map[string][]float64)
	for b.Loop() {
		for name, c := range clusters {
			idle := c.turn(b, window, false)
			busy := c.turn(b, window, true)
			need.That(b, !b.Failed(), "not every renewal was answered")
			per := float64(busy.renewals)
			figures[name+"-B/renewal/node"] = append(figures[name+"-B/renewal/node"], float64(busy.written-idle.written)/per/float64(len(c.Nodes)))
			figures[name+"-µs/renewal"] = append(figures[name+"-µs/renewal"], (busy.cpu-idle.cpu).Seconds()*1e6/per)
			figures[name+"-ms"] = append(figures[name+"-ms"], busy.latency.Seconds()*1e3/per)
			b.Logf("%s: %d renewals, %d bytes (idle %d), CPU %v (idle %v), latency %v", name, busy.renewals, busy.written, idle.written, busy.cpu, idle.cpu, busy.latency/time.Duration(busy.renewals))
		}
	}
	for name, all := range figures {
		slices.Sort(all)
		b.ReportMetric(all[len(all)/2], name)
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkManyRenewals compares, by clusters that take turns, the rate of renewals in a closed loop where renewals wait for each
// other while few come with the rate where they never do. It reports the median of the ratios.
func BenchmarkManyRenewals(b *testing.B) {
	with := func(wait string) *beaten {
		cfg := withSteadyLeader(Config{})
		cfg.Settings["commit.renewal-wait"] = wait
		return start(b, cfg, &beaten{})
	}
	wait, none := with("100ms"), with("0s")
	var ratios []float64
	for b.Loop() {
		before, _ := none.turn(b)
		wait.turn(b) // at the beginning of which few come
		rate, _ := wait.turn(b)
		after, _ := none.turn(b)
		other := (before + after) / 2
		b.Logf("%.0f/s, %.0f/s without the wait (%.3f)", rate, other, rate/other)
		ratios = append(ratios, rate/other)
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "wait/none")
	b.ReportMetric(0, "ns/op")
}

const (
	renewedInstances = 5000
	renewedConns     = 500 // of each connection one renewal in 3 s
	renewedEvery     = 30 * time.Second
)

// renewed is a cluster with instances that are renewed.
type renewed struct{ *Cluster }

func startRenewed(b *testing.B, wait, program string) *renewed {
	cfg := withSteadyLeader(Config{})
	cfg.Settings["test.commit-timeout"] = "5ms"
	if program == "" {
		cfg.Settings["commit.renewal-wait"] = wait
	}
	c := NewCluster(b, cfg)
	for _, n := range c.Nodes {
		n.runs = program
	}
	c.Start()
	var registering sync.WaitGroup
	const workers = 8
	for w := range workers {
		registering.Go(func() {
			for i := w; i < renewedInstances; i += workers {
				err := untilTaken(func() error {
					r := c.Nodes[0].Register(Instance{App: "ORDERS", ID: "i" + strconv.Itoa(i), Duration: 3600})
					return unless(r.Status == http.StatusNoContent, "register: %v", r)
				})
				if err != nil {
					b.Error(err)
				}
			}
		})
	}
	registering.Wait()
	return &renewed{c}
}

// used is what the nodes of a cluster have used in a turn.
type used struct {
	renewals int64
	latency  time.Duration // of all together
	written  int64         // bytes
	cpu      time.Duration
}

// turn lets a while pass, with renewals or without.
func (c *renewed) turn(b *testing.B, d time.Duration, renew bool) (u used) {
	written, cpu := c.written(b), c.cpu(b)
	if renew {
		u = c.renew(b, d)
	} else {
		Pass(b, d)
	}
	u.written, u.cpu = c.written(b)-written, c.cpu(b)-cpu
	return u
}

func (c *renewed) renew(b *testing.B, d time.Duration) used {
	ctx, cancel := context.WithTimeout(b.Context(), d)
	defer cancel()
	var renewals, latency atomic.Int64
	var clients sync.WaitGroup
	for i := range renewedConns {
		clients.Go(func() {
			const each = renewedEvery * renewedConns / renewedInstances
			if !pause(ctx, each*time.Duration(i)/renewedConns) {
				return
			}
			conn, err := net.Dial("tcp", c.Nodes[i%len(c.Nodes)].HTTP)
			if err != nil {
				b.Error(err)
				return
			}
			defer conn.Close()
			in := bufio.NewReader(conn)
			next := time.Now()
			for n := i; ; n = (n + renewedConns) % renewedInstances {
				began := time.Now()
				switch err := renewOver(conn, in, n); {
				case errors.Is(err, errNotRenewed):
					b.Log(err) // the disk of a busy machine may stand still for a second
				case err != nil:
					b.Error(err)
					return
				default:
					renewals.Add(1)
					latency.Add(int64(time.Since(began)))
				}
				next = next.Add(each)
				if !pause(ctx, time.Until(next)) {
					return
				}
			}
		})
	}
	clients.Wait()
	return used{renewals: renewals.Load(), latency: time.Duration(latency.Load())}
}

func renewOver(conn net.Conn, in *bufio.Reader, instance int) error {
	if _, err := fmt.Fprintf(conn, "PUT /eureka/apps/ORDERS/i%d HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", instance); err != nil {
		return err
	}
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err = io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%w: i%d: %s", errNotRenewed, instance, resp.Status)
	}
	return nil
}

var errNotRenewed = errors.New("not renewed")

// written is how many bytes the nodes have sent to the disk.
func (c *renewed) written(b *testing.B) (all int64) {
	for _, n := range c.Nodes {
		io := string(need.Got(os.ReadFile(fmt.Sprintf("/proc/%d/io", n.Pid())))(b))
		for line := range strings.Lines(io) {
			if text, found := strings.CutPrefix(line, "write_bytes: "); found {
				all += need.Got(strconv.ParseInt(strings.TrimSpace(text), 10, 64))(b)
			}
		}
	}
	return all
}
