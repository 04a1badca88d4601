package httpd

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"

	"github.com/seed-20419f34/rollcall/fsm/registry/registrytest"
)

// heartbeat is what a Java client sends.
const heartbeat = "PUT /eureka/v2/apps/ORDERS/host-1.example.internal:orders:8080?status=UP&lastDirtyTimestamp=1767225599500 HTTP/1.1\r\n" +
	"DiscoveryIdentity-Name: DefaultClient\r\nDiscoveryIdentity-Version: 1.4\r\nDiscoveryIdentity-Id: 10.0.0.1\r\nAccept-Encoding: gzip\r\n" +
	"Content-Length: 0\r\nHost: 127.0.0.1:8761\r\nConnection: Keep-Alive\r\nUser-Agent: Java-EurekaClient/v1.10.17\r\n\r\n"

// BenchmarkHeartbeats is heartbeats over 256 connections, against a handler of net/http that does
// nothing. The registry behind answers at once. Goal: three quarters of the bare handler's, with a
// registry that is one.
func BenchmarkHeartbeats(b *testing.B) {
	b.Run("bare", func(b *testing.B) {
		server := NewServer("", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), nil)
		benchmarkConns(b, server, server.Serve)
	})
	b.Run("routes", func(b *testing.B) {
		h := newBenched(b)
		server := NewServer("", h, nil)
		benchmarkConns(b, server, server.Serve)
	})
	b.Run("taken over", func(b *testing.B) {
		h := newBenched(b)
		server := NewServer("", h, nil)
		benchmarkConns(b, server, func(l net.Listener) error {
			defer h.Close()
			return h.Serve(server, l)
		})
	})
}

func newBenched(b *testing.B) *Handler {
	b.Helper()
	h, err := New(Config{Service: &done{registrytest.New()}})
	if err != nil {
		b.Fatal(err)
	}
	return h
}

// benchmarkConns sends heartbeats over 256 connections at once.
func benchmarkConns(b *testing.B, server *http.Server, serve func(net.Listener) error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- serve(l) }()
	const conns = 256
	work := make(chan int, conns)
	var clients sync.WaitGroup
	for range conns {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		clients.Go(func() { sendHeartbeats(b, conn, work) })
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range conns {
		work <- b.N/conns + (conns-1-i+b.N%conns)/conns
	}
	clients.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "heartbeats/s")
	server.Close()
	<-served
}

// sendHeartbeats sends as many heartbeats as it is told to, one at a time.
func sendHeartbeats(b *testing.B, conn net.Conn, work <-chan int) {
	defer conn.Close()
	in, request := bufio.NewReader(conn), []byte(heartbeat)
	for range <-work {
		if _, err := conn.Write(request); err != nil {
			b.Error(err)
			return
		}
		if err := readEmptyOK(in); err != nil {
			b.Error(err)
			return
		}
	}
}

// readEmptyOK reads an answer of 200 without a body, at little cost of its own.
func readEmptyOK(in *bufio.Reader) error {
	for first := true; ; first = false {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return err
		}
		if first && !bytes.HasPrefix(line, []byte("HTTP/1.1 200 ")) {
			return io.ErrUnexpectedEOF
		}
		if len(line) == 2 {
			return nil
		}
	}
}
