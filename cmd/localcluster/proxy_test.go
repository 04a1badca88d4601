package localcluster

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/need"
)

// echoServer answers with what it gets.
func echoServer(t *testing.T) (addr string) {
	t.Helper()
	l := need.Got(net.Listen("tcp", Address(0)))(t)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go echo(conn)
		}
	}()
	return l.Addr().String()
}

func echo(conn net.Conn) {
	defer conn.Close()
	b := make([]byte, 1)
	for {
		if _, err := conn.Read(b); err != nil {
			return
		}
		if _, err := conn.Write(b); err != nil {
			return
		}
	}
}

func dialTest(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn := need.Got(net.Dial("tcp", addr))(t)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// echoed sends a byte and waits for it for so long.
func echoed(t *testing.T, conn net.Conn, patience time.Duration) error {
	t.Helper()
	need.OK(t, conn.SetDeadline(time.Now().Add(patience)))
	if _, err := conn.Write([]byte{'x'}); err != nil {
		return err
	}
	_, err := conn.Read(make([]byte, 1))
	return err
}

func TestACutProxyCarriesNothingUntilItIsHealed(t *testing.T) {
	const (
		patience = 10 * time.Second
		silence  = 50 * time.Millisecond
	)
	p := need.Got(StartProxy(echoServer(t)))(t)
	defer p.Stop()
	before := dialTest(t, p.Addr())
	if err := echoed(t, before, patience); err != nil {
		t.Fatalf("before the cut: %v", err)
	}
	counted := func() bool { return p.Carried(There) == 1 && p.Carried(Back) == 1 }
	for end := time.Now().Add(patience); !counted() && time.Now().Before(end); {
		time.Sleep(time.Millisecond) // it counts after it has delivered
	}
	p.Cut()
	during := dialTest(t, p.Addr())
	for name, conn := range map[string]net.Conn{"connection from before": before, "new connection": during} {
		if err := echoed(t, conn, silence); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s in the cut: got %v, want nothing for %v", name, err, silence)
		}
	}
	if !counted() {
		t.Errorf("it has carried %d bytes there and %d back, want the one from before the cut", p.Carried(There), p.Carried(Back))
	}
	p.Heal()
	if err := echoed(t, before, patience); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection from before the cut: got %v, want that it was closed", err)
	}
	if err := echoed(t, dialTest(t, p.Addr()), patience); err != nil {
		t.Errorf("after the cut: %v", err)
	}
}

func TestAStoppedProxyClosesItsConnections(t *testing.T) {
	p := need.Got(StartProxy(echoServer(t)))(t)
	conn := dialTest(t, p.Addr())
	need.OK(t, echoed(t, conn, 10*time.Second))
	p.Stop() // returns when both ends are closed
	if err := echoed(t, conn, 10*time.Second); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v, want that the connection was closed", err)
	}
}
