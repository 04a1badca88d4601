package integration

import (
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/need"
)

// beatConns is how many connections send heartbeats at the same time.
const beatConns = 256

// beatWindow is how long heartbeats count.
const beatWindow = 2 * time.Second

// beaten is a cluster that is sent heartbeats: over TLS, with a credential, or as they have always been.
type beaten struct {
	*Cluster
	target *Node       // that is sent all of them: the leader, where one leads
	trust  *tls.Config // nil: no TLS
	header string      // of each heartbeat, with its end of line
}

// BenchmarkHeartbeats compares heartbeats with Basic credentials, and over TLS, with anonymous ones over plain HTTP, by
// clusters of real processes that take turns; each iteration is one turn of each. Ratios are of one turn, and their median
// is reported: of the rate, for which clients and nodes share the machine, and of the CPU time of all the cluster's nodes.
func BenchmarkHeartbeats(b *testing.B) {
	b.Run("ap", func(b *testing.B) { benchmarkHeartbeats(b, Config{AP: true, Nodes: 1}) })
	b.Run("cp", func(b *testing.B) { benchmarkHeartbeats(b, Config{}) })
}

func benchmarkHeartbeats(b *testing.B, cfg Config) {
	secured := map[string]*beaten{"basic": startHolding(b, cfg), "tls": startOverTLS(b, cfg)}
	plain := start(b, cfg, &beaten{})
	ratios := make(map[string][]float64)
	for b.Loop() {
		rate, cost := plain.turn(b)
		for _, name := range slices.Sorted(maps.Keys(secured)) {
			r, c := secured[name].turn(b)
			ratios[name+"-rate"] = append(ratios[name+"-rate"], r/rate)
			ratios[name+"-cpu"] = append(ratios[name+"-cpu"], cost/c)
			b.Logf("%s: %.0f/s (%.3f), %.1f µs (%.3f); plain %.0f/s, %.1f µs", name, r, r/rate, c, cost/c, rate, cost)
		}
	}
	for name, all := range ratios {
		slices.Sort(all)
		b.ReportMetric(all[len(all)/2], name+"/plain")
	}
}

// startHolding starts a cluster that asks for tokens.
func startHolding(b *testing.B, cfg Config) *beaten {
	file := filepath.Join(b.TempDir(), "auth.yaml")
	token, line := newTokenFor(b, "orders", "service")
	writePrivate(b, file, "roles:\n  service: [\"app * read,register\", \"operator read\"]\ntokens:\n"+line)
	cfg.Settings = map[string]string{"auth.mode": "on", "auth.file": file}
	basic := base64.StdEncoding.EncodeToString([]byte("orders:" + token))
	return start(b, cfg, &beaten{header: "Authorization: Basic " + basic + "\r\n"}, token)
}

func startOverTLS(b *testing.B, cfg Config) *beaten {
	cfg.TLS = NewCertificates(b)
	cfg.Of = func(node string) map[string]string {
		settings := cfg.TLS.Settings(b, node)
		maps.DeleteFunc(settings, func(key, _ string) bool { return strings.HasPrefix(key, "cluster.") })
		return settings
	}
	return start(b, cfg, &beaten{trust: cfg.TLS.transport.TLSClientConfig.Clone()})
}

// start starts the cluster with an instance for each connection.
func start(b *testing.B, cfg Config, s *beaten, token ...string) *beaten {
	s.Cluster = NewCluster(b, cfg)
	for _, n := range s.Nodes {
		n.Token = strings.Join(token, "")
	}
	s.Start()
	s.target = s.Nodes[0]
	if !cfg.AP {
		s.target = s.Leader()
	}
	for i := range beatConns {
		mustRegister(b, s.target, Instance{App: "ORDERS", ID: "i" + strconv.Itoa(i), Duration: 86400})
	}
	return s
}

func (s *beaten) dial(b *testing.B) (c net.Conn) {
	var err error
	if s.trust == nil {
		c, err = net.Dial("tcp", s.target.HTTP)
	} else {
		c, err = tls.Dial("tcp", s.target.HTTP, s.trust)
	}
	need.OK(b, err)
	return c
}

// turn sends heartbeats over new connections for a while. The cost is the CPU time of all nodes for one, in µs.
func (s *beaten) turn(b *testing.B) (rate, cost float64) {
	var conns []net.Conn
	for range beatConns {
		c := s.dial(b)
		defer c.Close()
		conns = append(conns, c)
	}
	var senders sync.WaitGroup
	var sent atomic.Int64
	before, begin := s.cpu(b), time.Now()
	for i, c := range conns {
		request := fmt.Appendf(nil, "PUT /eureka/apps/ORDERS/i%d?status=UP HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: 0\r\n\r\n", i, s.header)
		senders.Go(func() {
			answer := make([]byte, 4096)
			for time.Since(begin) < beatWindow {
				_, err := c.Write(request)
				n := 0
				for err == nil && !bytes.HasSuffix(answer[:n], []byte("\r\n\r\n")) {
					var more int
					more, err = c.Read(answer[n:])
					n += more
				}
				if err != nil || !bytes.HasPrefix(answer[:n], []byte("HTTP/1.1 "+strconv.Itoa(http.StatusOK))) {
					b.Errorf("heartbeat: %q: %v", answer[:n], err)
					return
				}
				sent.Add(1)
			}
		})
	}
	senders.Wait()
	need.That(b, !b.Failed(), "not every heartbeat was answered")
	n := float64(sent.Load())
	return n / time.Since(begin).Seconds(), float64((s.cpu(b) - before).Microseconds()) / n
}

// cpu is how long the nodes' processes have run.
func (c *Cluster) cpu(t testing.TB) (all time.Duration) {
	const tick = 10 * time.Millisecond // of Linux's clock for users
	for _, n := range c.Nodes {
		text := string(need.Got(os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.Pid())))(t))
		fields := strings.Fields(text[strings.LastIndex(text, ")"):])
		for _, field := range fields[12:14] { // utime and stime
			all += time.Duration(need.Got(strconv.Atoi(field))(t)) * tick
		}
	}
	return all
}
