//go:build unix

package integration

import (
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/need"
)

// logPipe is a pipe that a node logs to, and that can be full.
type logPipe struct {
	path string
	read *os.File
	done chan struct{} // closed once nobody reads the pipe
}

// logToPipe makes a node log to a pipe from its next start on. Until block, the test copies what is logged to the
// node's log file.
func logToPipe(t *testing.T, n *Node) *logPipe {
	t.Helper()
	p := &logPipe{path: filepath.Join(t.TempDir(), "stderr"), done: make(chan struct{})}
	need.OK(t, syscall.Mkfifo(p.path, 0o600))
	var err error
	if p.read, err = os.OpenFile(p.path, os.O_RDONLY|syscall.O_NONBLOCK, 0); err != nil {
		t.Fatal(err)
	}
	logFile := need.Got(os.OpenFile(n.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600))(t)
	// A writer of our own, so that the reader sees no end of the pipe before the node has opened it.
	keptOpen := need.Got(os.OpenFile(p.path, os.O_WRONLY|syscall.O_NONBLOCK, 0))(t)
	go func() {
		defer close(p.done)
		_, _ = io.Copy(logFile, p.read) // until block, or the end of the test
	}()
	t.Cleanup(func() {
		p.read.Close()
		keptOpen.Close()
		<-p.done
		logFile.Close()
	})
	// The shell opens the pipe ($0) as standard error, and becomes the node's program ($@).
	n.within = []string{"sh", "-c", `exec "$@" 2>"$0"`, p.path}
	return p
}

// block fills the pipe, and stops reading it.
func (p *logPipe) block(t *testing.T) {
	t.Helper()
	need.OK(t, p.read.SetReadDeadline(time.Unix(1, 0)))
	<-p.done
	fd := need.Got(syscall.Open(p.path, syscall.O_WRONLY|syscall.O_NONBLOCK, 0))(t)
	defer syscall.Close(fd)
	for _, size := range []int{4096, 1} {
		for {
			_, err := syscall.Write(fd, make([]byte, size))
			if err == syscall.EAGAIN {
				break
			}
			if err != nil && err != syscall.EINTR {
				t.Fatal(err)
			}
		}
	}
}

// Standard error of all nodes is blocked, as by a log shipper that hangs, and then a follower and the leader are
// killed. The others must elect a leader and serve the load meanwhile.
func TestLogOutputThatIsNotReadStopsNeitherANodeNorTheCluster(t *testing.T) {
	t.Parallel()
	c := NewCluster(t, Config{})
	var pipes []*logPipe
	for _, n := range c.Nodes {
		pipes = append(pipes, logToPipe(t, n))
	}
	c.Start()
	for _, p := range pipes {
		p.block(t)
	}
	l := startLoad(t, 10, 10, 4, c.Nodes)
	for _, role := range []string{"follower", "leader"} {
		dead := c.Leader()
		if role == "follower" {
			dead = c.Others(dead)[0]
		}
		others := c.Others(dead)
		l.use(others)
		dead.Kill()
		c.Leader(others...)
		l.awaitProgress(t)
		for _, n := range others {
			mustRegisterSoon(t, n, Instance{App: "AFTER", ID: role + "-" + n.Name})
		}
		dead.Start(t)
		dead.WaitReady(t)
		l.use(c.Nodes)
	}
	l.stop()
	l.check(t, c.Nodes)
	for _, n := range c.Nodes {
		n.Stop(t)
	}
}
